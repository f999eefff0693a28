"""Reads of the tenants domain that need more than one lookup. They write nothing."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain

from tenants.actor import Actor
from tenants.bounds import bounds_of
from tenants.drafts import Draft, draft_contradictions, draft_out_of_bounds, promises_more
from tenants.errors import FieldProblem
from tenants.levels import FLEET, Place, levels_of, namespaces_below
from tenants.models import PolicyLevel, PolicyRevision
from tenants.policy import (
    Below,
    Change,
    Effective,
    Policy,
    Values,
    changes_between,
    effective,
    effective_hash,
    effective_values,
)
from tenants.preview import (
    AgentPool,
    PreviewWarning,
    ResolvedShare,
    ShareBand,
    effects_of,
    shares_banded,
    shares_resolved,
    warnings_for,
)
from tenants.services.shares import group_holdings, own_holdings, shares_problem
from tenants.shares import PROMISED_AT_MOST, Promise, heaviest_promise, holdings

NAMED_AT_MOST = 20


@dataclass(frozen=True, slots=True)
class InForce:
    effective: Effective
    hash: str
    levels: tuple[PolicyLevel, ...]


def policy_in_force(policy_scope: Place, model: str | None = None) -> InForce:
    levels = tuple(levels_of(policy_scope))
    chain = [level.policy for level in levels]
    return InForce(effective(chain, model), effective_hash(chain, model), levels)


def policies_before(revisions: Sequence[PolicyRevision]) -> dict[tuple[int, int], Values]:
    """Return the policies of these revisions and of the one before each, by level and number."""
    policies: dict[tuple[int, int], Values] = {(row.level_id, row.number): row.policy for row in revisions}
    missing = {(row.level_id, row.number - 1) for row in revisions} - policies.keys()
    if missing:
        levels, numbers = map(set, zip(*missing, strict=True))
        for row in PolicyRevision.objects.filter(level__in=levels, number__in=numbers):
            policies[row.level_id, row.number] = row.policy
    return policies


@dataclass(frozen=True, slots=True)
class GroupShare:
    """The share that would be reserved of each pool of one group, and the maximum."""

    promised: float
    at_most: float
    is_too_much: bool


@dataclass(frozen=True, slots=True)
class Preview:
    base_revision: int
    changes: tuple[Change, ...]
    effective_hash: str
    namespaces: int
    namespaces_named: tuple[str, ...]
    agents: tuple[str, ...]  # only for operators, as are `shares`
    shares: tuple[ResolvedShare, ...]
    bands: tuple[ShareBand, ...]  # only for members
    is_served: bool
    group_share: GroupShare | None
    effects: tuple[str, ...]
    warnings: tuple[PreviewWarning, ...]
    problems: tuple[FieldProblem, ...]


def policy_preview(*, actor: Actor, place: Place, policy: Policy, pools: Sequence[AgentPool] = ()) -> Preview:
    """Return the effects of `policy_publish` with the same policy, including reasons to refuse it. Writes nothing."""
    *above, level = levels_of(place)
    draft = Draft(tuple(outer_level.policy for outer_level in above), level.policy, policy.said())
    before, after = (*draft.above, draft.before), (*draft.above, draft.after)
    changes = changes_between(before, after)
    values = effective_values(after)
    below = list(namespaces_below(place))
    touched = _touched(below, draft, actor)
    promises = _promises_after(place, below, draft, actor)
    return Preview(
        base_revision=level.revision,
        changes=tuple(changes),
        effective_hash=effective_hash(after),
        namespaces=len(touched),
        namespaces_named=tuple(touched[:NAMED_AT_MOST]),
        agents=tuple(pool.agent for pool in pools) if touched and actor.is_operator else (),
        shares=tuple(share for pool in pools for share in shares_resolved(values, pool)) if actor.is_operator else (),
        bands=() if actor.is_operator else tuple(shares_banded(values, pools)),
        is_served=bool(pools),
        group_share=_group_share(promises, actor),
        effects=tuple(effects_of(changes)),
        warnings=tuple(warnings_for(changes, values)),
        problems=tuple(_problems(place, below, draft, promises, actor)),
    )


def _touched(below: Sequence[Below], draft: Draft, actor: Actor) -> list[str]:
    """Return the namespaces visible to the actor whose effective policy would change. Checks each combination once."""
    seen: dict[Hashable, bool] = {}
    names = []
    for descendant in below:
        combination = descendant.combination
        if combination not in seen:
            seen[combination] = effective_hash(draft.chain(descendant, old=True)) != effective_hash(
                draft.chain(descendant)
            )
        if seen[combination] and actor.may_see(descendant.namespace_id):
            names.append(f"{descendant.organisation}/{descendant.namespace}")
    return names


def _problems(
    policy_scope: Place, below: Sequence[Below], draft: Draft, promises: Sequence[Promise], actor: Actor
) -> list[FieldProblem]:
    problems = list(draft_contradictions(draft, below, actor=actor))
    organisation = policy_scope.organisation
    if organisation is not None and not actor.is_operator:
        problems += draft_out_of_bounds(draft, bounds_of(organisation.bounds, organisation.bounds_revision))
    # A member whose draft has problems must not learn how much room others leave: publishing would fail before that
    # check.
    if promises_more(draft) and (actor.is_operator or not problems):
        problems += [shares_problem(promise, actor=actor) for promise in promises if promise.is_too_much]
    return problems


def _group_share(promises: Sequence[Promise], actor: Actor) -> GroupShare | None:
    """Return the group with the largest reserved share.

    Operators only, because the sum reveals others' reservations.
    """
    fullest = max(promises, key=lambda promise: promise.total, default=None)
    if fullest is None or not actor.is_operator:
        return None
    return GroupShare(round(fullest.total, 6), PROMISED_AT_MOST, fullest.is_too_much)


def _promises_after(policy_scope: Place, below: Sequence[Below], draft: Draft, actor: Actor) -> list[Promise]:
    """Return the largest reserved share of each group after the change, or nothing if it will not be used."""
    if not (actor.is_operator or promises_more(draft)):
        return []
    own_ids = {descendant.namespace_id for descendant in below}
    heaviest_promises = []
    for group_id in sorted({descendant.group_id for descendant in below}):
        all_holdings = () if policy_scope == FLEET else group_holdings(group_id)
        other_holdings = (holding for holding in all_holdings if holding.namespace_id not in own_ids)
        own = holdings((descendant for descendant in below if descendant.group_id == group_id), draft.chain)
        heaviest_promises.append(heaviest_promise(chain(other_holdings, own), own_holdings(actor)))
    return heaviest_promises
