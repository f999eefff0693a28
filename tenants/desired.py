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
        entries = entries_read(group_id, kind, now=now)
    return Desired(group_id, kind, snapshot_build(kind, entries.entries, entries.policies), mark, entries.ends)


def desired_refresh(desired: Desired, *, now: datetime) -> Desired:
    """Return the result of `desired_read`, rereading only the organisations that changed since."""
    with consistent_read():
        head = _head()
        changed = _changed(desired.mark, head)
        if changed is None:
            return desired_read(desired.group_id, desired.kind, now=now)
        stale = changed | {int(organisation_id) for organisation_id, at in desired.ends.items() if at <= now}
        if not stale:
            return replace(desired, mark=head)
        fresh = entries_read(desired.group_id, desired.kind, now=now, organisation_ids=stale)
    return _replaced(desired, {str(organisation_id) for organisation_id in stale}, fresh, head)


def _head() -> Mark:
    seq, hash_ = AuditHead.objects.filter(pk=1).values_list("seq", "hash").first() or (0, GENESIS)
    return Mark(seq, bytes(hash_))


def _changed(since: Mark, until: Mark) -> set[int] | None:
    """Return the organisations that may have changed, or None if any may have."""
    if since == until:
        return set()
    if not _is_part_of_the_trail(since):
        return None
    new_records = AuditRecord.objects.filter(seq__gt=since.seq, seq__lte=until.seq).exclude(verb__in=IGNORED_VERBS)
    ids = set(new_records.values_list("organisation_id", flat=True).distinct())
    organisation_ids = {organisation_id for organisation_id in ids if organisation_id is not None}
    return organisation_ids if len(organisation_ids) == len(ids) else None


def _is_part_of_the_trail(mark: Mark) -> bool:
    if mark.seq == 0:
        return True
    stored_hash = AuditRecord.objects.filter(seq=mark.seq).values_list("hash", flat=True).first()
    return stored_hash is not None and bytes(stored_hash) == mark.hash


def _replaced(desired: Desired, stale: set[str], fresh: Entries, mark: Mark) -> Desired:
    """Replace the entries of stale organisations.

    Only differing entries are checked and hashed again, which are few.
    """
    previous = desired.snapshot
    stale_keys = (
        key
        for organisation_id in stale
        if organisation_id in previous.buckets
        for key in previous.buckets[organisation_id].members
    )
    removed_keys = [key for key in stale_keys if key not in fresh.entries]
    put = {key: entry for key, entry in fresh.entries.items() if previous.entries.get(key) != entry}
    policies = {
        policy_hash: policy for policy_hash, policy in fresh.policies.items() if policy_hash not in previous.policies
    }
    snapshot = previous.replaced(put=put, drop=removed_keys, policies=policies)
    ends = {
        organisation_id: at for organisation_id, at in desired.ends.items() if organisation_id not in stale
    } | fresh.ends
    return replace(desired, snapshot=snapshot, mark=mark, ends=ends)
