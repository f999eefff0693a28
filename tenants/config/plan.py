"""The plan of applying a document: changes in reading order, a hash, and reasons to refuse it.

`judge.py` checks the rules of policies and shares. Neither module writes.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

from engine_agent.contracts.protocol import canonical_json
from tenants.access import Rule, organisation_own
from tenants.actor import Actor, Scope
from tenants.config.document import ConfigDocument
from tenants.config.judge import Drafted, policy_problems, room_problems, share_problems
from tenants.config.overlay import Overlay, Problem
from tenants.config.ownership import ApplyOptions
from tenants.config.state import NamespaceState, OrganisationState, State, state_read
from tenants.drafts import Draft
from tenants.limits import limits_of
from tenants.policy import Values, changes_between, effective_values
from tenants.preview import warnings_for

PLAN = Rule(Scope.POLICY_READ, whole_organisation=True)
FLEET_NAME = "fleet"
NO_OPTIONS = ApplyOptions()
PROBLEMS_AT_MOST = 100  # as many as a refusal lists
DIFFERENCES_AT_MOST = 20_000  # of a whole plan: one for each namespace that a document may name
DIFFERENCES_OF_ONE = 100


@dataclass(frozen=True, slots=True)
class Difference:
    """One changed field, and for which model. Of policies it compares effective values."""

    field: str
    before: Any
    after: Any
    model: str | None = None


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One action: `verb` is that of its audit record, `field` its path in the document."""

    verb: str
    place: str
    field: str
    revision: int  # of the object before the change; 0: it does not exist yet
    before: Any = None
    after: Any = None
    inherited: tuple[int, ...] = ()  # revisions of the levels above a policy
    contents: str = ""  # hash of a deleted object's contents, which differs once anything inside changes
    deletes: int = 0  # organisations and namespaces
    differences: tuple[Difference, ...] = ()
    more_differences: int = 0  # not listed in `differences`
    warnings: tuple[str, ...] = ()

    @property
    def is_of_the_fleet(self) -> bool:
        return self.verb == "policy.publish" and not self.inherited

    @property
    def slugs(self) -> tuple[str, str]:
        """Slugs of organisation and namespace, empty if there is none."""
        organisation, _, namespace = self.place.partition("/")
        return organisation, namespace


@dataclass(frozen=True, slots=True)
class Plan:
    changes: tuple[PlannedChange, ...]
    problems: tuple[Problem, ...]

    @property
    def hash(self) -> str:
        """A hash that is equal for the same changes to the same revisions."""
        rows = [
            [
                change.verb,
                change.place,
                change.revision,
                change.before,
                change.after,
                list(change.inherited),
                change.contents,
            ]
            for change in self.changes
        ]
        return hashlib.sha256(b"luminet plan 2\0" + canonical_json(rows)).hexdigest()

    @property
    def deletes(self) -> int:
        """Number of deleted organisations and namespaces, including those inside deleted organisations."""
        return sum(change.deletes for change in self.changes)


def summary(changes: Iterable[PlannedChange]) -> Counter[str]:
    """Return how many objects are created, changed and deleted."""
    return Counter(
        {"create": "create", "delete": "delete"}.get(change.verb.partition(".")[2], "change") for change in changes
    )


def config_plan(
    *, actor: Actor, document: ConfigDocument, options: ApplyOptions = NO_OPTIONS, rule: Rule = PLAN
) -> Plan:
    """Plan a document with a constant number of queries. Writes nothing."""
    organisation_own(actor, rule)
    options.check(document)
    before = state_read(actor, slugs_concerned(actor, document, options))
    overlay = Overlay(actor, options, before)
    after = overlay.after(document)
    if room := list(room_problems(before, after)):  # other problems do not matter if there are too many namespaces
        return Plan((), tuple([*room, *overlay.problems][:PROBLEMS_AT_MOST]))
    changes = tuple(_shortened(changes_planned(before, after)))
    drafted = _drafted(before, after)
    all_problems = chain(overlay.problems, policy_problems(actor, before, after, drafted))
    problems = list(islice(all_problems, PROBLEMS_AT_MOST))
    # A member whose document has problems must not learn how much room others leave.
    if actor.is_operator or not problems:
        problems += share_problems(actor, before, after, drafted)
    return Plan(changes, tuple(problems))


def slugs_concerned(actor: Actor, document: ConfigDocument, options: ApplyOptions) -> list[str] | None:
    """Return the slugs of the organisations to read, or None for all."""
    named_organisations = document.organisations
    if actor.is_operator and document.policy is not None:
        return None
    if options.prune and document.owner is not None and named_organisations is not None:
        return None
    return sorted({*(named_organisations or ()), *options.prune_organisations})


def changes_planned(before: State, after: State) -> Iterator[PlannedChange]:
    """Yield the changes from the fleet inwards, organisation by organisation, with deletions last."""
    yield from _policy_change(FLEET_NAME, "policy", (before.policy_revision, before.policy), after.policy)
    for slug, organisation in after.organisations.items():
        current = before.organisations.get(slug)
        yield from _organisation_changes(current, organisation)
        yield from _namespaces_changes(after, current, organisation, inherited=(before.policy_revision,))
    for slug, current in before.organisations.items():
        if slug in after.organisations:
            remaining_namespaces = after.organisations[slug].namespaces
            yield from (
                _namespace_deletion(current, namespace)
                for namespace in current.namespaces.values()
                if namespace.slug not in remaining_namespaces
            )
        else:
            yield _organisation_deletion(current)


def _shortened(changes: Iterable[PlannedChange]) -> Iterator[PlannedChange]:
    """Limit the differences and warnings: a few bytes can revert thousands of policies with hundreds of fields each."""
    remaining = DIFFERENCES_AT_MOST
    for change in changes:
        limit = min(remaining, DIFFERENCES_OF_ONE)
        remaining -= min(limit, len(change.differences))
        yield replace(
            change,
            differences=change.differences[:limit],
            more_differences=max(0, len(change.differences) - limit),
            warnings=change.warnings[:limit],
        )


def _organisation_changes(current: OrganisationState | None, desired: OrganisationState) -> Iterator[PlannedChange]:
    level_name, where = desired.slug, f"organisations.{desired.slug}"
    desired_document = _organisation_described(desired)
    if current is None:
        yield PlannedChange("organisation.create", level_name, where, 0, after=desired_document)
        current = OrganisationState(desired.slug, name=desired.name, state=desired.state, owner=desired.owner)
    current_document = _organisation_described(current)
    if current_document != desired_document:
        yield PlannedChange(
            "organisation.update",
            level_name,
            where,
            current.revision,
            current_document,
            desired_document,
            differences=_differences(current_document, desired_document),
        )
    if current.limits != desired.limits:
        differences = _differences(
            limits_of(dict(current.limits)).model_dump(), limits_of(dict(desired.limits)).model_dump()
        )
        yield PlannedChange(
            "limits.set",
            level_name,
            f"{where}.limits",
            current.limits_revision,
            current.limits,
            desired.limits,
            differences=differences,
        )
    if current.bounds != desired.bounds:
        differences = _differences(current.bounds, desired.bounds)
        yield PlannedChange(
            "bounds.set",
            level_name,
            f"{where}.bounds",
            current.bounds_revision,
            current.bounds,
            desired.bounds,
            differences=differences,
        )


def _namespaces_changes(
    after: State, current: OrganisationState | None, desired: OrganisationState, *, inherited: tuple[int, ...]
) -> Iterator[PlannedChange]:
    """Yield changes of the organisation's policy, then of its namespaces with their policies."""
    is_new = current is None
    current = current or OrganisationState(desired.slug)
    where, fleet = f"organisations.{desired.slug}", after.policy
    yield from _policy_change(
        desired.slug,
        f"{where}.policy",
        (current.policy_revision, current.policy),
        desired.policy,
        above=(fleet,),
        inherited=inherited,
        is_new=is_new,
    )
    for slug, namespace in desired.namespaces.items():
        current_namespace, namespace_path = current.namespaces.get(slug), f"{where}.namespaces.{slug}"
        yield from _namespace_changes(f"{desired.slug}/{slug}", namespace_path, current_namespace, namespace)
        yield from _policy_change(
            f"{desired.slug}/{slug}",
            f"{namespace_path}.policy",
            (current_namespace.policy_revision, current_namespace.policy) if current_namespace else (0, {}),
            namespace.policy,
            above=(fleet, desired.policy),
            inherited=(*inherited, current.policy_revision),
            is_new=namespace.id is None,
        )


def _namespace_changes(
    level_name: str, where: str, current: NamespaceState | None, desired: NamespaceState
) -> Iterator[PlannedChange]:
    desired_document = _described(desired)
    if current is None:
        yield PlannedChange("namespace.create", level_name, where, 0, after=desired_document)
    elif _described(current) != desired_document:
        current_document = _described(current)
        yield PlannedChange(
            "namespace.update",
            level_name,
            where,
            current.revision,
            current_document,
            desired_document,
            differences=_differences(current_document, desired_document),
        )


def _policy_change(
    level_name: str,
    where: str,
    current: tuple[int, Values],
    desired: Values,
    *,
    above: tuple[Values, ...] = (),
    inherited: tuple[int, ...] = (),
    is_new: bool = False,
) -> Iterator[PlannedChange]:
    """Yield the change of a policy. A new level has no cache yet, so its cache gets no warning."""
    revision, policy = current
    if policy == desired:
        return
    changes = changes_between((*above, policy), (*above, desired))
    warnings = warnings_for(() if is_new else changes, effective_values((*above, desired)))
    yield PlannedChange(
        "policy.publish",
        level_name,
        where,
        revision,
        policy,
        desired,
        inherited,
        differences=tuple(Difference(change.field, change.before, change.after, change.model) for change in changes),
        warnings=tuple(warning.message for warning in warnings),
    )


def _namespace_deletion(organisation: OrganisationState, namespace: NamespaceState) -> PlannedChange:
    where = f"organisations.{organisation.slug}.namespaces.{namespace.slug}"
    return PlannedChange(
        "namespace.delete",
        f"{organisation.slug}/{namespace.slug}",
        where,
        namespace.revision,
        before=_described(namespace),
        contents=_contents([namespace]),
        deletes=1,
    )


def _organisation_deletion(organisation: OrganisationState) -> PlannedChange:
    return PlannedChange(
        "organisation.delete",
        organisation.slug,
        f"organisations.{organisation.slug}",
        organisation.revision,
        before={**_organisation_described(organisation), "namespaces": len(organisation.namespaces)},
        contents=_contents(
            organisation.namespaces.values(),
            organisation.policy_revision,
            organisation.bounds_revision,
            organisation.limits_revision,
        ),
        deletes=1 + len(organisation.namespaces),
    )


def _contents(namespaces: Iterable[NamespaceState], *revisions: int) -> str:
    """Return a hash of what a deletion includes, so that a new namespace or a newer policy is not deleted unseen."""
    rows = [[namespace.slug, namespace.revision, namespace.policy_revision] for namespace in namespaces]
    return hashlib.sha256(canonical_json([*revisions, *rows])).hexdigest()


def _organisation_described(organisation: OrganisationState) -> dict[str, Any]:
    return _labelled({"name": organisation.name, "state": organisation.state}, organisation.owner)


def _described(namespace: NamespaceState) -> dict[str, Any]:
    return _labelled({"name": namespace.name, "group": namespace.group}, namespace.owner)


def _labelled(values: dict[str, Any], owner: str) -> dict[str, Any]:
    return {**values, "owner": owner} if owner else values


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Difference, ...]:
    fields = sorted({*before, *after})
    return tuple(
        Difference(field, before.get(field), after.get(field))
        for field in fields
        if before.get(field) != after.get(field)
    )


def _drafted(before: State, after: State) -> list[Drafted]:
    """Return every level whose policy would change."""
    drafted_levels = []
    if before.policy != after.policy:
        drafted_levels.append(Drafted("", "", Draft((), before.policy, after.policy, "policy")))
    for slug, desired in after.organisations.items():
        current, where = before.organisations.get(slug) or OrganisationState(slug), f"organisations.{slug}"
        if current.policy != desired.policy:
            draft = Draft((after.policy,), current.policy, desired.policy, f"{where}.policy")
            drafted_levels.append(Drafted(slug, "", draft))
        for name, namespace in desired.namespaces.items():
            current_policy = current.namespaces[name].policy if name in current.namespaces else {}
            if current_policy != namespace.policy:
                above = (after.policy, desired.policy)
                draft = Draft(above, current_policy, namespace.policy, f"{where}.namespaces.{name}.policy")
                drafted_levels.append(Drafted(slug, name, draft))
    return drafted_levels
