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
    alike: dict[tuple[int, AgentKind, Held], list[str]] = defaultdict(list)
    views = [one.view for one in rollouts]
    for one in holders:
        alike[one.group_id, one.kind, held_by(one.agent_id, one.kind, views)].append(one.agent_id)
    recent.make_room(FOLLOWING * len(alike))
    _forget_others({(group_id, kind) for group_id, kind, _ in alike})
    wanted: dict[str, Snapshot] = {}
    for (group_id, kind, held), agents in alike.items():
        snapshot = snapshot_wanted(group_id, kind, held, rollouts, now=now)
        wanted |= dict.fromkeys(agents, snapshot)
    return wanted


def snapshot_wanted(
    group_id: int, kind: AgentKind, held: Held, rollouts: Sequence[OpenRollout], *, now: datetime
) -> Snapshot:
    current = _refreshed(group_id, kind, now=now)
    found = current.snapshot if held == NOTHING else _variant(current, held, rollouts)
    if _is_probed(group_id):
        found = _with_canaries(found)
    if kind == "gateway":
        found = _with_engines(found, group_id, rollouts, now=now)
    return recent.put(found.hash, recent.get(found.hash) or found)


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
        found = desired_read(group_id, kind, now=now) if known is None else desired_refresh(known, now=now)
        _current[group_id, kind] = found
        return found


def _forget_others(used: Collection[tuple[int, AgentKind]]) -> None:
    """Drop the cached state of groups that no longer have such agents."""
    with _refreshing:
        for unused in _current.keys() - used:
            del _current[unused]


# Older revisions


def _variant(current: Desired, held: Held, rollouts: Sequence[OpenRollout]) -> Snapshot:
    """Return the snapshot with older revisions of some levels.

    The mark is part of the key, because policies may move between levels without a change in the snapshot.
    """
    key = (current.mark, current.group_id, current.snapshot.hash, held)
    known = _variants.get(key)
    if known is not None:
        return known
    older = _older(held, rollouts)
    found = entries_held(current.group_id, older, current.snapshot.entries)
    return _variants.put(key, current.snapshot.replaced(put=found.entries, policies=found.policies))


def _older(held: Held, rollouts: Sequence[OpenRollout]) -> dict[tuple[int | None, int | None], Older]:
    levels = {one.view.level: one.level_id for one in rollouts}
    policies = _policies_of({(levels[level], number) for level, number in held})
    return {level: Older(number, policies[levels[level], number]) for level, number in held}


def _policies_of(wanted: Collection[tuple[int, int]]) -> dict[tuple[int, int], Values]:
    """Return the policies of revisions, by level and number. Revision 0 is empty."""
    found: dict[tuple[int, int], Values] = {}
    asked = Q()
    for level_id, number in wanted:
        known = {} if number == 0 else _policies.get((level_id, number))
        if known is None:
            asked |= Q(level_id=level_id, number=number)
        else:
            found[level_id, number] = known
    if asked:
        for level_id, number, policy in PolicyRevision.objects.filter(asked).values_list("level", "number", "policy"):
            found[level_id, number] = _policies.put((level_id, number), policy)
    return found


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
    trials = (_trial(one, snapshot) for one in rollouts if one.view.holds_back and one.view.reached)
    there = [one for one in trials if one is not None]
    extra = gateway_entries(fleet.engines, fleet.refused, there, _gateways_of(group_id, now=now))
    return snapshot.replaced(put=extra) if extra else snapshot


def _gateways_of(group_id: int, *, now: datetime) -> list[str]:
    """Return the group's gateways that admit requests: all but draining ones."""
    gateways = Agent.objects.filter(group_id=group_id, kind="gateway", revoked_at=None, is_draining=False)
    return gateways_living(dict(gateways.values_list("pk", "last_seen_at")), now=now)


def _fleet_of(group_id: int) -> _Fleet:
    engines = Agent.objects.filter(group_id=group_id, kind="engine", revoked_at=None).order_by("pk")
    rows: Any = list(engines.values_list("pk", "key_number", "is_draining", "about"))
    served = [one for agent, _, _, about in rows for one in served_by(agent, about)]
    if not served:
        return _Fleet([_engine(row, Results()) for row in rows])
    results = results_read({one.model for one in served})
    return _Fleet([_engine(row, results) for row in rows], refused_formats(served, results))


def _engine(row: tuple[str, int, bool, Mapping[str, Any]], results: Results) -> EngineView:
    """Return an engine, with the formats of each model that it supports and that may carry traffic."""
    agent_id, key_number, is_draining, about = row
    allowed = {one.model: results.allowed(one) for one in served_by(agent_id, about)}
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
    ours = _served(snapshot, organisation, namespace)
    if not ours:
        return None
    owner = snapshot.entries[f"ns/{ours[0]}"]["org"]
    return TrialView(rollout.id, owner, ours, rollout.view.reached, rollout.share)


def _served(snapshot: Snapshot, organisation: int | None, namespace: int | None) -> list[str]:
    if namespace is not None:
        return [str(namespace)] if f"ns/{namespace}" in snapshot.entries else []
    bucket = snapshot.buckets.get(str(organisation))
    return [key.removeprefix("ns/") for key in bucket.members if key.startswith("ns/")] if bucket else []
