"""The audit trail: who did what, chained so that a changed or missing record shows.

`audited()` is the transaction of every write. It numbers, hashes and writes its records just before commit: numbers
have no gaps and follow the order of commits, so the trail is also the feed of changes. The one lock that serialises
writers is held for milliseconds and always taken last, so it cannot cause a deadlock.
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
PURPOSE = "audit trail"  # of the key for the chain
RESTORED = "backup.restore"  # verb of the first record after a database is restored from a backup


@dataclass(slots=True)
class Journal:
    """The records of this transaction so far."""

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
    """Run a transaction and write its audit records. Inside another one, run a part that may fail alone."""
    outer = _journal.get()
    if outer is not None:
        entry_count = len(outer.entries)
        try:
            with transaction.atomic():
                yield outer
        except BaseException:
            del outer.entries[entry_count:]
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
    """Notify listeners after the commit. Their errors do not affect the writer."""
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
    """Insert the records as columns in one statement: there may be thousands, and other writers wait for the head."""
    fields = AuditRecord._meta.concrete_fields
    # Without the length, so that PostgreSQL raises an error for long values and does not cut them.
    kinds = [str(field.db_type(connection)).partition("(")[0] for field in fields]
    names, arrays = ", ".join(f'"{field.column}"' for field in fields), ", ".join(f"%s::{kind}[]" for kind in kinds)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {AuditRecord._meta.db_table} ({names}) SELECT * FROM unnest({arrays})",  # noqa: S608  # ours
            [[getattr(record, field.attname) for record in entries] for field in fields],
        )


def _head_locked() -> AuditHead:
    AuditHead.objects.bulk_create([AuditHead(seq=0, hash=GENESIS)], ignore_conflicts=True)
    return AuditHead.objects.select_for_update().get(pk=1)


def record_hash(previous: bytes, record: AuditRecord, key: bytes | None = None) -> bytes:
    """Return a record's keyed hash: access to the table without the key does not suffice to forge a chain."""
    key = key or purpose_key("signing_key", PURPOSE)
    return hmac.digest(key, previous + canonical_json(_hashed(record)), "sha256")


class Links:
    """The check that records form a chain under the current signing key or earlier ones.

    A record may not use an older key than the record before it: an old key that leaked cannot extend the chain.
    """

    def __init__(self) -> None:
        self._keys = [purpose_key("signing_key", PURPOSE), *previous_signing_keys(PURPOSE)]

    def fits(self, previous: bytes, record: AuditRecord) -> bool:
        hash_ = bytes(record.hash)
        for index in reversed(range(len(self._keys))):
            if hmac.compare_digest(record_hash(previous, record, self._keys[index]), hash_):
                del self._keys[index + 1 :]
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
    """The result of checking the whole trail. `problem` names the first record that does not fit."""

    records: int
    head: str
    problem: str | None

    @property
    def is_sound(self) -> bool:
        return self.problem is None


Seen = Callable[[int], object]


def _unwatched(records: int) -> None:
    """Ignore progress."""


def audit_verify(*, remembered_head: str | None = None, seen: Seen = _unwatched) -> Verdict:
    """Check the chain of records.

    `remembered_head` ("seq:hash", stored elsewhere) also reveals that the trail's end was cut off and its head reset.
    `seen` is called with the number of records of each page.
    """
    head = AuditHead.objects.filter(pk=1).first() or AuditHead(seq=0, hash=GENESIS)
    previous, seq, links = GENESIS, 0, Links()
    has_remembered_head = remembered_head in (None, head_text(0, GENESIS))
    for record in _records(AuditRecord.objects.filter(seq__lte=head.seq), seen):
        if record.seq <= seq:
            return Verdict(seq, head_text(seq, previous), f"record {record.seq} was inserted: numbers begin at 1")
        if record.seq != seq + 1:
            return Verdict(seq, head_text(seq, previous), _missing(seq + 1, record.seq - 1))
        if not links.fits(previous, record):
            return Verdict(seq, head_text(seq, previous), f"record {record.seq} was changed")
        previous, seq = bytes(record.hash), record.seq
        has_remembered_head = has_remembered_head or remembered_head == head_text(seq, previous)
    actual_head = head_text(seq, previous)
    if not has_remembered_head:
        problem = f"the remembered head {remembered_head} is not part of this trail: its end was cut off or rewritten"
        return Verdict(seq, actual_head, problem)
    return Verdict(seq, actual_head, _head_problem(head, seq, previous))


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
    """Return the number of records according to the head; only audit_verify checks that it is true."""
    return AuditHead.objects.filter(pk=1).values_list("seq", flat=True).first() or 0


def record_view(record: AuditRecord) -> dict[str, Any]:
    """Return a record as JSON values."""
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
    """Return a record as this reader may see it.

    Only operators see which operator acted and from where, and the record's position in the trail, which would reveal
    the activity of others.
    """
    view = record_view(record)
    if not actor.is_operator:
        view |= {"seq": None, "hash": None}
    if not actor.is_operator and record.actor_kind in OPERATORS:
        view |= {"actor": {"kind": "operator", "id": "", "name": "an operator"}, "address": None, "request_id": None}
    return view


def audit_views(rows: "QuerySet[AuditRecord]", *, seen: Seen = _unwatched) -> Iterator[dict[str, Any]]:
    """Yield records for an operator's export, oldest first, with at most a page in memory."""
    for record in _records(rows, seen):
        view = record_view(record)
        view["at"] = record.at.astimezone(UTC).isoformat(timespec="microseconds")
        yield {**view, "organisation_id": record.organisation_id}


def audit_lines(rows: "QuerySet[AuditRecord] | None" = None, *, seen: Seen = _unwatched) -> Iterator[str]:
    """Yield the whole trail, or the given records, as JSON lines, oldest first."""
    for view in audit_views(AuditRecord.objects.all() if rows is None else rows, seen=seen):
        yield json.dumps(view, ensure_ascii=True, sort_keys=True)


def _records(rows: "QuerySet[AuditRecord]", seen: Seen) -> Iterator[AuditRecord]:
    """Yield records oldest first, in pages: for one cursor the database would first materialise the whole trail."""
    page = list(rows.order_by("seq")[:PAGE])
    while page:
        seen(len(page))
        yield from page
        page = list(rows.filter(seq__gt=page[-1].seq).order_by("seq")[:PAGE])
