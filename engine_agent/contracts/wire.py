"""Commands down and reports up: what control plane and agents say to each other besides snapshots. Standard library.

A command is for one agent, numbered by the generation of its desired state, and expires. A batch of reports carries
facts that are spooled until they are acknowledged, each with its number, and beside them at most one heartbeat, which
is worth nothing once there is a newer one. Sealing and signing are sealing.py's; what a report means is the reader's.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from engine_agent.contracts.protocol import MalformedMessage, canonical_json
from engine_agent.contracts.usage import MOST_KEY_ROWS, MOST_ROWS

VERSION = 1
COMMAND_TASK = "agent.command"  # the Celery task by which commands come: one argument, the sealed text
MOST_COMMAND_CHARACTERS = 128 * 1024  # a change of 64 KiB, sealed and in base64 twice
MOST_BATCH_BYTES = 1024 * 1024
MOST_REPORTS = 500  # in one batch
COMMAND_SECONDS = 30.0  # how long one is good for; the sweep sends another

Deed = Literal["apply", "operation", "wake"]
Operated = Literal["drain", "resume", "integrity", "warm_pins", "rotate_token"]
ReportKind = Literal[
    "about", "applied", "rejected", "purged", "receipt", "refused", "usage", "levels", "gaps", "canary", "diagnostics"
]
RefusalReason = Literal["malformed", "forged", "misaddressed", "expired", "replayed", "older", "corrupt"]

DEEDS: tuple[Deed, ...] = get_args(Deed)
OPERATED: tuple[Operated, ...] = get_args(Operated)
REPORT_KINDS: tuple[ReportKind, ...] = get_args(ReportKind)
REFUSAL_REASONS: tuple[RefusalReason, ...] = get_args(RefusalReason)


@dataclass(frozen=True, slots=True)
class Command:
    """`generation` is that of the state the agent is to hold: an `apply` below the one it holds is older and refused.

    `apply`: {"base": hash | null, "target": hash, "change": base64 of an encoded change | null}; null: pull it all.
    `operation`: {"operation": id, "deed": one of OPERATED, "arguments": {…}, "deadline": unix seconds}.
    `wake`: {}; send a heartbeat and see what it is answered.
    """

    agent: str
    id: str  # of this message: the same one twice is a replay
    deed: Deed
    generation: int
    issued_at: float  # unix seconds, by the control plane's clock
    expires_at: float
    body: Mapping[str, Any] = field(repr=False)


def command_encode(command: Command) -> bytes:
    return canonical_json({"version": VERSION, **asdict(command), "body": dict(command.body)})


def command_decode(message: bytes) -> Command:
    """The command in opened bytes, or MalformedMessage naming the field."""
    told = _object(message)
    _known(told, {"version", "agent", "id", "deed", "generation", "issued_at", "expires_at", "body"})
    _checked("version", told["version"] == VERSION, f"must be {VERSION}")
    _checked("agent", _is_name(told["agent"]), "must be an agent's id")
    _checked("id", _is_name(told["id"]), "must be an id")
    _checked("deed", told["deed"] in DEEDS, f"must be one of {', '.join(DEEDS)}")
    _checked("generation", _is_count(told["generation"]), "must be a whole number from 0")
    for name in ("issued_at", "expires_at"):
        _checked(name, _is_instant(told[name]), "must be unix seconds")
    _checked("body", isinstance(told["body"], dict), "must be an object")
    return Command(**{name: told[name] for name in told if name != "version"})


# Reports


@dataclass(frozen=True, slots=True)
class Report:
    """One fact, told once. What `told` holds, by kind:

    `about`     what the agent is: see About.
    `applied`   {"generation", "hash", "at", "engine_boot", "seconds"}: it holds that state and will after any restart.
    `rejected`  {"generation", "hash", "at", "reason"}: it cannot hold that state.
    `purged`    {"namespace", "epoch", "blocks", "bytes", "at", "engine_boot"}: an engine's proof. Told before the
                `applied` of the state that asked for it; no proof before it means that nothing of it was there.
    `receipt`   {"operation", "ok", "at", "result": {…}}: what an operation came to. The same operation is done once.
    `refused`   {"reason", "what", "at", "count"}: commands that were not believed.
    `usage`     {"boot", "after", "born", "upto", "rows", "totals", "lost", "keys"}: what the engine's journal says in
                the records of that boot behind number `after`, up to `upto`: rows as in usage.py, each checked by
                itself by whoever takes them in. A request that a boot left open when it was over is one more record
                behind its last. `born`: the checksum of its first record, or null: another journal of that name is
                known by it. Without `after`, what a spool's numbers say is all that tells what is new.
                `totals`: {namespace: [requests, prompt tokens, cached tokens]}, what the engine itself counted since
                its boot when it had written record `upto`; of the namespaces that it has counted on since. `lost`: how
                many of its records can no longer be read.
                `keys`: what of the customers' rows came with which API key, as lists of [minute, namespace, model,
                key or null, requests, prompt tokens, cached tokens, generated tokens]. Without it nobody knows.
    `levels`    {"boot", "at", "pool", "preemptions", "namespaces"}: how full the engine is now. `pool`:
                {"capacity_bytes", "used_bytes", "evictable_bytes"}; `namespaces`: {id: {"resident_bytes", "host_bytes",
                "expired_blocks", "evicted_blocks", "quota_blocks", "purged_blocks"}}, whose blocks and preemptions
                count since the boot. Besides, where its sender tells that: `evictions`, a list of {"victim", "by",
                "cause", "blocks", "bytes", "seconds_ago"}: what requests of one namespace took from another, or from
                itself, since the boot, "*" being others; not all each time. `formats`: {id: {KV format: bytes}}, what
                `resident_bytes` are in. `pins`: a list of {"id", "namespace", "state", "is_warming",
                "wanted_tokens", "resident_tokens", "resident_bytes", "problem"}, in place of those told before.
    `gaps`      {"boot", "at", "namespaces"}: what another TTL or limit would do, from the engine's reuse gaps: {id: {
                "prompt_tokens", "ttls", "curves": [{"ttl_mode", "limit_share", "hit_ratios", "resident_bytes"}]}}.
    `canary`    {"at", "agents"}: what a gateway's isolation probes found since it last told: {agent: {"rounds":
                {outcome: count}, "failure": {"at", "why"} | null, "timing": {"pairs", "auc", "low", "high"} | null}}.
    `diagnostics` {"boot", "at", "namespaces"}: why prompts miss, from a gateway's sample of them: {id: what
                divergence/findings.py says}.
    """

    kind: ReportKind
    told: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Batch:
    """`spool` names the spool that numbers these reports; `first` is the number of the first of them, from 1."""

    sent_at: float  # unix seconds, by the agent's clock: the control plane sees how far off that is
    spool: str
    first: int
    reports: Sequence[Report]
    heartbeat: Mapping[str, Any] | None


def batch_encode(batch: Batch) -> bytes:
    reports = [{"kind": one.kind, "told": dict(one.told)} for one in batch.reports]
    return canonical_json(
        {
            "version": VERSION,
            "sent_at": batch.sent_at,
            "spool": batch.spool,
            "first": batch.first,
            "reports": reports,
            "heartbeat": None if batch.heartbeat is None else dict(batch.heartbeat),
        }
    )


def batch_decode(message: bytes) -> Batch:
    told = _object(message)
    _known(told, {"version", "sent_at", "spool", "first", "reports", "heartbeat"})
    _checked("version", told["version"] == VERSION, f"must be {VERSION}")
    _checked("sent_at", _is_instant(told["sent_at"]), "must be unix seconds")
    _checked("spool", _is_name(told["spool"]), "must be an id")
    _checked("first", _is_count(told["first"]) and told["first"] > 0, "must be a whole number from 1")
    reports = told["reports"]
    few = isinstance(reports, list) and len(reports) <= MOST_REPORTS
    _checked("reports", few, f"must be a list of at most {MOST_REPORTS}")
    read = [_report(f"reports.{place}", one) for place, one in enumerate(reports)]
    heartbeat = told["heartbeat"]
    if heartbeat is not None:
        heartbeat_check(heartbeat)
    return Batch(told["sent_at"], told["spool"], told["first"], read, heartbeat)


def _report(where: str, told: Any) -> Report:
    _checked(where, isinstance(told, dict) and told.keys() == {"kind", "told"}, "must be {kind, told}")
    _checked(f"{where}.kind", told["kind"] in REPORT_KINDS, f"must be one of {', '.join(REPORT_KINDS)}")
    _checked(f"{where}.told", isinstance(told["told"], dict), "must be an object")
    for name, is_good, must in _REPORT_FIELDS[told["kind"]]:
        _checked(f"{where}.told.{name}", is_good(told["told"].get(name)), must)
    return Report(told["kind"], told["told"])


# A heartbeat: {"boot", "sequence", "applied": {"hash", "generation"} | null, "engine": {"boot", "state", "why",
# "hash"}, "load": {"running", "waiting"}, "pool": {"capacity_bytes", "used_bytes"}, "counters": {scope: Counted},
# "spooled": n}.
# `engine.hash` is what the engine itself says it holds; `counters` are cumulative since `engine.boot`, for the scopes
# that the last answer named in `watch`: "fleet", "org/<id>" or "ns/<id>".
ENGINE_STATES = ("ready", "starting", "down", "draining", "failed")
_HEARTBEAT = {"boot", "sequence", "applied", "engine", "load", "pool", "counters", "spooled"}

# What is counted of a scope. `ttft_buckets` are cumulative counts of answers no slower than TTFT_SECONDS[i], then all.
TTFT_SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 60)
COUNTED = ("requests", "errors", "prompt_tokens", "cached_tokens")
MISSED = ("cold", "tail", "expired", "evicted", "quota", "purged", "dtype", "disabled", "other-agent")


def heartbeat_check(told: Any) -> None:
    _checked("heartbeat", isinstance(told, dict), "must be an object")
    _known(told, _HEARTBEAT, "heartbeat.")
    _checked("heartbeat.boot", _is_name(told["boot"]), "must be an id")
    for name in ("sequence", "spooled"):
        _checked(f"heartbeat.{name}", _is_count(told[name]), "must be a whole number from 0")
    applied = told["applied"]
    is_state = isinstance(applied, dict) and applied.keys() == {"hash", "generation"}
    is_state = is_state and _is_hash(applied["hash"]) and _is_count(applied["generation"])
    _checked("heartbeat.applied", applied is None or is_state, "must be null or {hash, generation}")
    engine = told["engine"]
    is_engine = isinstance(engine, dict) and engine.keys() == {"boot", "state", "why", "hash"}
    is_engine = (
        is_engine and engine["state"] in ENGINE_STATES and _is_short(engine["why"]) and _is_short(engine["boot"])
    )
    is_engine = is_engine and (engine["hash"] is None or _is_hash(engine["hash"]))
    _checked("heartbeat.engine", is_engine, "must be {boot, state, why, hash}")
    for name in ("load", "pool"):
        numbers = isinstance(told[name], dict) and all(map(_is_count, told[name].values())) and len(told[name]) < 20
        _checked(f"heartbeat.{name}", numbers, "must be an object of whole numbers")
    _checked("heartbeat.counters", _are_counters(told["counters"]), "must be counts by scope")


def _are_counters(told: Any) -> bool:
    return (
        isinstance(told, dict)
        and len(told) <= 64
        and all(map(_is_short, told))
        and all(map(_is_counted, told.values()))
    )


def _is_counted(told: Any) -> bool:
    if not isinstance(told, dict) or told.keys() != {*COUNTED, "missed", "ttft_buckets"}:
        return False
    missed, buckets = told["missed"], told["ttft_buckets"]
    are_missed = isinstance(missed, dict) and missed.keys() <= {*MISSED} and all(map(_is_count, missed.values()))
    are_buckets = isinstance(buckets, list) and len(buckets) == len(TTFT_SECONDS) + 1 and all(map(_is_count, buckets))
    return are_missed and are_buckets and all(_is_count(told[name]) for name in COUNTED)


# What a message looks like.


def _object(message: bytes) -> dict[str, Any]:
    try:
        told = json.loads(message.decode())
    except (ValueError, RecursionError):
        raise MalformedMessage("message", "is not JSON in UTF-8, or nested too deeply") from None
    _checked("message", isinstance(told, dict), "must be an object")
    return dict(told)


def _known(told: Mapping[str, Any], names: set[str], where: str = "") -> None:
    for name in sorted(names - told.keys()):
        raise MalformedMessage(where + name, "is missing")
    for name in sorted(told.keys() - names):
        raise MalformedMessage(where + ascii(name[:80])[1:-1], "is not a field we know")


def _checked(field: str, is_good: bool, must: str) -> None:
    if not is_good:
        raise MalformedMessage(field, must)


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and _HASH.fullmatch(value) is not None


def _is_short(value: Any) -> bool:
    return value is None or (isinstance(value, str) and len(value) <= 400)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_count_if_any(value: Any) -> bool:
    return value is None or _is_count(value)


def _is_instant(value: Any) -> bool:
    return type(value) in (int, float) and -1e12 < value < 1e12  # which NaN is not


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MOST_ROWS


def _are_keys_if_any(value: Any) -> bool:
    return value is None or (isinstance(value, list) and len(value) <= MOST_KEY_ROWS)


def _is_truth(value: Any) -> bool:
    return type(value) is bool


_INSTANT = (_is_instant, "must be unix seconds")
_STATE = (
    ("generation", _is_count, "must be a whole number from 0"),
    ("hash", _is_hash, "must be a sha256 in 64 small hexadecimal digits"),
    ("at", *_INSTANT),
)
_ENGINE_BOOT = ("boot", _is_name, "must be an id")
_REPORT_FIELDS: Mapping[str, Sequence[Any]] = {
    "about": (),
    "usage": (
        _ENGINE_BOOT,
        ("after", _is_count_if_any, "must be a whole number from 0, or null"),
        ("born", _is_count_if_any, "must be a whole number from 0, or null"),
        ("upto", _is_count, "must be a whole number from 0"),
        ("rows", _is_list, f"must be a list of at most {MOST_ROWS}"),
        ("totals", _is_object, "must be an object"),
        ("lost", _is_count, "must be a whole number from 0"),
        ("keys", _are_keys_if_any, f"must be a list of at most {MOST_KEY_ROWS}, or null"),
    ),
    "levels": (
        _ENGINE_BOOT,
        ("at", *_INSTANT),
        ("pool", _is_object, "must be an object"),
        ("preemptions", _is_count, "must be a whole number from 0"),
        ("namespaces", _is_object, "must be an object"),
    ),
    "canary": (("at", *_INSTANT), ("agents", _is_object, "must be an object")),
    "gaps": (_ENGINE_BOOT, ("at", *_INSTANT), ("namespaces", _is_object, "must be an object")),
    "diagnostics": (_ENGINE_BOOT, ("at", *_INSTANT), ("namespaces", _is_object, "must be an object")),
    "applied": (*_STATE, ("engine_boot", _is_short, "must be short text")),
    "rejected": (*_STATE, ("reason", _is_short, "must be short text")),
    "purged": (
        ("namespace", _is_name, "must be a namespace's id"),
        ("epoch", _is_count, "must be a whole number from 0"),
        ("blocks", _is_count, "must be a whole number from 0"),
        ("bytes", _is_count, "must be a whole number from 0"),
        ("at", *_INSTANT),
        ("engine_boot", _is_short, "must be short text"),
    ),
    "receipt": (
        ("operation", _is_name, "must be an operation's id"),
        ("ok", _is_truth, "must be true or false"),
        ("at", *_INSTANT),
        ("result", _is_object, "must be an object"),
    ),
    "refused": (
        ("reason", lambda value: value in REFUSAL_REASONS, f"must be one of {', '.join(REFUSAL_REASONS)}"),
        ("what", _is_short, "must be short text"),
        ("at", *_INSTANT),
        ("count", _is_count, "must be a whole number from 0"),
    ),
}
