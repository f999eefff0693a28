"""Commands to agents and reports from them: the messages besides snapshots.

A command is for one agent, has the generation of its desired state, and expires. A batch contains numbered reports,
which are spooled until they are acknowledged, and at most one heartbeat, which a newer one makes obsolete. `sealing.py`
seals and signs commands; the reader of a report interprets it.
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
COMMAND_TASK = "agent.command"  # the Celery task that receives commands: one argument, the sealed text
MOST_COMMAND_CHARACTERS = 128 * 1024  # a change of 64 KiB, sealed and in base64 twice
MOST_BATCH_BYTES = 1024 * 1024
MOST_REPORTS = 500  # in one batch
COMMAND_SECONDS = 30.0  # validity of a command; the sweep sends another

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
    """A command to one agent. `generation` is that of the desired state.

    An `apply` with a lower generation than the applied one is older and refused.

    `apply`: {"base": hash | null, "target": hash, "change": base64 of an encoded change | null}; null: pull the
    snapshot.
    `operation`: {"operation": id, "deed": one of OPERATED, "arguments": {…}, "deadline": unix seconds}.
    `wake`: {}; send a heartbeat and handle the answer.
    """

    agent: Id
    id: Id  # of this message: a repeated id is a replay
    deed: Deed
    generation: Count
    issued_at: Instant  # by the control plane's clock
    expires_at: Instant
    body: Mapping[str, Any]

    def __repr__(self) -> str:
        """Omit the body, which contains namespaces' keys."""
        return f"Command(agent={self.agent!r}, id={self.id!r}, deed={self.deed!r}, generation={self.generation})"


def command_encode(command: Command) -> bytes:
    return canonical_json({"version": VERSION, **msgspec.structs.asdict(command), "body": dict(command.body)})


def command_decode(message: bytes) -> Command:
    """Decode a command from opened bytes. Raise MalformedMessage with the wrong field."""
    return _message(message, Command)


# Reports


class Report(Struct, frozen=True, forbid_unknown_fields=True):
    """One fact, reported once. The content of `told` for each kind is defined below."""

    kind: ReportKind
    told: Mapping[str, Any]


class Batch(Struct, frozen=True, forbid_unknown_fields=True):
    """A batch of reports. `spool` is the id of the spool that numbers them; `first` is the first number, from 1."""

    sent_at: Instant  # by the agent's clock, so that the control plane sees its error
    spool: Id
    first: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    reports: Annotated[Sequence[Report], Meta(max_length=MOST_REPORTS)]
    heartbeat: Mapping[str, Any] | None


def batch_encode(batch: Batch) -> bytes:
    reports = [{"kind": report.kind, "told": dict(report.told)} for report in batch.reports]
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
    for index, report in enumerate(batch.reports):
        typed(report.told, _TOLD[report.kind], f"reports.{index}.told")
    if batch.heartbeat is not None:
        heartbeat_check(batch.heartbeat)
    return batch


def _message(message: bytes, type_: type[T]) -> T:
    document = _object(message)
    if document.pop("version", None) != VERSION:  # first: another version has other fields
        raise MalformedMessage("version", f"must be {VERSION}")
    return typed(document, type_)


def _object(message: bytes) -> dict[str, Any]:
    """Parse the message with msgspec, or with Python's reader if msgspec fails.

    A NaN or lone surrogate is then refused in its field, or with its row alone.
    """
    for decode in (msgspec.json.decode, _python_read):
        try:
            document = decode(message)
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict):
            return document
        raise MalformedMessage("message", "must be an object")
    raise MalformedMessage("message", "is not JSON in UTF-8, or nested too deeply")


def _python_read(message: bytes) -> Any:
    return json.loads(message.decode())


# A heartbeat. `engine.hash` is the hash that the engine itself reports; `counters` are cumulative since `engine.boot`,
# for the scopes that the last answer named in `watch`: "fleet", "org/<id>" or "ns/<id>".
EngineState = Literal["ready", "starting", "down", "draining", "failed"]
# The counters of a scope. `ttft_buckets` are cumulative counts of answers no slower than TTFT_SECONDS[i], then all.
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


def heartbeat_check(heartbeat: Any) -> None:
    typed(heartbeat, _Heartbeat, "heartbeat")


# Content of reports by kind. Unknown members are ignored. `about` is checked where it is used.


class _At(Struct):
    at: Instant


class _Usage(Struct):
    """The usage in records of one boot after number `after`, up to `upto`.

    Each request that was open when the boot ended counts as one more record after the last. Without `after`, only the
    spool's numbers show which usage is new.
    """

    boot: Id
    upto: Count
    # As in usage.py; the control plane checks each row when it stores it.
    rows: Annotated[list[Any], Meta(max_length=MOST_ROWS)]
    totals: Object  # {namespace: [requests, prompt tokens, cached tokens]}, the engine's own totals up to `upto`
    lost: Count  # number of its records that can no longer be read
    after: Count | None = None
    born: Count | None = None  # checksum of the boot's first record, which reveals another journal of the same name
    # The customers' rows by API key: lists of minute, namespace, model, key or null, requests, prompt tokens, cached
    # tokens, generated tokens. None: the sender does not report keys.
    keys: Annotated[list[Any], Meta(max_length=MOST_KEY_ROWS)] | None = None


class _OfNamespaces(_At):
    """Data by namespace.

    `gaps`: forecasts for other TTLs or limits, from the engine's reuse gaps: {id: {"prompt_tokens", "ttls", "curves":
    [{"ttl_mode", "limit_share", "hit_ratios", "resident_bytes"}]}}. `diagnostics`: why prompts miss, from a gateway's
    sample: {id: the result of divergence/findings.py}.
    """

    boot: Id
    namespaces: Object


class _Levels(_OfNamespaces):
    """The fill levels of the engine's cache.

    `pool`: {"capacity_bytes", "used_bytes", "evictable_bytes"}. `namespaces`: {id: {"resident_bytes", "host_bytes",
    "expired_blocks", "evicted_blocks", "quota_blocks", "purged_blocks"}}. Blocks and preemptions count since the boot.

    Optional members: `evictions`, a list of {"victim", "by", "cause", "blocks", "bytes", "seconds_ago"}: blocks that
    requests of one namespace evicted from another or from itself since the boot, "*" for other namespaces; a report
    need not list all. `formats`: {id: {KV format: bytes}}, the formats of `resident_bytes`. `pins`: a list of {"id",
    "namespace", "state", "is_warming", "wanted_tokens", "resident_tokens", "resident_bytes", "problem"}, which replaces
    the previous list.
    """

    pool: Object
    preemptions: Count


class _Canary(_At):
    """Results of a gateway's isolation probes since its last report."""

    agents: Object  # {agent: {"rounds": {outcome: count}, "failure": {"at", "why"} | null, "timing": {…} | null}}


class _Applied(_At):
    """The agent has applied that state and keeps it across restarts."""

    generation: Count
    hash: Hash
    engine_boot: Short = None


class _Rejected(_At):
    """The agent cannot apply that state."""

    generation: Count
    hash: Hash
    reason: Short = None


class _Purged(_At):
    """An engine's proof of a purge.

    It is reported before the `applied` of the state that requested the purge. If there is no proof before it, the
    engine had no such blocks.
    """

    namespace: Id
    epoch: Count
    blocks: Count
    bytes: Count
    engine_boot: Short = None


class _Receipt(_At):
    """An operation's result. Each operation runs once."""

    operation: Id
    ok: bool
    result: Object


class _Refused(_At):
    """Refused commands."""

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
