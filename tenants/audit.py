"""The audit trail: who did what, chained so that a changed or missing record shows.

`audited()` is the transaction of every write. Its records are numbered, hashed and written as the last thing before
commit: numbers have no gaps, follow the order of commits (so the trail is also the feed of changes), and the one lock
that puts writers in line is held for milliseconds and always taken last, so it can be part of no deadlock.
"""

import hmac
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.db import connection, transaction
from django.db.models import QuerySet
from django.utils import timezone

from engine_agent.contracts.protocol import canonical_json
from tenants import hooks
from tenants.actor import Actor, ActorKind
from tenants.crypto import previous_signing_keys, purpose_key
from tenants.models import AuditHead, AuditRecord, Organisation

GENESIS = bytes(32)
OPERATORS = frozenset({ActorKind.OPERATOR, ActorKind.OPERATOR_TOKEN, ActorKind.SYSTEM})
PAGE = 2_000
PURPOSE = "audit trail"  # of the key that its chain is made with
RESTORED = "backup.restore"  # the verb of the record that a database brought back from a backup begins with


@dataclass(slots=True)
class Journal:
    """What has been done in this transaction so far."""

    entries: list[AuditRecord] = field(default_factory=list)

    def record(
        self,
        actor: Actor,
        verb: str,
        target: str,
        *,
        organisation: Organisation | None = None,
        before: Any = None,
        after: Any = None,
    ) -> None:
        self.entries.append(
            AuditRecord(
                actor_kind=actor.kind,
                actor_id=actor.id,
                actor_name=actor.name,
                organisation_id=organisation.pk if organisation else None,
                verb=verb,
                target=target,
                before=canonical_json(before).decode(),
                after=canonical_json(after).decode(),
                address=actor.address,
                request_id=actor.request_id,
            )
        )


_journal: ContextVar[Journal | None] = ContextVar("luminet_audit_journal", default=None)


@contextmanager
def audited() -> Iterator[Journal]:
    """One transaction with its records; inside another one, a part of it that may fail alone."""
    outer = _journal.get()
    if outer is not None:
        kept = len(outer.entries)
        try:
            with transaction.atomic():
                yield outer
        except BaseException:
            del outer.entries[kept:]
            raise
        return
    journal = Journal()
    token = _journal.set(journal)
    try:
        with transaction.atomic():
            yield journal
            _write(journal.entries, now=timezone.now())
            _tell(journal.entries)
    finally:
        _journal.reset(token)


def _tell(entries: list[AuditRecord]) -> None:
    """Who waits for news hears of them once they are committed; what goes wrong then is not the writer's matter."""
    if not entries:
        return
    verbs = frozenset(entry.verb for entry in entries)
    for listener in hooks.after_commit:
        transaction.on_commit(partial(listener, verbs), robust=True)


def _write(entries: list[AuditRecord], *, now: datetime) -> None:
    if not entries:
        return
    head = _head_locked()
    for entry in entries:
        entry.seq, entry.at = head.seq + 1, now
        entry.hash = record_hash(bytes(head.hash), entry)
        head.seq, head.hash = entry.seq, entry.hash
    _insert(entries)
    head.save(update_fields=["seq", "hash"])


def _insert(entries: list[AuditRecord]) -> None:
    """As columns in one statement: thousands may come at once, and while they do everybody else waits for the head."""
    fields = AuditRecord._meta.concrete_fields
    kinds = [str(one.db_type(connection)).partition("(")[0] for one in fields]  # what is too long must not be cut off
    names, arrays = ", ".join(f'"{one.column}"' for one in fields), ", ".join(f"%s::{kind}[]" for kind in kinds)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {AuditRecord._meta.db_table} ({names}) SELECT * FROM unnest({arrays})",  # noqa: S608  # ours
            [[getattr(one, field.attname) for one in entries] for field in fields],
        )


def _head_locked() -> AuditHead:
    AuditHead.objects.bulk_create([AuditHead(seq=0, hash=GENESIS)], ignore_conflicts=True)
    return AuditHead.objects.select_for_update().get(pk=1)


def record_hash(previous: bytes, record: AuditRecord, key: bytes | None = None) -> bytes:
    """Keyed: whoever can write the table but has no secret of ours cannot make a chain that fits."""
    key = key or purpose_key("signing_key", PURPOSE)
    return hmac.digest(key, previous + canonical_json(_hashed(record)), "sha256")


class Links:
    """Whether records fit one behind the other: by today's signing key or those before it, and never by an older one
    than the record before: who got hold of an old key cannot write on with it."""

    def __init__(self) -> None:
        self._keys = [purpose_key("signing_key", PURPOSE), *previous_signing_keys(PURPOSE)]

    def fits(self, previous: bytes, record: AuditRecord) -> bool:
        hash_ = bytes(record.hash)
        for place in reversed(range(len(self._keys))):
            if hmac.compare_digest(record_hash(previous, record, self._keys[place]), hash_):
                del self._keys[place + 1 :]
                return True
        return False


def _hashed(record: AuditRecord) -> list[Any]:
    return [
        record.seq,
        record.at.astimezone(UTC).isoformat(timespec="microseconds"),
        record.actor_kind,
        record.actor_id,
        record.actor_name,
        record.organisation_id,
        record.verb,
        record.target,
        record.before,
        record.after,
        record.address,
        record.request_id,
    ]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What looking at the whole trail found. `problem` names the first record that does not fit."""

    records: int
    head: str
    problem: str | None

    @property
    def is_sound(self) -> bool:
        return self.problem is None


Seen = Callable[[int], object]


def _unwatched(records: int) -> None:
    """For who does not care how far it has come."""


def audit_verify(*, remembered_head: str | None = None, seen: Seen = _unwatched) -> Verdict:
    """Walk the chain. `remembered_head` ("seq:hash", kept elsewhere) also shows a tail cut off with its head.
    `seen` is told of every page how many records it had."""
    head = AuditHead.objects.filter(pk=1).first() or AuditHead(seq=0, hash=GENESIS)
    previous, seq, links = GENESIS, 0, Links()
    remembered_seen = remembered_head in (None, head_text(0, GENESIS))
    for record in _records(AuditRecord.objects.filter(seq__lte=head.seq), seen):
        if record.seq <= seq:
            return Verdict(seq, head_text(seq, previous), f"record {record.seq} was inserted: numbers begin at 1")
        if record.seq != seq + 1:
            return Verdict(seq, head_text(seq, previous), _missing(seq + 1, record.seq - 1))
        if not links.fits(previous, record):
            return Verdict(seq, head_text(seq, previous), f"record {record.seq} was changed")
        previous, seq = bytes(record.hash), record.seq
        remembered_seen = remembered_seen or remembered_head == head_text(seq, previous)
    found = head_text(seq, previous)
    if not remembered_seen:
        problem = f"the remembered head {remembered_head} is not part of this trail: its end was cut off or rewritten"
        return Verdict(seq, found, problem)
    return Verdict(seq, found, _head_problem(head, seq, previous))


def _head_problem(head: AuditHead, seq: int, last: bytes) -> str | None:
    if head.seq > seq:
        return _missing(seq + 1, head.seq)
    if not hmac.compare_digest(bytes(head.hash), last):
        return "the head of the trail was changed"
    newest = AuditRecord.objects.order_by("-seq").values_list("seq", flat=True).first() or 0
    now = AuditHead.objects.filter(pk=1).values_list("seq", flat=True).first() or 0  # read after `newest`
    return f"the head of the trail is behind record {newest}" if newest > now else None


def _missing(first: int, last: int) -> str:
    return f"record {first} is missing" if first == last else f"records {first} to {last} are missing"


def head_text(seq: int, last: bytes) -> str:
    return f"{seq}:{last.hex()}"


def trail_length() -> int:
    """How many records there are by what the head says; whether that is so is audit_verify's to say."""
    return AuditHead.objects.filter(pk=1).values_list("seq", flat=True).first() or 0


def record_view(record: AuditRecord) -> dict[str, Any]:
    """A record as people and programs read it."""
    return {
        "seq": record.seq,
        "at": record.at,
        "actor": {"kind": record.actor_kind, "id": record.actor_id, "name": record.actor_name},
        "verb": record.verb,
        "target": record.target,
        "before": json.loads(record.before),
        "after": json.loads(record.after),
        "address": record.address or None,
        "request_id": record.request_id or None,
        "hash": bytes(record.hash).hex(),
    }


def record_seen(record: AuditRecord, actor: Actor) -> dict[str, Any]:
    """As this reader may have it: who of the operators it was, and from where, is theirs alone. So is where the trail
    of others lies."""
    view = record_view(record)
    if not actor.is_operator:
        view |= {"seq": None, "hash": None}
    if not actor.is_operator and record.actor_kind in OPERATORS:
        view |= {"actor": {"kind": "operator", "id": "", "name": "an operator"}, "address": None, "request_id": None}
    return view


def audit_views(rows: "QuerySet[AuditRecord]", *, seen: Seen = _unwatched) -> Iterator[dict[str, Any]]:
    """Records as an operator's export has them, oldest first, never more than a page of them in memory."""
    for record in _records(rows, seen):
        view = record_view(record)
        view["at"] = record.at.astimezone(UTC).isoformat(timespec="microseconds")
        yield {**view, "organisation_id": record.organisation_id}


def audit_lines(rows: "QuerySet[AuditRecord] | None" = None, *, seen: Seen = _unwatched) -> Iterator[str]:
    """The whole trail, or those records of it, as JSON lines, oldest first."""
    for view in audit_views(AuditRecord.objects.all() if rows is None else rows, seen=seen):
        yield json.dumps(view, ensure_ascii=True, sort_keys=True)


def _records(rows: "QuerySet[AuditRecord]", seen: Seen) -> Iterator[AuditRecord]:
    """Oldest first, a page at a time: for one cursor over them the database would first set the whole trail aside."""
    page = list(rows.order_by("seq")[:PAGE])
    while page:
        seen(len(page))
        yield from page
        page = list(rows.filter(seq__gt=page[-1].seq).order_by("seq")[:PAGE])
