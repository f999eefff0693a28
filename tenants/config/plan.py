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
            [one.verb, one.place, one.revision, one.before, one.after, list(one.inherited), one.contents]
            for one in self.changes
        ]
        return hashlib.sha256(b"luminet plan 2\0" + canonical_json(rows)).hexdigest()

    @property
    def deletes(self) -> int:
        """Number of deleted organisations and namespaces, including those inside deleted organisations."""
        return sum(one.deletes for one in self.changes)


def summary(changes: Iterable[PlannedChange]) -> Counter[str]:
    """Return how many objects are created, changed and deleted."""
    return Counter(
        {"create": "create", "delete": "delete"}.get(one.verb.partition(".")[2], "change") for one in changes
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
    found = chain(overlay.problems, policy_problems(actor, before, after, drafted))
    problems = list(islice(found, PROBLEMS_AT_MOST))
    # A member whose document has problems must not learn how much room others leave.
    if actor.is_operator or not problems:
        problems += share_problems(actor, before, after, drafted)
    return Plan(changes, tuple(problems))


def slugs_concerned(actor: Actor, document: ConfigDocument, options: ApplyOptions) -> list[str] | None:
    """Return the slugs of the organisations to read, or None for all."""
    named = document.organisations
    if actor.is_operator and document.policy is not None:
        return None
    if options.prune and document.owner is not None and named is not None:
        return None
    return sorted({*(named or ()), *options.prune_organisations})


def changes_planned(before: State, after: State) -> Iterator[PlannedChange]:
    """Yield the changes from the fleet inwards, organisation by organisation, with deletions last."""
    yield from _policy_change(FLEET_NAME, "policy", (before.policy_revision, before.policy), after.policy)
    for slug, organisation in after.organisations.items():
        now = before.organisations.get(slug)
        yield from _organisation_changes(now, organisation)
        yield from _namespaces_changes(after, now, organisation, inherited=(before.policy_revision,))
    for slug, now in before.organisations.items():
        if slug in after.organisations:
            kept = after.organisations[slug].namespaces
            yield from (_namespace_deletion(now, one) for one in now.namespaces.values() if one.slug not in kept)
        else:
            yield _organisation_deletion(now)


def _shortened(changes: Iterable[PlannedChange]) -> Iterator[PlannedChange]:
    """Limit the differences and warnings: a few bytes can revert thousands of policies with hundreds of fields each."""
    left = DIFFERENCES_AT_MOST
    for one in changes:
        kept = min(left, DIFFERENCES_OF_ONE)
        left -= min(kept, len(one.differences))
        yield replace(
            one,
            differences=one.differences[:kept],
            more_differences=max(0, len(one.differences) - kept),
            warnings=one.warnings[:kept],
        )


def _organisation_changes(now: OrganisationState | None, wanted: OrganisationState) -> Iterator[PlannedChange]:
    place, where = wanted.slug, f"organisations.{wanted.slug}"
    said = _organisation_described(wanted)
    if now is None:
        yield PlannedChange("organisation.create", place, where, 0, after=said)
        now = OrganisationState(wanted.slug, name=wanted.name, state=wanted.state, owner=wanted.owner)
    was = _organisation_described(now)
    if was != said:
        yield PlannedChange(
            "organisation.update", place, where, now.revision, was, said, differences=_differences(was, said)
        )
    if now.limits != wanted.limits:
        shown = _differences(limits_of(dict(now.limits)).model_dump(), limits_of(dict(wanted.limits)).model_dump())
        yield PlannedChange(
            "limits.set", place, f"{where}.limits", now.limits_revision, now.limits, wanted.limits, differences=shown
        )
    if now.bounds != wanted.bounds:
        shown = _differences(now.bounds, wanted.bounds)
        yield PlannedChange(
            "bounds.set", place, f"{where}.bounds", now.bounds_revision, now.bounds, wanted.bounds, differences=shown
        )


def _namespaces_changes(
    after: State, now: OrganisationState | None, wanted: OrganisationState, *, inherited: tuple[int, ...]
) -> Iterator[PlannedChange]:
    """Yield changes of the organisation's policy, then of its namespaces with their policies."""
    is_new = now is None
    now = now or OrganisationState(wanted.slug)
    where, fleet = f"organisations.{wanted.slug}", after.policy
    yield from _policy_change(
        wanted.slug,
        f"{where}.policy",
        (now.policy_revision, now.policy),
        wanted.policy,
        above=(fleet,),
        inherited=inherited,
        is_new=is_new,
    )
    for slug, namespace in wanted.namespaces.items():
        earlier, inside = now.namespaces.get(slug), f"{where}.namespaces.{slug}"
        yield from _namespace_changes(f"{wanted.slug}/{slug}", inside, earlier, namespace)
        yield from _policy_change(
            f"{wanted.slug}/{slug}",
            f"{inside}.policy",
            (earlier.policy_revision, earlier.policy) if earlier else (0, {}),
            namespace.policy,
            above=(fleet, wanted.policy),
            inherited=(*inherited, now.policy_revision),
            is_new=namespace.id is None,
        )


def _namespace_changes(
    place: str, where: str, now: NamespaceState | None, wanted: NamespaceState
) -> Iterator[PlannedChange]:
    said = _described(wanted)
    if now is None:
        yield PlannedChange("namespace.create", place, where, 0, after=said)
    elif _described(now) != said:
        was = _described(now)
        yield PlannedChange(
            "namespace.update", place, where, now.revision, was, said, differences=_differences(was, said)
        )


def _policy_change(
    place: str,
    where: str,
    now: tuple[int, Values],
    wanted: Values,
    *,
    above: tuple[Values, ...] = (),
    inherited: tuple[int, ...] = (),
    is_new: bool = False,
) -> Iterator[PlannedChange]:
    """Yield the change of a policy. A new level has no cache yet, so its cache gets no warning."""
    revision, policy = now
    if policy == wanted:
        return
    changes = changes_between((*above, policy), (*above, wanted))
    warnings = warnings_for(() if is_new else changes, effective_values((*above, wanted)))
    yield PlannedChange(
        "policy.publish",
        place,
        where,
        revision,
        policy,
        wanted,
        inherited,
        differences=tuple(Difference(one.field, one.before, one.after, one.model) for one in changes),
        warnings=tuple(one.message for one in warnings),
    )


def _namespace_deletion(organisation: OrganisationState, now: NamespaceState) -> PlannedChange:
    where = f"organisations.{organisation.slug}.namespaces.{now.slug}"
    return PlannedChange(
        "namespace.delete",
        f"{organisation.slug}/{now.slug}",
        where,
        now.revision,
        before=_described(now),
        contents=_contents([now]),
        deletes=1,
    )


def _organisation_deletion(now: OrganisationState) -> PlannedChange:
    return PlannedChange(
        "organisation.delete",
        now.slug,
        f"organisations.{now.slug}",
        now.revision,
        before={**_organisation_described(now), "namespaces": len(now.namespaces)},
        contents=_contents(now.namespaces.values(), now.policy_revision, now.bounds_revision, now.limits_revision),
        deletes=1 + len(now.namespaces),
    )


def _contents(namespaces: Iterable[NamespaceState], *revisions: int) -> str:
    """Return a hash of what a deletion includes, so that a new namespace or a newer policy is not deleted unseen."""
    rows = [[one.slug, one.revision, one.policy_revision] for one in namespaces]
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
        Difference(one, before.get(one), after.get(one)) for one in fields if before.get(one) != after.get(one)
    )


def _drafted(before: State, after: State) -> list[Drafted]:
    """Return every level whose policy would change."""
    found = []
    if before.policy != after.policy:
        found.append(Drafted("", "", Draft((), before.policy, after.policy, "policy")))
    for slug, wanted in after.organisations.items():
        now, where = before.organisations.get(slug) or OrganisationState(slug), f"organisations.{slug}"
        if now.policy != wanted.policy:
            draft = Draft((after.policy,), now.policy, wanted.policy, f"{where}.policy")
            found.append(Drafted(slug, "", draft))
        for name, namespace in wanted.namespaces.items():
            was = now.namespaces[name].policy if name in now.namespaces else {}
            if was != namespace.policy:
                above = (after.policy, wanted.policy)
                draft = Draft(above, was, namespace.policy, f"{where}.namespaces.{name}.policy")
                found.append(Drafted(slug, name, draft))
    return found
