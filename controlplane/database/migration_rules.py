"""What a migration's operations mean for the version before, which runs on meanwhile, and how long they hold tables.

Pure, but for Django's own operations. A migration with an operation that `breaks` names says in `code_before` why the
version before goes on all the same; where it does not, its name begins with `contract_`. docs/upgrades.md has the
rules.
"""

from collections.abc import Iterator, Set
from typing import Any

from django.db.migrations import operations as known
from django.db.migrations.migration import Migration
from django.db.models import ManyToManyField

Model = tuple[str, str]  # app, model in small letters
_BREAKS: dict[type, str] = {
    known.DeleteModel: "takes a table away",
    known.RenameModel: "renames a table",
    known.AlterModelTable: "renames a table",
    known.AlterUniqueTogether: "changes what may be written",
    known.RemoveField: "takes a column away",
    known.RenameField: "renames a column",
    known.AlterField: "changes a column",
    known.AddConstraint: "may refuse what the version before writes",
    known.RemoveConstraint: "takes away what ON CONFLICT of the version before may name",
    known.RunSQL: "runs SQL, which nobody can judge by looking at it",
    known.RunPython: "runs Python, which nobody can judge by looking at it",
}
_HOLDS: dict[type, str] = {
    known.AddIndex: "writers wait while all of it is read",
    known.AddConstraint: "writers wait while all of it is checked",
    known.AlterField: "readers and writers may wait while all of it is written anew",
    known.RunSQL: "as long as its statements take",
    known.RunPython: "as long as its own work takes",
}


def breaks(operation: Any) -> str | None:
    """What code of the version before may fail on; None: nothing."""
    if isinstance(operation, known.AddField):
        field: Any = operation.field
        is_filled = field.null or field.has_db_default() or isinstance(field, ManyToManyField)
        return None if is_filled else "adds a column that the version before leaves empty: NOT NULL without db_default"
    return _of(_BREAKS, operation)


def holds(operation: Any) -> str | None:
    """Who waits meanwhile; None: nobody for longer than a moment."""
    return _of(_HOLDS, operation)


def broken_by(migration: Migration, *, but: Set[Model] = frozenset()) -> list[str]:
    """In words, but for tables that the version before does not know either."""
    app = migration.app_label
    found = ((one, breaks(one)) for one in flat(migration.operations) if model_of(app, one) not in but)
    return [f"{one.describe()}: it {why}" for one, why in found if why]


def created_by(migration: Migration) -> set[Model]:
    made = (one for one in flat(migration.operations) if isinstance(one, known.CreateModel))
    return {(migration.app_label, one.name_lower) for one in made}


def flat(operations: Any) -> Iterator[Any]:
    """What is done to the database, as deep as it stands."""
    for one in operations:
        if isinstance(one, known.SeparateDatabaseAndState):
            yield from flat(one.database_operations)
        else:
            yield one


def model_of(app: str, operation: Any) -> Model | None:
    """Whose table it is about; None: it does not say."""
    name = getattr(operation, "model_name", None) or getattr(operation, "name", None)
    is_about_one = isinstance(operation, known.base.Operation) and not isinstance(
        operation, known.RunSQL | known.RunPython
    )
    return (app, name.lower()) if is_about_one and name else None


def _of(words: dict[type, str], operation: Any) -> str | None:
    return next((said for kind, said in words.items() if isinstance(operation, kind)), None)
