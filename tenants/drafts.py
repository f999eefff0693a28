"""Checks of policy levels before a change: bounds, contradictions, reserved shares. No I/O."""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

from engine_agent.contracts.policy_fields import FIELDS, LEVELS
from engine_agent.contracts.words import listed
from tenants.actor import Actor
from tenants.bounds import Bounds, out_of_bounds
from tenants.errors import FieldProblem
from tenants.policy import Below, Values, contradictions, effective_values, models_naming
from tenants.shares import PROMISES

NAMED_AT_MOST = 5  # namespaces in one message
ROOT = "policy"  # prefix of a policy's problems outside a document


@dataclass(frozen=True, slots=True)
class Draft:
    """A change of one level: the inherited levels (outermost first), its values before and after, and their path."""

    above: tuple[Values, ...]
    before: Values
    after: Values
    where: str = ROOT

    @property
    def is_of_a_namespace(self) -> bool:
        return len(self.above) == 2

    def chain(self, below: Below, *, old: bool = False) -> tuple[Values, ...]:
        """Return the three levels of a namespace with this level's old or new values."""
        lower = (below.organisation_policy, below.namespace_policy)[len(self.above) :]
        return (*self.above, self.before if old else self.after, *lower)


def draft_out_of_bounds(draft: Draft, bounds: Bounds) -> Iterator[FieldProblem]:
    yield from _placed(draft, out_of_bounds(bounds, before=draft.before, after=draft.after))


def draft_contradictions(draft: Draft, below: Iterable[Below], *, actor: Actor) -> Iterator[FieldProblem]:
    """Yield contradictions at the level itself, then in each namespace below, where another value may be effective."""
    own = [*_misplaced(draft), *contradictions((*draft.above, draft.after))]
    return _placed(draft, own or (() if draft.is_of_a_namespace else _contradictions_below(draft, below, actor)))


def _misplaced(draft: Draft) -> Iterator[FieldProblem]:
    """Yield a problem for each field that cannot be set at this level, for itself or for a model."""
    level = LEVELS[len(draft.above)]
    models = draft.after.get("models", {})
    for path, values in ((ROOT, draft.after), *((f"{ROOT}.models.{model}", models[model]) for model in models)):
        for name in values:
            if name in FIELDS and level not in FIELDS[name].levels:
                allowed_levels = " or ".join(FIELDS[name].levels)
                yield FieldProblem(f"{path}.{name}", f"cannot be set for a {level}, only for: {allowed_levels}")


def _contradictions_below(draft: Draft, below: Iterable[Below], actor: Actor) -> Iterator[FieldProblem]:
    by_problem: dict[FieldProblem, list[str]] = {}
    for descendant, problems in _each_below(draft, below):
        for problem in problems:
            names = by_problem.setdefault(problem, [])
            if actor.may_see(descendant.namespace_id):
                names.append(f"{descendant.organisation}/{descendant.namespace}")
    for problem, names in by_problem.items():
        where = listed(names, NAMED_AT_MOST) or "another namespace"
        yield FieldProblem(problem.field, f"in {where}: {problem.message}")


def _each_below(draft: Draft, below: Iterable[Below]) -> Iterator[tuple[Below, list[FieldProblem]]]:
    """Yield namespaces with contradictions, checking each combination of levels once."""
    seen: dict[Hashable, list[FieldProblem]] = {}
    for descendant in below:
        combination = descendant.combination
        if combination not in seen:
            seen[combination] = list(contradictions(draft.chain(descendant)))
        if seen[combination]:
            yield descendant, seen[combination]


def _placed(draft: Draft, problems: Iterable[FieldProblem]) -> Iterator[FieldProblem]:
    for problem in problems:
        yield FieldProblem(draft.where + problem.field.removeprefix(ROOT), problem.message)


def promises_more(draft: Draft) -> bool:
    """Return whether a namespace below could get a larger share. Only then do other reservations matter."""
    if _shares_said(draft.before) == _shares_said(draft.after):
        return False
    before, after = (*draft.above, draft.before), (*draft.above, draft.after)
    return _masks_otherwise(draft) or any(
        new[share] > old[share]
        for old, new in (
            (effective_values(before, model), effective_values(after, model))
            for model in (None, *models_naming((*before, draft.after), PROMISES))
        )
        for share in PROMISES
    )


def _shares_said(level: Values) -> dict[tuple[str | None, str], float]:
    values_by_model = [(None, level), *level.get("models", {}).items()]
    return {(model, share): values[share] for model, values in values_by_model for share in PROMISES if share in values}


def _masks_otherwise(draft: Draft) -> bool:
    """Return whether this level starts or stops setting a share for a model.

    Such a value takes precedence over the general value of a namespace below, which may be lower.
    """
    old, new = ({key for key in _shares_said(level) if key[0] is not None} for level in (draft.before, draft.after))
    return not draft.is_of_a_namespace and old != new
