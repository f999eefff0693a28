"""The desired state of each agent, as a snapshot.

It is the group's, with older revisions where a rollout has not reached the agent and, for gateways, the engines behind
them. Reads only. Snapshots are cached for a while, to compute the changes between two of them.
"""

import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Q

from controlplane.fleet.keys import identity_secret
from controlplane.fleet.models import Agent
from controlplane.fleet.quality import Results, refused_formats, results_read, served_by
from controlplane.rollouts.canaries import canary_entries
from controlplane.rollouts.entries import EngineView, Refused, TrialView, gateway_entries, gateways_living
from controlplane.rollouts.models import Rollout
from controlplane.rollouts.reach import NOTHING, Held, RolloutView, held_by
from controlplane.rollouts.remembered import Remembered
from controlplane.rollouts.spec import steps_read
from engine_agent.contracts.protocol import AgentKind, Snapshot
from tenants.desired import Desired, Mark, desired_read, desired_refresh
from tenants.models import PolicyRevision
from tenants.policy import Values
from tenants.snapshots import Older, entries_held

MOST_SNAPSHOTS = 32  # with ten thousand namespaces each takes about a megabyte beyond what they share
FOLLOWING = 4  # successive versions to cache, at least, of each desired snapshot


@dataclass(frozen=True, slots=True)
class Holder:
    """The attributes of an agent that decide its desired state."""

    agent_id: str
    kind: AgentKind
    group_id: int


@dataclass(frozen=True, slots=True)
class OpenRollout:
    """An open rollout, as far as snapshots depend on it."""

    id: str
    level_id: int
    view: RolloutView
    share: float | None
    operation_id: str | None


@dataclass(frozen=True, slots=True)
class _Fleet:
    """The part of a gateway's snapshot about the engines of its group."""

    engines: Sequence[EngineView]
    refused: Refused = field(default_factory=dict)


recent: Remembered[str, Snapshot] = Remembered(MOST_SNAPSHOTS)
_variants: Remembered[tuple[Mark, int, str, Held], Snapshot] = Remembered(MOST_SNAPSHOTS)
_probed: Remembered[str, Snapshot] = Remembered(MOST_SNAPSHOTS)  # by the hash of the snapshot without canaries
_policies: Remembered[tuple[int, int], Values] = Remembered(256)  # a revision never changes
_current: dict[tuple[int, AgentKind], Desired] = {}
_refreshing = threading.RLock()


def snapshots_wanted(
    holders: Iterable[Holder], rollouts: Sequence[OpenRollout], *, now: datetime
) -> dict[str, Snapshot]:
    """Return the snapshots by agent; agents with the same desired state share one.

    Everything is read within the caller's consistent read.
    """
    agents_by_state: dict[tuple[int, AgentKind, Held], list[str]] = defaultdict(list)
    views = [rollout.view for rollout in rollouts]
    for holder in holders:
        agents_by_state[holder.group_id, holder.kind, held_by(holder.agent_id, holder.kind, views)].append(
            holder.agent_id
        )
    recent.make_room(FOLLOWING * len(agents_by_state))
    _forget_others({(group_id, kind) for group_id, kind, _ in agents_by_state})
    snapshots: dict[str, Snapshot] = {}
    for (group_id, kind, held_revisions), agents in agents_by_state.items():
        snapshot = snapshot_wanted(group_id, kind, held_revisions, rollouts, now=now)
        snapshots |= dict.fromkeys(agents, snapshot)
    return snapshots


def snapshot_wanted(
    group_id: int, kind: AgentKind, held_revisions: Held, rollouts: Sequence[OpenRollout], *, now: datetime
) -> Snapshot:
    current = _refreshed(group_id, kind, now=now)
    snapshot = current.snapshot if held_revisions == NOTHING else _variant(current, held_revisions, rollouts)
    if _is_probed(group_id):
        snapshot = _with_canaries(snapshot)
    if kind == "gateway":
        snapshot = _with_engines(snapshot, group_id, rollouts, now=now)
    return recent.put(snapshot.hash, recent.get(snapshot.hash) or snapshot)


def rollouts_open() -> list[OpenRollout]:
    """Return the open canaries, with the newest revisions of their levels.

    Other rollouts hold no agent back, and one absent agent may keep any number of them open.
    """
    canaries = Rollout.objects.filter(state__in=Rollout.OPEN, strategy="canary")
    rows: Any = canaries.select_related("level").defer("evidence")
    return [_open_rollout(row) for row in rows.order_by("created_at")]


def _open_rollout(row: Rollout) -> OpenRollout:
    level = row.level
    view = RolloutView(
        level=(level.organisation_id, level.namespace_id),
        revision=row.revision,
        newest_revision=level.revision,
        base_revision=row.base_revision,
        reached=frozenset(row.reached),
        held_revisions=row.held_revisions,
        is_for_everybody=row.step >= len(row.steps) - 1,
    )
    step = steps_read(row.steps)[row.step]
    share = step / 100 if isinstance(step, int) else None
    operation = None if row.operation_id is None else str(row.operation_id)
    return OpenRollout(str(row.pk), level.pk, view, share, operation)


def _refreshed(group_id: int, kind: AgentKind, *, now: datetime) -> Desired:
    with _refreshing:
        known = _current.get((group_id, kind))
        desired = desired_read(group_id, kind, now=now) if known is None else desired_refresh(known, now=now)
        _current[group_id, kind] = desired
        return desired


def _forget_others(used: Collection[tuple[int, AgentKind]]) -> None:
    """Drop the cached state of groups that no longer have such agents."""
    with _refreshing:
        for unused in _current.keys() - used:
            del _current[unused]


# Older revisions


def _variant(current: Desired, held_revisions: Held, rollouts: Sequence[OpenRollout]) -> Snapshot:
    """Return the snapshot with older revisions of some levels.

    The mark is part of the key, because policies may move between levels without a change in the snapshot.
    """
    key = (current.mark, current.group_id, current.snapshot.hash, held_revisions)
    known = _variants.get(key)
    if known is not None:
        return known
    older = _older(held_revisions, rollouts)
    older_entries = entries_held(current.group_id, older, current.snapshot.entries)
    return _variants.put(key, current.snapshot.replaced(put=older_entries.entries, policies=older_entries.policies))


def _older(held_revisions: Held, rollouts: Sequence[OpenRollout]) -> dict[tuple[int | None, int | None], Older]:
    levels = {rollout.view.level: rollout.level_id for rollout in rollouts}
    policies = _policies_of({(levels[level], number) for level, number in held_revisions})
    return {level: Older(number, policies[levels[level], number]) for level, number in held_revisions}


def _policies_of(revisions: Collection[tuple[int, int]]) -> dict[tuple[int, int], Values]:
    """Return the policies of revisions, by level and number. Revision 0 is empty."""
    policies: dict[tuple[int, int], Values] = {}
    query = Q()
    for level_id, number in revisions:
        known = {} if number == 0 else _policies.get((level_id, number))
        if known is None:
            query |= Q(level_id=level_id, number=number)
        else:
            policies[level_id, number] = known
    if query:
        for level_id, number, policy in PolicyRevision.objects.filter(query).values_list("level", "number", "policy"):
            policies[level_id, number] = _policies.put((level_id, number), policy)
    return policies


# Tenants of the isolation canary


def _is_probed(group_id: int) -> bool:
    """Return whether the group has gateways, which send the probes."""
    return Agent.objects.filter(group_id=group_id, kind="gateway", revoked_at=None).exists()


def _with_canaries(snapshot: Snapshot) -> Snapshot:
    known = _probed.get(snapshot.hash)
    if known is not None:
        return known
    entries, policies = canary_entries(snapshot)
    return _probed.put(snapshot.hash, snapshot.replaced(put=entries, policies=policies) if entries else snapshot)


# Entries for gateways only


def _with_engines(snapshot: Snapshot, group_id: int, rollouts: Sequence[OpenRollout], *, now: datetime) -> Snapshot:
    fleet = _fleet_of(group_id)
    all_trials = (_trial(rollout, snapshot) for rollout in rollouts if rollout.view.holds_back and rollout.view.reached)
    trials = [trial for trial in all_trials if trial is not None]
    extra = gateway_entries(fleet.engines, fleet.refused, trials, _gateways_of(group_id, now=now))
    return snapshot.replaced(put=extra) if extra else snapshot


def _gateways_of(group_id: int, *, now: datetime) -> list[str]:
    """Return the group's gateways that admit requests: all but draining ones."""
    gateways = Agent.objects.filter(group_id=group_id, kind="gateway", revoked_at=None, is_draining=False)
    return gateways_living(dict(gateways.values_list("pk", "last_seen_at")), now=now)


def _fleet_of(group_id: int) -> _Fleet:
    engines = Agent.objects.filter(group_id=group_id, kind="engine", revoked_at=None).order_by("pk")
    rows: Any = list(engines.values_list("pk", "key_number", "is_draining", "about"))
    served = [served_model for agent, _, _, about in rows for served_model in served_by(agent, about)]
    if not served:
        return _Fleet([_engine(row, Results()) for row in rows])
    results = results_read({served_model.model for served_model in served})
    return _Fleet([_engine(row, results) for row in rows], refused_formats(served, results))


def _engine(row: tuple[str, int, bool, Mapping[str, Any]], results: Results) -> EngineView:
    """Return an engine, with the formats of each model that it supports and that may carry traffic."""
    agent_id, key_number, is_draining, about = row
    allowed = {served_model.model: results.allowed(served_model) for served_model in served_by(agent_id, about)}
    return EngineView(
        agent_id,
        about.get("address") or "",
        about.get("backend") or "",
        [{**model, "kv_dtypes": list(allowed[model["name"]])} for model in about.get("models", ())],
        identity_secret(agent_id, key_number),
        is_draining,
    )


def _trial(rollout: OpenRollout, snapshot: Snapshot) -> TrialView | None:
    """Return a rollout for gateways, or None if this snapshot serves none of its namespaces."""
    organisation, namespace = rollout.view.level
    if organisation is None and namespace is None:
        return TrialView(rollout.id, None, None, rollout.view.reached, rollout.share)
    namespace_ids = _served(snapshot, organisation, namespace)
    if not namespace_ids:
        return None
    owner = snapshot.entries[f"ns/{namespace_ids[0]}"]["org"]
    return TrialView(rollout.id, owner, namespace_ids, rollout.view.reached, rollout.share)


def _served(snapshot: Snapshot, organisation: int | None, namespace: int | None) -> list[str]:
    if namespace is not None:
        return [str(namespace)] if f"ns/{namespace}" in snapshot.entries else []
    bucket = snapshot.buckets.get(str(organisation))
    return [key.removeprefix("ns/") for key in bucket.members if key.startswith("ns/")] if bucket else []
