"""Traces to test with: made up by rule, and the public one where it lies beside the checkout."""

import json
import random
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from engine_agent.tools.replay.trace import Request, read_trace

PUBLIC_TRACE = Path(__file__).parents[4] / "shared" / "traces" / "conversation_trace.jsonl"
BLOCK_TOKENS = 16


def made_up(count: int, *, seed: int = 1, block_tokens: int = BLOCK_TOKENS, seconds: float = 4.0) -> list[Request]:
    """Conversations that grow and come back, behind one system prompt; some fill their last block exactly."""
    chance, fresh = random.Random(seed), iter(range(1, 1_000_000))
    conversations: list[list[int]] = []
    requests, now = [], 0.0
    for _ in range(count):
        now += chance.choice((0.0, chance.expovariate(1 / seconds)))
        if not conversations or chance.random() < 0.4:
            conversations.append([0])
        blocks = chance.choice(conversations[-30:])
        if chance.random() < 0.1:  # edited: another branch of the same conversation
            del blocks[chance.randint(1, len(blocks)) :]
        blocks += [next(fresh) for _ in range(chance.randint(0, 6))]
        rest = chance.choice((0, chance.randint(1, block_tokens - 1)))
        ids = [*blocks, *([next(fresh)] if rest else [])]
        requests.append(Request(now, len(blocks) * block_tokens + rest, chance.randint(0, 40), array("Q", ids)))
    return requests


def lines_of(requests: Sequence[Request]) -> Iterator[str]:
    for one in requests:
        fields = {
            "timestamp": one.at_seconds * 1000,
            "input_length": one.input_tokens,
            "output_length": one.output_tokens,
            "hash_ids": list(one.hash_ids),
            "namespace": one.namespace,
        }
        yield json.dumps(fields) + "\n"


def public_trace(head: int | None = None) -> list[Request]:
    """Skips the test where it is not there."""
    if not PUBLIC_TRACE.exists():
        pytest.skip(f"the public trace is not in ../{PUBLIC_TRACE.parent.relative_to(PUBLIC_TRACE.parents[2])}")
    with PUBLIC_TRACE.open(encoding="utf-8") as lines:
        return read_trace(lines, block_tokens=512, head=head)
