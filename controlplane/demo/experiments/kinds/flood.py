"""Replay one trace of a quiet tenant and a flooder twice: with fair shares, and in a single LRU cache.

`luminet replay` runs both as a separate process: it uses the engines' block manager without an engine.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

from controlplane.demo.experiments.trials import About, NotPossible, Step
from tenants.actor import Actor

ABOUT: Final = About(
    "flood",
    "Flood: a quiet tenant beside a flooder",
    "The same trace twice through the engines’ block manager: with fair shares, and all in one LRU cache.",
    "Nothing is sent to the fleet, so there is nothing to undo.",
    "about 15 s",
)
CONVERSATIONS: Final = 8
TURNS: Final = 20
SHARED_BLOCKS, NEW_BLOCKS, BLOCK_TOKENS = 60, 4, 16
FLOOD: Final = 8
POOL_TOKENS: Final = 24_000
REPLAY_SECONDS: Final = 55.0
OPTIONS: Final = ("--block-tokens", str(BLOCK_TOKENS), "--policy", "none", "--pool", str(POOL_TOKENS))


def flood(actor: Actor) -> Iterator[Step]:
    trace = flood_trace()
    yield Step(
        f"A made-up trace: a quiet tenant with {CONVERSATIONS} conversations of {TURNS} turns, "
        f"a flooder with {FLOOD} times as many prompts, no block twice; a pool of {POOL_TOKENS:,} tokens."
    )
    fair = _replayed(trace, ())
    yield Step(f"With fair shares the quiet tenant gets {_percent(fair, 'quiet')} from cache.")
    shared = _replayed(trace, ("--one-cache",))
    yield Step(
        f"In one least-recently-used cache it gets {_percent(shared, 'quiet')}.",
        facts=[*_facts("Fair shares", fair), *_facts("One LRU cache", shared)],
        facts_title="Share of prompt tokens served from cache, same trace",
        verdict=f"Flood: the quiet tenant keeps {_percent(fair, 'quiet')}, "
        f"{_percent(shared, 'quiet')} in one LRU cache",
        tone="ok" if _of(fair, "quiet")["hit_ratio"] > _of(shared, "quiet")["hit_ratio"] else "warn",
    )


def flood_trace() -> str:
    """Return the quiet tenant's trace as JSON lines for `luminet replay`, which adds the flooder itself."""
    lines = []
    for turn in range(TURNS):
        for conversation in range(CONVERSATIONS):
            shared = [conversation * 1_000 + block for block in range(SHARED_BLOCKS)]
            new = [1_000_000 + (conversation * TURNS + turn) * NEW_BLOCKS + block for block in range(NEW_BLOCKS)]
            lines.append(
                json.dumps(
                    {
                        "timestamp": turn * 10_000 + conversation * 1_250,
                        "input_length": (SHARED_BLOCKS + NEW_BLOCKS) * BLOCK_TOKENS,
                        "output_length": 8,
                        "hash_ids": shared + new,
                        "namespace": "quiet",
                    }
                )
            )
    return "\n".join(lines) + "\n"


def _replayed(trace: str, options: Sequence[str]) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "controlplane.cli",
        "replay",
        "-",
        "--json",
        *OPTIONS,
        "--flood",
        str(FLOOD),
        *options,
    ]
    try:
        completed = subprocess.run(
            command, input=trace.encode(), capture_output=True, timeout=REPLAY_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        raise NotPossible(f"luminet replay did not end within {REPLAY_SECONDS:.0f} s.") from None
    if completed.returncode:
        why = completed.stderr.decode(errors="replace").strip().splitlines()
        raise NotPossible(
            f"luminet replay ended with {completed.returncode}: {why[-1][:200] if why else 'it said nothing'}"
        )
    try:
        row: dict[str, Any] = json.loads(completed.stdout)["rows"][0]
        return {usage["namespace"]: usage for usage in row["by_namespace"]}
    except (ValueError, LookupError, TypeError):
        raise NotPossible("luminet replay told what this page does not know.") from None


def _of(usage_by_namespace: dict[str, Any], namespace: str) -> dict[str, Any]:
    usage: dict[str, Any] = usage_by_namespace[namespace]
    return usage


def _percent(usage_by_namespace: dict[str, Any], namespace: str) -> str:
    return f"{100 * _of(usage_by_namespace, namespace)['hit_ratio']:.1f} %"


def _facts(label: str, usage_by_namespace: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [
        (f"{label}: {name}", _percent(usage_by_namespace, name), _basis(usage))
        for name, usage in usage_by_namespace.items()
    ]


def _basis(usage: dict[str, Any]) -> str:
    evicted = usage["missed_tokens_by_reason"].get("evicted", 0)
    return f"{usage['requests']:,} requests, {usage['prompt_tokens']:,} prompt tokens, {evicted:,} missed as evicted"
