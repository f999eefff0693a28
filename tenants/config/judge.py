"""Check policies, limits and shares of a planned state. Reads reservations; writes nothing."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tenants.actor import Actor
from tenants.bounds import Bounds
from tenants.config.overlay import Blame, Problem
from tenants.config.state import NamespaceState, OrganisationState, State
from tenants.drafts import Draft, draft_contradictions, draft_out_of_bounds, promises_more
from tenants.errors import FieldProblem
from tenants.levels import FLEET, namespaces_below
from tenants.limits import limits_of
from tenants.policy import Below
from tenants.services.shares import shares_problem
from tenants.shares import Promise, heaviest_promise, holdings, is_promised_something


@dataclass(frozen=True, slots=True)
class Drafted:
    """A level whose policy would change. Empty slugs: the fleet's, or the organisation's own."""

    organisation: str
    namespace: str
    draft: Draft


def policy_problems(actor: Actor, before: State, after: State, drafted: Sequence[Drafted]) -> Iterator[Problem]:
    below = _below(after, drafted)
    for drafted_level in drafted:
        if not actor.is_operator and drafted_level.organisation:
            bounds = Bounds.model_validate(before.organisations[drafted_level.organisation].bounds)
            yield from _blamed(Blame.FORBIDDEN, draft_out_of_bounds(drafted_level.draft, bounds))
        descendants = below.get((drafted_level.organisation, drafted_level.namespace), [])
        yield from _blamed(Blame.INVALID, draft_contradictions(drafted_level.draft, descendants, actor=actor))


def _below(after: State, drafted: Sequence[Drafted]) -> dict[tuple[str, str], list[Below]]:
    """Return the namespaces below each drafted level, each under its nearest one, without drafted namespaces."""
    names = {(drafted_level.organisation, drafted_level.namespace) for drafted_level in drafted}
    namespaces_by_level: dict[tuple[str, str], list[Below]] = {}
    for organisation, namespace in _namespaces(after):
        nearest = (organisation.slug, "") if (organisation.slug, "") in names else ("", "")
        if nearest in names and (organisation.slug, namespace.slug) not in names:
            namespaces_by_level.setdefault(nearest, []).append(organisation.below(namespace))
    return namespaces_by_level


def room_problems(before: State, after: State) -> Iterator[Problem]:
    for slug, organisation in after.organisations.items():
        limit = limits_of(dict(organisation.limits)).max_namespaces
        is_growing = any(namespace.id is None for namespace in organisation.namespaces.values())
        if is_growing and len(organisation.namespaces) > limit:
            message = f"there would be {len(organisation.namespaces)}, max_namespaces in its limits is {limit}"
            yield Problem(Blame.CONFLICT, f"organisations.{slug}.namespaces", message)


def share_problems(actor: Actor, before: State, after: State, drafted: Sequence[Drafted]) -> Iterator[Problem]:
    """Yield a conflict for each group whose reserved shares would grow beyond the bound."""
    affected_groups = _groups_growing(before, after, drafted)
    if not affected_groups:
        return
    below = _others(before, after, affected_groups)
    for organisation, namespace in _namespaces(after):
        if namespace.group in affected_groups:
            below[namespace.group].append(organisation.below(namespace))
    for group in sorted(affected_groups):
        reservations = holdings(
            below[group], lambda descendant: (after.policy, descendant.organisation_policy, descendant.namespace_policy)
        )
        promise = heaviest_promise(reservations)
        if promise.is_too_much:
            message = shares_problem(promise, actor=actor).message
            yield Problem(Blame.CONFLICT, _culprit(promise, before, after, drafted), message)


def _groups_growing(before: State, after: State, drafted: Sequence[Drafted]) -> set[str]:
    promising = {
        (drafted_level.organisation, drafted_level.namespace)
        for drafted_level in drafted
        if promises_more(drafted_level.draft)
    }
    groups = set()
    for organisation, namespace in _namespaces(after):
        levels = {("", ""), (organisation.slug, ""), (organisation.slug, namespace.slug)}
        chain = (after.policy, organisation.policy, namespace.policy)
        is_new = _was(before, organisation.slug, namespace) != namespace.group
        if levels & promising or (is_new and is_promised_something(chain)):
            groups.add(namespace.group)
    return groups


def _was(before: State, organisation: str, namespace: NamespaceState) -> str | None:
    """Return the namespace's group before the change."""
    current = before.organisations.get(organisation)
    return current.namespaces[namespace.slug].group if current and namespace.slug in current.namespaces else None


def _others(before: State, after: State, affected_groups: Iterable[str]) -> dict[str, list[Below]]:
    """Return the namespaces of organisations that the document does not name."""
    slugs = {after.groups[group]: group for group in affected_groups if group in after.groups}
    named_ids = {organisation.id for organisation in before.organisations.values()}
    descendants: dict[str, list[Below]] = {group: [] for group in affected_groups}
    for below in namespaces_below(FLEET, group_ids=set(slugs)):
        if below.organisation_id not in named_ids:
            descendants[slugs[below.group_id]].append(below)
    return descendants


def _culprit(promise: Promise, before: State, after: State, drafted: Sequence[Drafted]) -> str:
    """Return the path in the document of the largest reservation that it sets."""
    paths = {
        (drafted_level.organisation, drafted_level.namespace): drafted_level.draft.where for drafted_level in drafted
    }
    for holding, _ in promise.holders:
        for key in ((holding.organisation, holding.namespace), (holding.organisation, "")):
            if key in paths:
                return f"{paths[key]}.reserved_share"
        if holding.namespace_id == 0:
            return f"organisations.{holding.organisation}.namespaces.{holding.namespace}"
    return f"{paths.get(('', ''), 'policy')}.reserved_share"


def _namespaces(state: State) -> Iterator[tuple[OrganisationState, NamespaceState]]:
    for organisation in state.organisations.values():
        for namespace in organisation.namespaces.values():
            yield organisation, namespace


def _blamed(blame: Blame, problems: Iterable[FieldProblem]) -> Iterator[Problem]:
    return (Problem(blame, problem.field, problem.message) for problem in problems)
