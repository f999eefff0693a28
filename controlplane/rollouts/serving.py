"""The snapshot that an agent fetches, as bytes, with the assigned hash and generation."""

from django.utils import timezone

from controlplane.fleet.models import Agent
from controlplane.fleet.serving import DesiredSnapshot, SnapshotNotPlanned
from controlplane.rollouts.assigning import PlanningBusy, planning, states_assign
from controlplane.rollouts.desired import recent
from controlplane.rollouts.remembered import Remembered
from engine_agent.contracts.protocol import Snapshot, snapshot_encode

MOST_BODIES = 8  # with ten thousand namespaces each is four megabytes
_bodies: Remembered[str, bytes] = Remembered(MOST_BODIES)


def snapshot_for(agent_id: str) -> DesiredSnapshot:
    """Return an agent's desired snapshot, and plan it first if necessary.

    Raise SnapshotNotPlanned if that is impossible at the moment.
    """
    snapshot = _known(agent_id)
    if snapshot is not None:
        return snapshot
    try:
        with planning():
            return _known(agent_id) or _planned(agent_id)  # another process may have planned it meanwhile
    except PlanningBusy:
        raise SnapshotNotPlanned(agent_id) from None


def _known(agent_id: str) -> DesiredSnapshot | None:
    hash_, generation = _assigned(agent_id)
    body = _known_body(hash_)
    return None if body is None else DesiredSnapshot(hash_, generation, body)


def _planned(agent_id: str) -> DesiredSnapshot:
    snapshot = states_assign(now=timezone.now()).snapshots.get(agent_id)
    hash_, generation = _assigned(agent_id)
    if snapshot is None or snapshot.hash != hash_:  # revoked, or planned again since
        raise SnapshotNotPlanned(agent_id)
    return DesiredSnapshot(hash_, generation, _body(snapshot))


def _assigned(agent_id: str) -> tuple[str, int]:
    living = Agent.objects.filter(pk=agent_id, revoked_at=None)
    assignment = living.values_list("desired_hash", "desired_generation").first()
    if assignment is None:
        raise SnapshotNotPlanned(agent_id)
    return assignment


def _known_body(hash_: str) -> bytes | None:
    """Return the encoded snapshot if it was made here, even if it was never fetched."""
    body = _bodies.get(hash_)
    if body is not None or not hash_:
        return body
    snapshot = recent.get(hash_)
    return None if snapshot is None else _body(snapshot)


def _body(snapshot: Snapshot) -> bytes:
    return _bodies.put(snapshot.hash, snapshot_encode(snapshot))
