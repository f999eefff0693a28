"""The desired snapshot of one group's agents, kept current from the audit trail. Reads only.

The fleet package sends it, and decides where agents apply another revision.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from engine_agent.contracts.protocol import AgentKind, Snapshot, snapshot_build
from tenants.audit import GENESIS
from tenants.consistent_reads import consistent_read
from tenants.models import AuditHead, AuditRecord
from tenants.snapshots import Entries, entries_read

# Verbs that change no snapshot. Skipping them only saves work; an unknown verb counts as a change.
IGNORED_VERBS = frozenset(
    {
        "agent.drain",  # gateways learn of agents from the fleet package
        "agent.enrol",
        "agent.integrity",
        "agent.resume",
        "agent.revoke",
        "agent.rotate-token",
        "agent.update",
        "bounds.set",
        "group.create",
        "group.delete",  # only a group without namespaces can be deleted
        "join-token.create",
        "join-token.revoke",
        "member.invite",
        "member.invite-again",
        "member.join",
        "member.remove",
        "member.update",
        "operator.create",
        "operator-token.create",
        "operator-token.revoke",
        "password.change",
        "password.reset",
        "password.reset-link",
        "quality.override",  # gateways learn of refused formats from the fleet package
        "quality.record",
        "rollout.abort",  # rollouts decide which revision an agent applies; a roll-back also publishes
        "rollout.advance",
        "rollout.begin",
        "rollout.done",
        "rollout.pause",
        "rollout.promote",
        "rollout.resume",
        "rollout.roll-back",
        "rollout.supersede",
    }
)


@dataclass(frozen=True, slots=True)
class Mark:
    """A position in the audit trail. Its hash reveals a different trail after a backup is restored."""

    seq: int
    hash: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Desired:
    """The desired snapshot of a group's agents of one kind, including everything recorded up to `mark`."""

    group_id: int
    kind: AgentKind
    snapshot: Snapshot
    mark: Mark
    ends: Mapping[str, datetime] = field(repr=False)  # by organisation: when the first of its entries expires


def desired_read(group_id: int, kind: AgentKind, *, now: datetime) -> Desired:
    """Build the desired snapshot from the database."""
    # Read the head first: inside another transaction it may be older than the rows, which are then read again.
    with consistent_read():
        mark = _head()
        found = entries_read(group_id, kind, now=now)
    return Desired(group_id, kind, snapshot_build(kind, found.entries, found.policies), mark, found.ends)


def desired_refresh(desired: Desired, *, now: datetime) -> Desired:
    """Return the result of `desired_read`, rereading only the organisations that changed since."""
    with consistent_read():
        head = _head()
        changed = _changed(desired.mark, head)
        if changed is None:
            return desired_read(desired.group_id, desired.kind, now=now)
        stale = changed | {int(one) for one, at in desired.ends.items() if at <= now}
        if not stale:
            return replace(desired, mark=head)
        found = entries_read(desired.group_id, desired.kind, now=now, organisation_ids=stale)
    return _replaced(desired, {str(one) for one in stale}, found, head)


def _head() -> Mark:
    seq, hash_ = AuditHead.objects.filter(pk=1).values_list("seq", "hash").first() or (0, GENESIS)
    return Mark(seq, bytes(hash_))


def _changed(since: Mark, until: Mark) -> set[int] | None:
    """Return the organisations that may have changed, or None if any may have."""
    if since == until:
        return set()
    if not _is_part_of_the_trail(since):
        return None
    news = AuditRecord.objects.filter(seq__gt=since.seq, seq__lte=until.seq).exclude(verb__in=IGNORED_VERBS)
    ids = set(news.values_list("organisation_id", flat=True).distinct())
    concerned = {one for one in ids if one is not None}
    return concerned if len(concerned) == len(ids) else None


def _is_part_of_the_trail(mark: Mark) -> bool:
    if mark.seq == 0:
        return True
    found = AuditRecord.objects.filter(seq=mark.seq).values_list("hash", flat=True).first()
    return found is not None and bytes(found) == mark.hash


def _replaced(desired: Desired, stale: set[str], found: Entries, mark: Mark) -> Desired:
    """Replace the entries of stale organisations.

    Only differing entries are checked and hashed again, which are few.
    """
    before = desired.snapshot
    held = (key for one in stale if one in before.buckets for key in before.buckets[one].members)
    gone = [key for key in held if key not in found.entries]
    put = {key: entry for key, entry in found.entries.items() if before.entries.get(key) != entry}
    policies = {one: policy for one, policy in found.policies.items() if one not in before.policies}
    snapshot = before.replaced(put=put, drop=gone, policies=policies)
    ends = {one: at for one, at in desired.ends.items() if one not in stale} | found.ends
    return replace(desired, snapshot=snapshot, mark=mark, ends=ends)
