"""What a migration's operations mean for the version before, which runs on meanwhile.

A migration with an operation that `breaks` names says in `code_before` why the version before goes on all the same;
where it does not, its name begins with `contract_`. docs/upgrades.md has the rules.
"""

from collections.abc import Set
from typing import Any

from django.db.migrations import operations as known
from django.db.migrations.migration import Migration
from django.db.models import ManyToManyField

from controlplane.database.migration_rules import Model, flat, model_of

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


def breaks(operation: Any) -> str | None:
    """What code of the version before may fail on; None: nothing."""
    if isinstance(operation, known.AddField):
        field: Any = operation.field
        is_filled = field.null or field.has_db_default() or isinstance(field, ManyToManyField)
        return None if is_filled else "adds a column that the version before leaves empty: NOT NULL without db_default"
    return next((why for kind, why in _BREAKS.items() if isinstance(operation, kind)), None)


def broken_by(migration: Migration, *, but: Set[Model] = frozenset()) -> list[str]:
    """In words, but for tables that the version before does not know either."""
    app = migration.app_label
    found = ((one, breaks(one)) for one in flat(migration.operations) if model_of(app, one) not in but)
    return [f"{one.describe()}: it {why}" for one, why in found if why]


def created_by(migration: Migration) -> set[Model]:
    made = (one for one in flat(migration.operations) if isinstance(one, known.CreateModel))
    return {(migration.app_label, one.name_lower) for one in made}
