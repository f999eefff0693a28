"""Reads of the tenants domain that are more than one look-up. They write nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

from tenants.actor import Actor
from tenants.bounds import bounds_of, out_of_bounds
from tenants.errors import FieldProblem
from tenants.levels import Place, level_of, levels_above, namespaces_below
from tenants.models import PolicyLevel
from tenants.policy import (
    Change,
    Effective,
    Policy,
    changes_between,
    effective,
    effective_hash,
    effective_values,
)
from tenants.preview import AgentPool, ResolvedShare, Warning, effects_of, shares_resolved, warnings_for
from tenants.services.policies import Draft, draft_contradictions
from tenants.services.shares import group_holdings, shares_problem
from tenants.shares import PROMISED_AT_MOST, Holding, heaviest_promise, holding

NAMED_AT_MOST = 20


@dataclass(frozen=True, slots=True)
class InForce:
    effective: Effective
    hash: str
    levels: tuple[PolicyLevel, ...]


def policy_in_force(place: Place, model: str | None = None) -> InForce:
    levels = (*levels_above(place), level_of(place))
    chain = [level.policy for level in levels]
    return InForce(effective(chain, model), effective_hash(chain, model), levels)


@dataclass(frozen=True, slots=True)
class GroupShare:
    """What would be promised of each pool of one group, and how much may be."""

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
    agents: tuple[str, ...]
    shares: tuple[ResolvedShare, ...]
    group_share: GroupShare | None
    effects: tuple[str, ...]
    warnings: tuple[Warning, ...]
    problems: tuple[FieldProblem, ...]


def policy_preview(*, actor: Actor, place: Place, policy: Policy, pools: Sequence[AgentPool] = ()) -> Preview:
    """What `policy_publish` would do with the same body, the reasons to refuse it included. Changes nothing."""
    level = level_of(place)
    draft = Draft(place, tuple(one.policy for one in levels_above(place)), level.policy, policy.said())
    before, after = (*draft.above, draft.before), (*draft.above, draft.after)
    changes = changes_between(before, after)
    values = effective_values(after)
    touched = _touched(draft)
    return Preview(
        base_revision=level.revision,
        changes=tuple(changes),
        effective_hash=effective_hash(after),
        namespaces=len(touched),
        namespaces_named=tuple(touched[:NAMED_AT_MOST]),
        agents=tuple(pool.agent for pool in pools) if touched else (),
        shares=tuple(share for pool in pools for share in shares_resolved(values, pool)),
        group_share=_group_share(draft, actor),
        effects=tuple(effects_of(changes)),
        warnings=tuple(warnings_for(changes, values)),
        problems=tuple(_problems(draft, actor)),
    )


def _touched(draft: Draft) -> list[str]:
    """Namespaces in which something else would be in force. Judged once for each combination of levels."""
    seen: dict[str, bool] = {}
    names = []
    for below in namespaces_below(draft.place):
        combination = repr((below.organisation_policy, below.namespace_policy))
        if combination not in seen:
            seen[combination] = effective_hash(draft.chain(below, old=True)) != effective_hash(draft.chain(below))
        if seen[combination]:
            names.append(f"{below.organisation}/{below.namespace}")
    return names


def _problems(draft: Draft, actor: Actor) -> list[FieldProblem]:
    found = list(draft_contradictions(draft))
    organisation = draft.place.organisation
    if organisation is not None and not actor.is_operator:
        bounds = bounds_of(organisation.bounds, organisation.bounds_revision)
        found += out_of_bounds(bounds, before=draft.before, after=draft.after)
    for promise in (heaviest_promise(holdings) for holdings in _holdings_after(draft).values()):
        if promise.is_too_much:
            found.append(shares_problem(promise, actor=actor))
    return found


def _group_share(draft: Draft, actor: Actor) -> GroupShare | None:
    """The fullest group concerned. Operators only: the sum tells of others."""
    if not actor.is_operator:
        return None
    sums = [heaviest_promise(holdings) for holdings in _holdings_after(draft).values()]
    fullest = max(sums, key=lambda promise: promise.total, default=None)
    if fullest is None:
        return None
    return GroupShare(round(fullest.total, 6), PROMISED_AT_MOST, fullest.is_too_much)


def _holdings_after(draft: Draft) -> dict[int, list[Holding]]:
    """Everybody's holdings in the groups concerned, as they would be."""
    mine = {below.namespace_id: below for below in namespaces_below(draft.place)}
    found: dict[int, list[Holding]] = {}
    for group_id in sorted({below.group_id for below in mine.values()}):
        others = [one for one in group_holdings(group_id) if one.namespace_id not in mine]
        own = [holding(below, draft.chain(below)) for below in mine.values() if below.group_id == group_id]
        found[group_id] = others + own
    return found
