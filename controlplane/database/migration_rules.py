"""The locks that a migration's operations take, and who waits for them. Pure, except for Django's operations."""

from collections.abc import Iterator
from typing import Any

from django.db.migrations import operations as known

Model = tuple[str, str]  # app, model in lower case
_HOLDS: dict[type, str] = {
    known.AddIndex: "writers wait while all of it is read",
    known.AddConstraint: "writers wait while all of it is checked",
    known.AlterField: "readers and writers may wait while all of it is written anew",
    known.RunSQL: "as long as its statements take",
    known.RunPython: "as long as its own work takes",
}


def holds(operation: Any) -> str | None:
    """Return who waits for the operation, or None if all waits are short."""
    return next((blocked for kind, blocked in _HOLDS.items() if isinstance(operation, kind)), None)


def flat(operations: Any) -> Iterator[Any]:
    """Yield the operations on the database, including those nested in SeparateDatabaseAndState."""
    for operation in operations:
        if isinstance(operation, known.SeparateDatabaseAndState):
            yield from flat(operation.database_operations)
        else:
            yield operation


def model_of(app: str, operation: Any) -> Model | None:
    """Return the model that the operation changes, or None if it does not say."""
    name = getattr(operation, "model_name", None) or getattr(operation, "name", None)
    is_about_one = isinstance(operation, known.base.Operation) and not isinstance(
        operation, known.RunSQL | known.RunPython
    )
    return (app, name.lower()) if is_about_one and name else None
