"""Levels of policy about to change, judged before it is so: bounds, contradictions, promises. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tenants.actor import Actor
from tenants.bounds import Bounds, out_of_bounds
from tenants.errors import FieldProblem
from tenants.policy import Below, Values, contradictions, effective_document, effective_values, models_named

NAMED_AT_MOST = 5  # namespaces in one message
PROMISES = ("reserved_share", "pin_share")
ROOT = "policy"  # what problems of a policy are found under when nothing is around it


@dataclass(frozen=True, slots=True)
class Draft:
    """What a level inherits (outermost first), what it says, what it would say; `where` its fields are in errors."""

    above: tuple[Values, ...]
    before: Values
    after: Values
    where: str = ROOT

    @property
    def is_of_a_namespace(self) -> bool:
        return len(self.above) == 2

    def chain(self, below: Below, *, old: bool = False) -> tuple[Values, ...]:
        """The three levels of one namespace, with this one as it is or as it would be."""
        lower = (below.organisation_policy, below.namespace_policy)[len(self.above) :]
        return (*self.above, self.before if old else self.after, *lower)


def draft_out_of_bounds(draft: Draft, bounds: Bounds) -> Iterator[FieldProblem]:
    yield from _placed(draft, out_of_bounds(bounds, before=draft.before, after=draft.after))


def draft_contradictions(draft: Draft, below: Iterable[Below], *, actor: Actor) -> Iterator[FieldProblem]:
    """At the level itself, then in each namespace below it, where another value may be in force."""
    own = list(contradictions(effective_document((*draft.above, draft.after))))
    return _placed(draft, own or (() if draft.is_of_a_namespace else _contradictions_below(draft, below, actor)))


def _contradictions_below(draft: Draft, below: Iterable[Below], actor: Actor) -> Iterator[FieldProblem]:
    by_problem: dict[FieldProblem, list[str]] = {}
    for one, found in _each_below(draft, below):
        for problem in found:
            names = by_problem.setdefault(problem, [])
            if actor.may_see(one.namespace_id):
                names.append(f"{one.organisation}/{one.namespace}")
    for problem, names in by_problem.items():
        more = f" and {len(names) - NAMED_AT_MOST} more" if len(names) > NAMED_AT_MOST else ""
        where = ", ".join(names[:NAMED_AT_MOST]) + more or "another namespace"
        yield FieldProblem(problem.field, f"in {where}: {problem.message}")


def _each_below(draft: Draft, below: Iterable[Below]) -> Iterator[tuple[Below, list[FieldProblem]]]:
    """Judged once for each combination of levels."""
    seen: dict[str, list[FieldProblem]] = {}
    for one in below:
        combination = one.combination
        if combination not in seen:
            seen[combination] = list(contradictions(effective_document(draft.chain(one))))
        if seen[combination]:
            yield one, seen[combination]


def _placed(draft: Draft, problems: Iterable[FieldProblem]) -> Iterator[FieldProblem]:
    for one in problems:
        yield FieldProblem(draft.where + one.field.removeprefix(ROOT), one.message)


def promises_more(draft: Draft) -> bool:
    """Whether anybody below could get more than before: then, and only then, do others' holdings matter."""
    before, after = (*draft.above, draft.before), (*draft.above, draft.after)
    return _unmasks(draft) or any(
        effective_values(after, model)[share] > effective_values(before, model)[share]
        for model in (None, *models_named(before), *models_named(after))
        for share in PROMISES
    )


def _unmasks(draft: Draft) -> bool:
    """Whether a model's share is no longer said here: what a namespace below says in general, maybe more, counts."""
    old, new = draft.before.get("models", {}), draft.after.get("models", {})
    dropped = (share for model, values in old.items() for share in values if share not in new.get(model, {}))
    return not draft.is_of_a_namespace and any(share in PROMISES for share in dropped)
