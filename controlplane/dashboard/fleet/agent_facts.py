"""One agent as its page shows it: what it is to hold and holds, what it can do, how isolated it is, what may be done.
Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from controlplane.analytics.agents import Hits
from controlplane.dashboard.fleet.rows import ISOLATION, TONES, Tag, backend_words, sync_tag
from controlplane.dashboard.frame.charts import bytes_text
from controlplane.dashboard.frame.tiles import rate
from controlplane.dashboard.frame.words import counted, duration
from controlplane.dashboard.policies.enforcement_words import enforcement_facts, labels_words, unenforced
from controlplane.fleet.agents import SECONDS
from controlplane.fleet.canaries import ADVANTAGE, Isolation
from controlplane.fleet.quality import format_words
from engine_agent.contracts.policy_fields import LABELS

Seen = Mapping[str, Any]  # what fleet.views.agent_view says
CONDITIONS = {
    "stale": "Silent",
    "engine_down": "Does not serve",
    "rejected": "Rejects what is published",
    "unknown_hash": "Holds what nobody published",
    "engine_differs": "Engine and sidecar differ",
    "behind": "Behind",
    "unwritable": "Waits for room on its disk",
    "capability_lost": "Cannot do a format any more",
    "unproven": "Its formats are unproven",
    "refusing": "Refuses commands",
    "version_skew": "Another version",
    "clock_skew": "Its clock is off",
    "lost_reports": "Reports were lost",
}
DEED_WORDS = {
    "drain": "Drain",
    "resume": "Resume",
    "integrity": "Check integrity",
    "rotate_token": "Fetch a new token",
    "warm_pins": "Warm pins",
}
STATE_WORDS = {"publish": "Hold what was published", "purge": "Purge, and prove it"}
STEP_STATES = {"waiting": Tag("awaited", "info"), "done": Tag("proved", "ok"), "failed": Tag("failed", "bad")}


@dataclass(frozen=True, slots=True)
class Held:
    """A snapshot, by its hash; `since` None: never."""

    title: str
    generation: int
    hash: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class Wrong:
    title: str
    why: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Stat:
    label: str
    value: str
    note: str


@dataclass(frozen=True, slots=True)
class AgentNow:
    headline: str
    advice: str
    state: Tag
    sync: Tag
    sync_title: str
    snapshots: tuple[Held, ...]
    wrongs: tuple[Wrong, ...]
    stats: tuple[Stat, ...]
    seen_at: datetime | None


def agent_now(seen: Seen, hits: Hits, pool_percent: int | None, engine_hash: str | None) -> AgentNow:
    return AgentNow(
        headline=headline(seen),
        advice=_advice(seen),
        state=Tag(seen["state"], TONES.get(seen["state"], "info")),
        sync=_sync(seen),
        sync_title=_sync_title(seen),
        snapshots=tuple(_snapshots(seen, engine_hash)),
        wrongs=tuple(_wrongs(seen["conditions"])),
        stats=tuple(_stats(seen, hits, pool_percent)),
        seen_at=seen["last_seen_at"],
    )


def headline(seen: Seen) -> str:
    name, state = seen["id"], seen["state"]
    if state == "revoked":
        return f"{name} is out of the fleet"
    if state == "enrolled":
        return f"{name} has joined, and was never heard of since"
    if state in ("stale", "down", "failed"):
        return f"{name} is {state}"
    holds = "holds what is published" if seen["in_sync"] else "does not hold what is published yet"
    if names := unenforced(seen):
        holds += f", but does not enforce: {labels_words(names)}"
    return f"{name} is {state} and {holds}"


def _advice(seen: Seen) -> str:
    what = "A gateway" if seen["kind"] == "gateway" else f"An engine ({backend_words(seen) or 'backend not reported'})"
    said = f"{what} of the group {seen['group']}."
    if seen["not_enforced"] and not seen["conditions"]:
        told = "; ".join(f"{LABELS[one['field']]}: {one['why']}" for one in seen["not_enforced"])
        return f"{said} It does not enforce {told}."
    if seen["why"]:
        return f"{seen['why'][:1].upper()}{seen['why'][1:]}."
    return f"{said} Nothing is wrong with it."


def _sync(seen: Seen) -> Tag:
    if seen["state"] == "revoked":
        return Tag("holds nothing of ours", "info")
    return sync_tag(seen)


def _sync_title(seen: Seen) -> str:
    if seen["state"] == "revoked":
        return "What it held when it was taken out"
    if seen["in_sync"]:
        return f"It holds generation {seen['applied_generation']}, as it is to"
    if not seen["applied_hash"]:
        return f"It holds nothing yet, and is to hold generation {seen['desired_generation']}"
    if seen["applied_generation"] == seen["desired_generation"]:
        return f"It acknowledged generation {seen['applied_generation']}, its engine does not hold it"
    return f"It holds generation {seen['applied_generation']} of {seen['desired_generation']}"


def _snapshots(seen: Seen, engine_hash: str | None) -> Iterator[Held]:
    yield Held("Is to hold", seen["desired_generation"], seen["desired_hash"] or "", seen["desired_at"])
    yield Held("Acknowledged", seen["applied_generation"], seen["applied_hash"] or "", seen["applied_at"])
    if seen["kind"] == "engine" and engine_hash != seen["applied_hash"]:
        yield Held("Its engine says", 0, engine_hash or "", None)


def _wrongs(conditions: Mapping[str, Mapping[str, str]]) -> Iterator[Wrong]:
    for kind, one in conditions.items():
        yield Wrong(CONDITIONS.get(kind, kind), one["why"], datetime.fromisoformat(one["since"]))


def _stats(seen: Seen, hits: Hits, pool_percent: int | None) -> Iterator[Stat]:
    running, waiting = seen["running"], seen["waiting"]
    if seen["kind"] == "engine":
        requests = f"{hits.requests:,} request{'' if hits.requests == 1 else 's'}"
        asked = f"1 h · {requests} · {hits.prompt_tokens:,} prompt tokens"
        value = rate(hits.cached_tokens, hits.prompt_tokens)
        yield Stat("Hit rate", f"{value} %" if hits.prompt_tokens else value, asked)
    yield Stat("Answering", "–" if running is None else f"{running:,}", "requests now, by its last heartbeat")
    yield Stat("Waiting in it", "–" if waiting is None else f"{waiting:,}", "requests now, by its last heartbeat")
    if seen["kind"] == "engine":
        percent = "–" if pool_percent is None else f"{pool_percent} %"
        yield Stat("Pool used", percent, "now, by its last heartbeat")
    else:
        spooled = seen["spooled"]
        yield Stat("Reports it still has", "–" if spooled is None else f"{spooled:,}", "not delivered yet")


# What it is


@dataclass(frozen=True, slots=True)
class Fact:
    name: str
    value: str


def facts(seen: Seen) -> list[Fact]:
    found = [
        Fact("Kind", f"{seen['kind']} · {backend_words(seen) or 'backend not reported'}"),
        Fact("Group", seen["group"]),
        Fact("Labels", ", ".join(f"{name}={value}" for name, value in sorted(seen["labels"].items())) or "none"),
        Fact("Address", seen["address"] or "not told"),
        Fact("Version", seen["version"] or "not told"),
    ]
    if seen["kind"] == "engine":
        found += _engine_facts(seen)
    skew, spooled = seen["clock_skew_seconds"], seen["spooled"]
    way = "ahead of" if skew > 0 else "behind"
    return [
        *found,
        Fact("Clock", f"{abs(skew) * 1000:,.0f} ms {way} ours" if abs(skew) >= 0.001 else "as ours"),
        Fact("Spool", "not told" if spooled is None else f"{counted(spooled, 'report')} not delivered yet"),
        Fact("Joined with", seen["enrolled_by"] or "not kept"),
    ]


def _engine_facts(seen: Seen) -> Iterator[Fact]:
    on = seen["accelerator"]
    yield Fact("Accelerator", f"{on['name']}, {bytes_text(on['memory_bytes'])}" if on else "none: CPU")
    for model in seen["models"] or []:
        said = f"{model['name']} · {model['context_tokens']:,} tokens of context · revision {model['revision'][:12]}"
        yield Fact("Model", said)
    yield Fact("Formats", ", ".join(format_words(one, seen["computed_as"]) for one in seen["kv_dtypes"]) or "none told")
    yield from (Fact(*told) for told in enforcement_facts(seen["enforcement"]))
    pool = seen["pool"]
    yield Fact("Pool", f"{bytes_text(pool['capacity_bytes'])} · blocks of {pool['block_tokens']} tokens")
    sizes = ", ".join(f"{name} {bytes_text(size)}" for name, size in sorted(pool["block_bytes"].items()))
    yield Fact("A block takes", sizes or "not told")


# The isolation canary


@dataclass(frozen=True, slots=True)
class CanaryFacts:
    title: str
    state: Tag
    rounds: tuple[tuple[str, str, str], ...]  # outcome, how many, what it means
    timing: str
    failure: str
    failed_at: datetime | None
    told_at: datetime | None


CANARY = {
    "isolated": "Tenants do not find each other’s prompts here",
    "broken": "Isolation is broken here",
    "unproven": "Probes prove nothing here",
    "unknown": "Nobody has probed it within an hour",
}
OUTCOMES = {
    "isolated": "the owner found its prompt cached, the other did not",
    "leaked": "a tenant found cached what it had not sent",
    "unkept": "nobody found anything cached, which proves nothing",
    "failed": "the engine did not answer the probes",
}


def canary(found: Isolation) -> CanaryFacts:
    timing = found.timing
    if timing is None:
        told = "Nothing is said of time yet: that takes 30 pairs of answers from one gateway."
    else:
        lies = f"AUC {timing.auc:.3f}, 99.9 % interval {timing.low:.3f} to {timing.high:.3f}, of {timing.pairs:,} pairs"
        verdict = "time tells" if timing.advantage > ADVANTAGE else "nothing proves that time tells"
        told = f"{lies}: {verdict}. 0.5 is no advantage; beyond {ADVANTAGE:g} from it is one."
    return CanaryFacts(
        title=CANARY[found.state],
        state=ISOLATION[found.state],
        rounds=tuple((name, f"{found.rounds[name]:,}", meaning) for name, meaning in OUTCOMES.items()),
        timing=told,
        failure=found.failure or "",
        failed_at=found.failed_at,
        told_at=found.at,
    )


# What it was told to do


@dataclass(frozen=True, slots=True)
class StepRow:
    operation: UUID
    what: str
    scope: str
    state: Tag
    receipt: str
    at: datetime
    by: str


def step_rows(steps: Iterable[Any]) -> list[StepRow]:
    """`steps`: rows of fleet.models.OperationStep, with their operations."""
    return [
        StepRow(
            operation=one.operation_id,
            what=_deed_words(one.deed, one.operation.kind),
            scope=one.operation.scope,
            state=STEP_STATES[one.state],
            receipt=_receipt(one.receipt, one.attempts),
            at=one.done_at or one.operation.created_at,
            by=one.operation.created_by,
        )
        for one in steps
    ]


def _deed_words(deed: str, kind: str) -> str:
    if deed == "state":
        return STATE_WORDS.get(kind, f"Hold what {kind.replace('_', ' ')} left behind")
    return DEED_WORDS.get(deed, deed.replace("_", " "))


def _receipt(receipt: Mapping[str, Any] | None, attempts: int) -> str:
    if receipt is None:
        return f"told {counted(attempts, 'time')}, no receipt yet" if attempts else "no receipt yet"
    said = list[str]()
    if receipt.get("blocks") or receipt.get("bytes"):
        said.append(f"{counted(receipt['blocks'], 'block')}, {bytes_text(receipt['bytes'])}")
    if receipt.get("note"):
        said.append(str(receipt["note"]))
    result = receipt.get("result") or {}
    if isinstance(problems := result.get("problems"), list):
        listed = ": " + "; ".join(str(one) for one in problems[:3]) if problems else ""
        said.append(f"{counted(len(problems), 'problem')} found{listed}")
    return ", ".join(said) or "acknowledged"


# What may be done with it


@dataclass(frozen=True, slots=True)
class Deed:
    name: str
    label: str
    consequence: str
    confirm: str = ""

    @property
    def is_danger(self) -> bool:
        return bool(self.confirm)


def seen_as(*, is_draining: bool, is_revoked: bool) -> str:
    """By which a form knows that the agent is still as its page showed it."""
    return "revoked" if is_revoked else "draining" if is_draining else "serving"


def deeds(seen: Seen, *, others: int) -> list[Deed]:
    """`others`: engines of its group that take requests beside it."""
    if seen["state"] == "revoked":
        return []
    name, is_engine = seen["id"], seen["kind"] == "engine"
    found = list[Deed]()
    if seen["draining"]:
        found.append(
            Deed("resume", f"Resume {name}", "Gateways send it requests again, as its cache and queue deserve.")
        )
    else:
        found.append(Deed("drain", f"Drain {name}", _drain_words(seen, others)))
    if is_engine:
        words = f"It looks through all that it holds, and its receipt says what does not fit. {_long('integrity')}"
        found.append(Deed("integrity", "Check integrity", words))
    words = "It fetches a new token; the old one ends when the new one is first used. Nothing else changes."
    found.append(Deed("rotate-token", "Renew its token", words))
    found.append(Deed("revoke", f"Take {name} out of the fleet", _revoke_words(seen, others), confirm=name))
    return found


def _drain_words(seen: Seen, others: int) -> str:
    running = (seen["running"] or 0) + (seen["waiting"] or 0)
    first = f"it finishes {counted(running, 'request')} first" if running else "it answers nothing at the moment"
    if seen["kind"] != "engine":
        return f"It is told to take nothing new; {first}. {_long('drain')}"
    begin = f"Gateways send it nothing new from now on; {first}."
    return f"{begin} {_left(seen, others)} Its cache stays, and expires as ever. {_long('drain')}"


def _revoke_words(seen: Seen, others: int) -> str:
    begin = "Its token and its broker login end at once, and no operation waits for it any more."
    left = f" {_left(seen, others)}" if seen["kind"] == "engine" else ""
    return f"{begin}{left} Drain it first, or requests under way may fail. Only a join token brings it back."


def _left(seen: Seen, others: int) -> str:
    if not others:
        return f"No other engine of the group {seen['group']} takes requests: they would be refused."
    takes = "takes" if others == 1 else "take"
    return f"{counted(others, 'other engine')} of the group {seen['group']} {takes} its share."


def _long(deed: Any) -> str:
    return f"It has {duration(round(SECONDS[deed]))} for it."
