"""Publishing policies: one transaction that judges, numbers and records, or changes nothing."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from django.utils import timezone

from tenants.actor import Actor
from tenants.audit import audited
from tenants.bounds import bounds_of, out_of_bounds
from tenants.errors import FieldProblem, InvalidFields, NotFound, OutOfBounds
from tenants.fields import note_check
from tenants.levels import Place, level_lock, level_of, namespaces_below
from tenants.models import PolicyLevel, PolicyRevision
from tenants.policy import Below, Policy, Values, contradictions, effective_document, effective_values, models_named
from tenants.revisions import Expected, revision_check
from tenants.services.shares import groups_check

NAMED_AT_MOST = 5  # namespaces in one message


@dataclass(frozen=True, slots=True)
class Published:
    level: PolicyLevel
    chain: tuple[Values, ...]


def policy_publish(
    *, actor: Actor, place: Place, policy: Policy, expected: Expected, note: str = "", rolled_back_to: int | None = None
) -> Published:
    """The next revision of that level, or the error that says why not."""
    note = note_check(note)
    with audited() as journal:
        level, above = level_lock(place)
        revision_check(level.revision, expected)
        before, after = level.policy, policy.said()
        draft = Draft(place, above=tuple(one.policy for one in above), before=before, after=after)
        draft_check(draft, actor=actor)
        level.revision, level.policy = level.revision + 1, after
        level.save(update_fields=["revision", "policy"])
        level.revisions.create(
            number=level.revision,
            policy=after,
            note=note,
            author=actor.name,
            author_is_operator=actor.is_operator,
            at=timezone.now(),
            rolled_back_to=rolled_back_to,
        )
        if promises_more(draft):
            groups_check({below.group_id for below in namespaces_below(place)}, actor=actor)
        journal.record(
            actor,
            "policy.publish" if rolled_back_to is None else "policy.rollback",
            place.name,
            organisation=place.organisation,
            before={"revision": level.revision - 1, "policy": before},
            after={"revision": level.revision, "policy": after, **({"note": note} if note else {})},
        )
    return Published(level, (*draft.above, after))


def policy_rollback(*, actor: Actor, place: Place, to_revision: int, expected: Expected, note: str = "") -> Published:
    """Publish what an earlier revision said. Revision 0 is the beginning, when the level said nothing."""
    policy = revision_policy(place, to_revision)
    return policy_publish(
        actor=actor,
        place=place,
        policy=policy,
        expected=expected,
        note=note or f"Back to revision {to_revision}",
        rolled_back_to=to_revision,
    )


def revision_policy(place: Place, number: int) -> Policy:
    if number == 0:
        return Policy()
    found = PolicyRevision.objects.filter(level=level_of(place), number=number).first()
    if found is None:
        raise NotFound("revision")
    return Policy.model_validate(found.policy)


@dataclass(frozen=True, slots=True)
class Draft:
    """A level about to change: what it inherits, what it says, what it would say."""

    place: Place
    above: tuple[Values, ...]
    before: Values
    after: Values

    def chain(self, below: Below, *, old: bool = False) -> tuple[Values, ...]:
        """The three levels of one namespace, with this one as it is or as it would be."""
        own = self.before if old else self.after
        if self.place.namespace is not None:
            return (*self.above, own)
        if self.place.organisation is not None:
            return (*self.above, own, below.namespace_policy)
        return (own, below.organisation_policy, below.namespace_policy)


def draft_check(draft: Draft, *, actor: Actor) -> None:
    if draft.place.organisation is not None and not actor.is_operator:
        bounds = bounds_of(draft.place.organisation.bounds, draft.place.organisation.bounds_revision)
        if problems := list(out_of_bounds(bounds, before=draft.before, after=draft.after)):
            raise OutOfBounds(problems)
    if problems := list(draft_contradictions(draft)):
        raise InvalidFields(problems)


def draft_contradictions(draft: Draft) -> Iterator[FieldProblem]:
    """At the level itself, then in each namespace below it, where another value may be in force."""
    own = list(contradictions(effective_document((*draft.above, draft.after))))
    if own:
        yield from own
        return
    by_problem: dict[FieldProblem, list[str]] = {}
    for below, found in _each_below(draft, lambda chain: list(contradictions(effective_document(chain)))):
        for problem in found:
            by_problem.setdefault(problem, []).append(f"{below.organisation}/{below.namespace}")
    for problem, names in by_problem.items():
        more = f" and {len(names) - NAMED_AT_MOST} more" if len(names) > NAMED_AT_MOST else ""
        where = ", ".join(names[:NAMED_AT_MOST]) + more
        yield FieldProblem(problem.field, f"in {where}: {problem.message}")


def _each_below(
    draft: Draft, judge: Callable[[Sequence[Values]], list[FieldProblem]]
) -> Iterator[tuple[Below, list[FieldProblem]]]:
    """Judged once for each different combination of levels: ten thousand namespaces have few."""
    if draft.place.namespace is not None:
        return
    seen: dict[str, list[FieldProblem]] = {}
    for below in namespaces_below(draft.place):
        chain = draft.chain(below)
        combination = repr((below.organisation_policy, below.namespace_policy))
        if combination not in seen:
            seen[combination] = judge(chain)
        if seen[combination]:
            yield below, seen[combination]


def promises_more(draft: Draft) -> bool:
    """Whether anybody below could get more than before: then, and only then, do others' holdings matter."""
    before, after = (*draft.above, draft.before), (*draft.above, draft.after)
    return any(
        effective_values(after, model)[share] > effective_values(before, model)[share]
        for model in (None, *models_named(before), *models_named(after))
        for share in ("reserved_share", "pin_share")
    )
