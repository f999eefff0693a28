"""Commands down and reports up: what control plane and agents say to each other besides snapshots.

A command is for one agent, numbered by the generation of its desired state, and expires. A batch of reports carries
facts that are spooled until they are acknowledged, each with its number, and beside them at most one heartbeat, which
is worth nothing once there is a newer one. Sealing and signing are sealing.py's; what a report means is the reader's.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, Struct

from engine_agent.contracts.protocol import MalformedMessage, canonical_json
from engine_agent.contracts.typed import Count, Hash, Id, Instant, Object, Short, T, typed
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


class Command(Struct, frozen=True, forbid_unknown_fields=True):
    """`generation` is that of the state the agent is to hold: an `apply` below the one it holds is older and refused.

    `apply`: {"base": hash | null, "target": hash, "change": base64 of an encoded change | null}; null: pull it all.
    `operation`: {"operation": id, "deed": one of OPERATED, "arguments": {…}, "deadline": unix seconds}.
    `wake`: {}; send a heartbeat and see what it is answered.
    """

    agent: Id
    id: Id  # of this message: the same one twice is a replay
    deed: Deed
    generation: Count
    issued_at: Instant  # by the control plane's clock
    expires_at: Instant
    body: Mapping[str, Any]

    def __repr__(self) -> str:
        """Without the body, which has namespaces' keys."""
        return f"Command(agent={self.agent!r}, id={self.id!r}, deed={self.deed!r}, generation={self.generation})"


def command_encode(command: Command) -> bytes:
    return canonical_json({"version": VERSION, **msgspec.structs.asdict(command), "body": dict(command.body)})


def command_decode(message: bytes) -> Command:
    """The command in opened bytes, or MalformedMessage naming the field."""
    return _message(message, Command)


# Reports


class Report(Struct, frozen=True, forbid_unknown_fields=True):
    """One fact, told once. What `told` holds, by kind, is below."""

    kind: ReportKind
    told: Mapping[str, Any]


class Batch(Struct, frozen=True, forbid_unknown_fields=True):
    """`spool` names the spool that numbers these reports; `first` is the number of the first of them, from 1."""

    sent_at: Instant  # by the agent's clock: the control plane sees how far off that is
    spool: Id
    first: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    reports: Annotated[Sequence[Report], Meta(max_length=MOST_REPORTS)]
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
    batch = _message(message, Batch)
    for place, report in enumerate(batch.reports):
        typed(report.told, _TOLD[report.kind], f"reports.{place}.told")
    if batch.heartbeat is not None:
        heartbeat_check(batch.heartbeat)
    return batch


def _message(message: bytes, type_: type[T]) -> T:
    told = _object(message)
    if told.pop("version", None) != VERSION:  # first: another version has other fields
        raise MalformedMessage("version", f"must be {VERSION}")
    return typed(told, type_)


def _object(message: bytes) -> dict[str, Any]:
    """Python's reader is asked where msgspec's gives up: a NaN or half a character is refused where it stands, or with
    its row alone."""
    for read in (msgspec.json.decode, _python_read):
        try:
            told = read(message)
        except (ValueError, RecursionError):
            continue
        if isinstance(told, dict):
            return told
        raise MalformedMessage("message", "must be an object")
    raise MalformedMessage("message", "is not JSON in UTF-8, or nested too deeply")


def _python_read(message: bytes) -> Any:
    return json.loads(message.decode())


# A heartbeat. `engine.hash` is what the engine itself says it holds; `counters` are cumulative since `engine.boot`, for
# the scopes that the last answer named in `watch`: "fleet", "org/<id>" or "ns/<id>".
EngineState = Literal["ready", "starting", "down", "draining", "failed"]
# What is counted of a scope. `ttft_buckets` are cumulative counts of answers no slower than TTFT_SECONDS[i], then all.
TTFT_SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 60)
COUNTED = ("requests", "errors", "prompt_tokens", "cached_tokens")
MissReason = Literal["cold", "tail", "expired", "evicted", "quota", "purged", "dtype", "disabled", "other-agent"]
MISSED: tuple[MissReason, ...] = get_args(MissReason)
_BUCKETS = len(TTFT_SECONDS) + 1
_Counts = Annotated[dict[str, Count], Meta(max_length=19)]


class _Counted(Struct, forbid_unknown_fields=True):
    requests: Count
    errors: Count
    prompt_tokens: Count
    cached_tokens: Count
    missed: dict[MissReason, Count]
    ttft_buckets: Annotated[list[Count], Meta(min_length=_BUCKETS, max_length=_BUCKETS)]


class _State(Struct, forbid_unknown_fields=True):
    hash: Hash
    generation: Count


class _Engine(Struct, forbid_unknown_fields=True):
    boot: Short
    state: EngineState
    why: Short
    hash: Hash | None


class _Heartbeat(Struct, forbid_unknown_fields=True):
    boot: Id
    sequence: Count
    applied: _State | None
    engine: _Engine
    load: _Counts
    pool: _Counts
    counters: Annotated[dict[Annotated[str, Meta(max_length=400)], _Counted], Meta(max_length=64)]
    spooled: Count


def heartbeat_check(told: Any) -> None:
    typed(told, _Heartbeat, "heartbeat")


# What reports tell, by kind. A member that a newer version adds is passed over. `about` is read where it is believed.


class _At(Struct):
    at: Instant


class _Usage(Struct):
    """What the engine's journal says in the records of that boot behind number `after`, up to `upto`. A request that a
    boot left open when it was over is one more record behind its last. Without `after`, what a spool's numbers say is
    all that tells what is new."""

    boot: Id
    upto: Count
    rows: Annotated[list[Any], Meta(max_length=MOST_ROWS)]  # as in usage.py, each checked by whoever takes them in
    totals: Object  # {namespace: [requests, prompt tokens, cached tokens]}, of the engine itself up to `upto`
    lost: Count  # how many of its records can no longer be read
    after: Count | None = None
    born: Count | None = None  # the checksum of its first record: another journal of that name is known by it
    # What of the customers' rows came with which API key: lists of minute, namespace, model, key or null, requests,
    # prompt tokens, cached tokens, generated tokens. Without it nobody knows.
    keys: Annotated[list[Any], Meta(max_length=MOST_KEY_ROWS)] | None = None


class _OfNamespaces(_At):
    """`gaps`: what another TTL or limit would do, from the engine's reuse gaps: {id: {"prompt_tokens", "ttls",
    "curves": [{"ttl_mode", "limit_share", "hit_ratios", "resident_bytes"}]}}. `diagnostics`: why prompts miss, from a
    gateway's sample of them: {id: what divergence/findings.py says}."""

    boot: Id
    namespaces: Object


class _Levels(_OfNamespaces):
    """How full the engine is now. `pool`: {"capacity_bytes", "used_bytes", "evictable_bytes"}; `namespaces`: {id:
    {"resident_bytes", "host_bytes", "expired_blocks", "evicted_blocks", "quota_blocks", "purged_blocks"}}, whose
    blocks and preemptions count since the boot. Besides, where its sender tells that: `evictions`, a list of {"victim",
    "by", "cause", "blocks", "bytes", "seconds_ago"}: what requests of one namespace took from another, or from itself,
    since the boot, "*" being others; not all each time. `formats`: {id: {KV format: bytes}}, what `resident_bytes` are
    in. `pins`: a list of {"id", "namespace", "state", "is_warming", "wanted_tokens", "resident_tokens",
    "resident_bytes", "problem"}, in place of those told before."""

    pool: Object
    preemptions: Count


class _Canary(_At):
    """What a gateway's isolation probes found since it last told."""

    agents: Object  # {agent: {"rounds": {outcome: count}, "failure": {"at", "why"} | null, "timing": {…} | null}}


class _Applied(_At):
    """It holds that state and will after any restart."""

    generation: Count
    hash: Hash
    engine_boot: Short = None


class _Rejected(_At):
    """It cannot hold that state."""

    generation: Count
    hash: Hash
    reason: Short = None


class _Purged(_At):
    """An engine's proof. Told before the `applied` of the state that asked for it; no proof before it means that
    nothing of it was there."""

    namespace: Id
    epoch: Count
    blocks: Count
    bytes: Count
    engine_boot: Short = None


class _Receipt(_At):
    """What an operation came to. The same operation is done once."""

    operation: Id
    ok: bool
    result: Object


class _Refused(_At):
    """Commands that were not believed."""

    reason: RefusalReason
    count: Count
    what: Short = None


_TOLD: Mapping[ReportKind, type[Struct]] = {
    "about": Struct,
    "usage": _Usage,
    "levels": _Levels,
    "canary": _Canary,
    "gaps": _OfNamespaces,
    "diagnostics": _OfNamespaces,
    "applied": _Applied,
    "rejected": _Rejected,
    "purged": _Purged,
    "receipt": _Receipt,
    "refused": _Refused,
}
