"""Hooks for apps above this one: objections to a publish, agents that an operation awaits, notice of commits.

This app knows none of those apps. Each registers itself at startup; without any, the hooks do nothing.
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
    """One level of a publish, for the checks of other apps: its new values, with all other levels in place."""

    actor: Actor
    place: Place
    draft: Draft


# Called inside a publish's transaction with all levels that it would change. They yield objections.
publish_checks: list[Callable[[Sequence[Judged]], Iterable[FieldProblem]]] = []

# Called inside a publish's transaction with the changed levels, whose rows are locked.
levels_published: list[Callable[[Actor, Sequence[PolicyLevel]], None]] = []

# Called inside the transaction of an operation that agents must prove, with the groups concerned. They return the
# agents. A hook that returns agents tracks them, and ends the operation when the last has answered.
operation_begins: list[Callable[[Operation, Collection[int]], Collection[str]]] = []

# Called after a commit that wrote audit records, with their verbs. Errors are logged, not raised to the caller.
after_commit: list[Callable[[frozenset[str]], None]] = []

# Other data sealed under the master key: its rows, the field, and the place for which each was sealed.
sealed: list[Callable[[], tuple[QuerySet[Any], str, Callable[[Any], str]]]] = []
