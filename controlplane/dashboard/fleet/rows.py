"""Agents and rollouts as the Fleet page words them: states as words with a meaning, numbers with their unit. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.analytics.agents import Hits
from controlplane.dashboard.frame.charts import Bar
from controlplane.dashboard.frame.tiles import rate
from controlplane.dashboard.frame.words import bake_word, counted
from controlplane.dashboard.policies.enforcement_words import labels_words, unenforced
from controlplane.dashboard.policies.fields import reason_words
from controlplane.fleet.canaries import NEVER, Isolation
from controlplane.fleet.quality import format_words

NO_HITS = Hits()
HASH_SHOWN = 8
MOST_FORMATS = 3
MOST_TROUBLES = 5
# What a state means to whoever looks: fine, passing, or somebody's to do something about.
TONES = {
    "ready": "ok", "enrolled": "info", "starting": "info", "draining": "info", "paused": "warn", "running": "info",
    "stale": "bad", "down": "bad", "failed": "bad",
}  # fmt: skip
GUARDS = {"error_ratio": "Requests that fail", "hit_ratio_drop": "Hit rate", "ttft_p95_rise": "First token, p95"}
VERDICT_TONES = {"kept": "ok", "breached": "bad", "too little": "warn"}


@dataclass(frozen=True, slots=True)
class Tag:
    """A word and its meaning; never a colour alone."""

    word: str
    tone: str


@dataclass(frozen=True, slots=True)
class AgentRow:
    id: str
    kind: str
    what: str  # backend and accelerator
    state: Tag
    sync: Tag
    snapshot: str
    pool_percent: int | None
    queue: int | None
    seen_at: datetime | None
    serves: str
    labels: str
    why: str | None
    isolation: Tag | None = None  # None: a gateway
    since: datetime | None = None  # it has been in sync, or is not
    since_word: str = ""
    hit_rate: str = "–"
    hits: str = ""  # of what the rate is
    pool: Bar | None = None
    is_in_sync: bool = False

    @property
    def is_well(self) -> bool:
        is_apart = self.isolation is None or self.isolation.tone != "bad"
        return self.state.tone != "bad" and self.sync.tone == "ok" and self.why is None and is_apart


@dataclass(frozen=True, slots=True)
class FindingRow:
    words: str
    verdict: Tag


@dataclass(frozen=True, slots=True)
class RolloutRow:
    id: str
    title: str
    state: Tag
    progress: str
    summary: str  # for the fleet's headline
    percent: int
    why: str
    findings: tuple[FindingRow, ...]


ISOLATION = {
    "isolated": Tag("tenants isolated", "ok"),
    "broken": Tag("isolation broken", "bad"),
    "unproven": Tag("isolation unproven", "warn"),
    "unknown": Tag("isolation not probed", "info"),
}


def agent_row(
    seen: Mapping[str, Any], isolation: Isolation = NEVER, *, hits: Hits = NO_HITS, pool: Bar | None = None
) -> AgentRow:
    is_engine = seen["kind"] == "engine"
    whys = (_why_broken(isolation) if is_engine else None, seen["why"])
    return AgentRow(
        id=seen["id"],
        kind=seen["kind"],
        what=_what(seen),
        state=Tag(seen["state"], TONES.get(seen["state"], "info")),
        sync=sync_tag(seen),
        is_in_sync=seen["in_sync"],
        snapshot=_snapshot(seen),
        pool_percent=_pool_percent(seen["pool"]),
        queue=None if seen["running"] is None else seen["running"] + (seen["waiting"] or 0),
        seen_at=seen["last_seen_at"],
        serves=_serves(seen),
        labels=", ".join(f"{name}={value}" for name, value in sorted(seen["labels"].items())),
        why="; ".join(filter(None, whys)) or None,
        isolation=ISOLATION[isolation.state] if is_engine else None,
        since=_since(seen),
        since_word="acknowledged" if seen["in_sync"] else "to hold another",
        hit_rate=f"{rate(hits.cached_tokens, hits.prompt_tokens)} %" if hits.prompt_tokens else "–",
        hits=counted(hits.requests, "request") if is_engine else "",
        pool=pool,
    )


def sync_tag(seen: Mapping[str, Any]) -> Tag:
    """In sync only as far as it enforces what it holds."""
    if not seen["in_sync"]:
        return Tag("catching up", "warn")
    if names := unenforced(seen):
        return Tag(f"in sync, not enforced: {labels_words(names)}", "warn")
    return Tag("in sync", "ok")


def _since(seen: Mapping[str, Any]) -> datetime | None:
    """When it came to hold what it is to hold, or was to and did not."""
    if seen["in_sync"]:
        return seen["applied_at"]  # type: ignore[no-any-return]
    behind = seen["conditions"].get("behind") or seen["conditions"].get("engine_differs")
    return datetime.fromisoformat(behind["since"]) if behind else seen["desired_at"]


def worst_first(rows: Sequence[AgentRow]) -> list[AgentRow]:
    return sorted(rows, key=lambda row: (row.is_well, row.id))


def headline(rows: Sequence[AgentRow], rollouts: Sequence["RolloutRow"] = ()) -> str:
    """Return the state of all agents, and how far a rollout is: an agent that waits for its step is in sync, too."""
    if not rows:
        return "No agent has joined yet"
    held = sum(row.is_in_sync for row in rows)
    if held < len(rows):
        synced = f"{held} of {counted(len(rows), 'agent')} {'is' if held == 1 else 'are'} in sync"
    else:
        synced = f"All {len(rows)} agents are in sync" if rows[1:] else "The only agent is in sync"
    if not rollouts:
        return synced
    return f"{synced}; {rollouts[0].summary if len(rollouts) == 1 else f'{len(rollouts)} rollouts are in progress'}"


def advice(rows: Sequence[AgentRow], rollouts: Sequence[RolloutRow]) -> str:
    if not rows:
        return "An agent is a machine with a model; it joins with a token that you make below."
    kinds = [row.kind for row in rows]
    parts = [counted(kinds.count("engine"), "engine"), counted(kinds.count("gateway"), "gateway")]
    return " · ".join(
        [*parts, f"{counted(len(rollouts), 'rollout')} under way" if rollouts else "no rollout under way"]
    )


def troubles(rows: Sequence[AgentRow]) -> list[AgentRow]:
    """Those with something to say, the first few: the rest is in the table."""
    return [row for row in rows if row.why][:MOST_TROUBLES]


def rollout_row(seen: Mapping[str, Any], steps: Mapping[str, Any], *, now: datetime) -> RolloutRow:
    done, total = steps["done"], steps["all"]
    place = f"{seen['place']}, revision {seen['revision']}"
    return RolloutRow(
        id=str(seen["id"]),
        title=place,
        state=Tag(_stage(seen, now), TONES.get(seen["state"], "info")),
        summary=f"{place} is on {done} of {counted(total, 'agent')}",
        progress=f"step {seen['step'] + 1} of {len(seen['steps'])} · {done} of {total} agents have acknowledged",
        percent=round(100 * done / total) if total else 0,
        why=reason_words(seen["why"]),
        findings=tuple(
            FindingRow(
                f"{GUARDS.get(one['guard'], one['guard'])}: {one['words']}",
                Tag(one["verdict"], VERDICT_TONES.get(one["verdict"], "info")),
            )
            for one in seen["findings"]
        ),
    )


def _stage(seen: Mapping[str, Any], now: datetime) -> str:
    since, bake = seen["baking_since"], seen["bake_seconds"]
    if seen["state"] != "running" or since is None or not bake:
        return str(seen["state"])
    baked = max(0, int((now - since).total_seconds()))
    return f"baking, {bake_word(baked, bake)}"


def _why_broken(isolation: Isolation) -> str | None:
    if isolation.state != "broken":
        return None
    if leaked := isolation.rounds["leaked"]:
        return (
            f"isolation is broken: {counted(leaked, 'probe')} in the last hour found cached what nobody had sent there"
        )
    return "isolation is broken: time tells what another tenant has cached"


def _what(seen: Mapping[str, Any]) -> str:
    if seen["kind"] == "gateway":
        return "gateway"
    on = seen["accelerator"]["name"] if seen["accelerator"] else "CPU"
    return f"{backend_words(seen) or 'engine'} · {on}"


def backend_words(seen: Mapping[str, Any]) -> str:
    """ "vllm 0.32.0"; empty where it has not said."""
    return " ".join(filter(None, (seen["backend"], seen["backend_version"])))


def _snapshot(seen: Mapping[str, Any]) -> str:
    if not seen["applied_hash"]:
        return "none yet"
    return f"{seen['applied_generation']} · {seen['applied_hash'][:HASH_SHOWN]}…"


def _pool_percent(pool: Mapping[str, Any]) -> int | None:
    used, capacity = pool["used_bytes"], pool["capacity_bytes"]
    return round(100 * used / capacity) if used is not None and capacity else None


def _serves(seen: Mapping[str, Any]) -> str:
    models = [one["name"] for one in seen["models"]]
    formats = [format_words(one, seen["computed_as"]) for one in seen["kv_dtypes"]]
    if seen["kind"] == "gateway":
        return seen["address"] or ""
    if not models:
        return "nothing yet"
    shown = ", ".join(formats) if len(formats) <= MOST_FORMATS else counted(len(formats), "format")
    return f"{', '.join(models)} · {shown}"
