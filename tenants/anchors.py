"""Heads of the audit trail stored outside the database, and the check of the trail against them.

The database's owner can cut off the trail's end and reset its head; the rest is still a valid chain. An anchor is a
head with its time, stored elsewhere and keyed, so that it cannot be forged or edited without the key. If a trail lacks
an anchored record, its end was cut off or rewritten, unless the trail records a later restore.
"""

import hmac
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from engine_agent.contracts.protocol import canonical_json
from tenants.audit import GENESIS, RESTORED, Links
from tenants.crypto import previous_signing_keys, purpose_key
from tenants.models import AuditHead, AuditRecord

PURPOSE = "audit anchor"  # of the key for anchors
PAGE = 2_000
CLOCKS_APART = timedelta(seconds=60)  # allowed difference between the clocks of the machines that anchor and restore


@dataclass(frozen=True, slots=True)
class Anchor:
    seq: int
    hash: bytes
    at: datetime


class AnchorDamaged(Exception):
    """The line is not an anchor of this installation."""


@dataclass(frozen=True, slots=True)
class Restore:
    """A restore recorded in the trail, which removed the records after `head`."""

    seq: int
    head: int
    at: datetime

    def explains(self, anchor: Anchor) -> bool:
        return anchor.seq > self.head and anchor.at <= self.at + CLOCKS_APART


@dataclass(frozen=True, slots=True)
class Compared:
    """The result of comparing anchors with the trail. `set_back`: missing anchors that a restore explains."""

    anchors: int
    set_back: int
    problems: tuple[str, ...]


def anchor_now(now: datetime) -> Anchor:
    head = AuditHead.objects.filter(pk=1).first()
    return Anchor(head.seq, bytes(head.hash), now) if head else Anchor(0, GENESIS, now)


def anchor_line(anchor: Anchor) -> str:
    facts = _facts(anchor)
    mac = _mac(purpose_key("signing_key", PURPOSE), anchor).hex()
    return json.dumps({**facts, "mac": mac}, sort_keys=True)


def anchor_read(line: str) -> Anchor:
    """Read an anchor from a line of the file, or of a log with text before it."""
    try:
        fields = json.loads(line[line.index("{") :])
        anchor = Anchor(int(fields["seq"]), bytes.fromhex(fields["hash"]), datetime.fromisoformat(fields["at"]))
        mac = bytes.fromhex(fields["mac"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise AnchorDamaged("is no anchor") from None
    keys = [purpose_key("signing_key", PURPOSE), *previous_signing_keys(PURPOSE)]
    if anchor.at.tzinfo is None or not any(hmac.compare_digest(_mac(key, anchor), mac) for key in keys):
        raise AnchorDamaged("was changed, or is of another installation or signing key")
    return anchor


def anchors_compare(anchors: Iterable[Anchor]) -> Compared:
    """Compare anchors with the trail, in pages: there may be one for every minute of years."""
    restores: list[Restore] | None = None  # looked up only if needed, because it reads the whole trail
    count, set_back, problems = 0, 0, list[str]()
    for page in _pages(anchors):
        hashes = dict(AuditRecord.objects.filter(seq__in=[anchor.seq for anchor in page]).values_list("seq", "hash"))
        for anchor in page:
            count += 1
            problem = _problem(anchor, hashes.get(anchor.seq))
            if problem is None:
                continue
            if restores is None:
                restores = list(_restores())
            if any(restore.explains(anchor) for restore in restores):
                set_back += 1
            else:
                problems.append(problem)
    return Compared(count, set_back, tuple(problems))


def unanchored_since(anchor: Anchor | None) -> datetime | None:
    """Return the time of the first record that no anchor covers, or None if the head is anchored."""
    unanchored = AuditRecord.objects.order_by("seq")
    if anchor is not None:
        unanchored = unanchored.filter(seq__gt=anchor.seq)
    return unanchored.values_list("at", flat=True).first()


def _problem(anchor: Anchor, hash_: bytes | memoryview | None) -> str | None:
    if anchor.seq == 0 or (hash_ is not None and hmac.compare_digest(bytes(hash_), anchor.hash)):
        return None
    at = f"{anchor.at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    if hash_ is not None:
        return f"record {anchor.seq} is not the one that was anchored at {at}"
    newest = AuditRecord.objects.filter(seq__lt=anchor.seq).order_by("-seq").values_list("seq", flat=True).first() or 0
    missing = f"record {anchor.seq} is" if newest + 1 == anchor.seq else f"records {newest + 1} to {anchor.seq} are"
    return f"{missing} missing, which the anchor of {at} has"


def _restores() -> Iterator[Restore]:
    """Yield the restores with a valid link in the chain, which only an owner of the signing key can write."""
    for record in AuditRecord.objects.filter(verb=RESTORED).order_by("seq"):
        previous_hash = AuditRecord.objects.filter(seq=record.seq - 1).values_list("hash", flat=True).first()
        if Links().fits(GENESIS if previous_hash is None else bytes(previous_hash), record):
            details = json.loads(record.after)
            head, _, _ = str(details["head"]).partition(":")
            yield Restore(record.seq, int(head), datetime.fromisoformat(details["began_at"]))


def _pages(anchors: Iterable[Anchor]) -> Iterator[Sequence[Anchor]]:
    page = list[Anchor]()
    for anchor in anchors:
        page.append(anchor)
        if len(page) == PAGE:
            yield page
            page = []
    if page:
        yield page


def _facts(anchor: Anchor) -> dict[str, object]:
    at = anchor.at.astimezone(UTC).isoformat(timespec="microseconds")
    return {"seq": anchor.seq, "hash": anchor.hash.hex(), "at": at}


def _mac(key: bytes, anchor: Anchor) -> bytes:
    return hmac.digest(key, canonical_json(_facts(anchor)), "sha256")
