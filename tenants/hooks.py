"""Where apps above this one join in: reasons against a publish, agents that an operation awaits, news of commits.

This app knows none of them. Each registers itself when it is ready; without any, all of this is nothing.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from tenants.actor import Actor
from tenants.drafts import Draft
from tenants.errors import FieldProblem
from tenants.levels import Place
from tenants.models import Operation, PolicyLevel


@dataclass(frozen=True, slots=True)
class Judged:
    """One level of a publish, for the checks of apps above: what it would say, with everything else in place."""

    actor: Actor
    place: Place
    draft: Draft


# Told of all levels that a publish would change, inside its transaction: what speaks against it.
publish_checks: list[Callable[[Sequence[Judged]], Iterable[FieldProblem]]] = []

# Told of the levels that a publish has changed, inside its transaction and with their rows locked.
levels_published: list[Callable[[Actor, Sequence[PolicyLevel]], None]] = []

# Told of an operation whose agents are to prove it, inside its transaction, with the groups it concerns: who they are.
# Whoever answers keeps track of them, and ends the operation when the last has answered.
operation_begins: list[Callable[[Operation, Collection[int]], Collection[str]]] = []

# Told after a commit that wrote audit records, with their verbs. What it raises is logged, not told the caller.
after_commit: list[Callable[[frozenset[str]], None]] = []

# What else is sealed under the master key: its rows, the field, and the place that each was sealed for.
sealed: list[Callable[[], tuple[QuerySet[Any], str, Callable[[Any], str]]]] = []
