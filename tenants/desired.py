"""The snapshot that agents of one group must hold, kept current: the audit trail is its feed of changes. Reads only.

Who is told of it, and what agents hold instead, is the fleet's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from engine_agent.contracts.protocol import AgentKind, Snapshot, snapshot_build
from tenants.audit import GENESIS
from tenants.consistent_reads import consistent_read
from tenants.models import AuditHead, AuditRecord
from tenants.snapshots import Entries, entries_read

# What no snapshot holds. Leaving these out only saves work; a verb that nobody thought of is read as a change.
IGNORED_VERBS = frozenset(
    {
        "agent.drain",  # what agents are, gateways are told by the fleet
        "agent.enrol",
        "agent.integrity",
        "agent.resume",
        "agent.revoke",
        "agent.rotate-token",
        "agent.update",
        "bounds.set",
        "group.create",
        "group.delete",  # only one without namespaces can go
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
        "quality.override",  # what gateways refuse for it, they are told by the fleet
        "quality.record",
        "rollout.abort",  # which revision an agent is to hold, rollouts say; going back is a publish beside it
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
    """A place in the audit trail. The hash tells two trails apart, after a backup was brought back."""

    seq: int
    hash: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Desired:
    """What agents of this group and kind must hold, with everything accounted for that was recorded up to `mark`."""

    group_id: int
    kind: AgentKind
    snapshot: Snapshot
    mark: Mark
    ends: Mapping[str, datetime] = field(repr=False)  # by organisation: when the first of its entries expires


def desired_read(group_id: int, kind: AgentKind, *, now: datetime) -> Desired:
    """From nothing."""
    # The head is read first: inside another transaction it may be older than the rows, which are then read again.
    with consistent_read():
        mark = _head()
        found = entries_read(group_id, kind, now=now)
    return Desired(group_id, kind, snapshot_build(kind, found.entries, found.policies), mark, found.ends)


def desired_refresh(desired: Desired, *, now: datetime) -> Desired:
    """What `desired_read` would find, at the price of the organisations in which something happened since."""
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
    """Organisations of which something may differ; None: of any."""
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
    """Only what differs is checked and hashed anew: of a big organisation, that is little."""
    before = desired.snapshot
    held = (key for one in stale if one in before.buckets for key in before.buckets[one].members)
    gone = [key for key in held if key not in found.entries]
    put = {key: entry for key, entry in found.entries.items() if before.entries.get(key) != entry}
    policies = {one: policy for one, policy in found.policies.items() if one not in before.policies}
    snapshot = before.replaced(put=put, drop=gone, policies=policies)
    ends = {one: at for one, at in desired.ends.items() if one not in stale} | found.ends
    return replace(desired, snapshot=snapshot, mark=mark, ends=ends)
