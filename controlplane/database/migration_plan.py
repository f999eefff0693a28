"""`luminet migrations`: print what `luminet run migrate` would do to this database. Changes nothing."""

import json
import sys
from dataclasses import asdict, dataclass
from typing import Any

from django.db import OperationalError, connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.migration import Migration

from controlplane.database.migration_rules import flat, holds, model_of
from controlplane.database.schema import applied, is_contract, standing_of

TO_COME = 2  # exit status: migrations are pending
SIZE = "SELECT greatest(reltuples, 0)::bigint, pg_total_relation_size(oid) FROM pg_class WHERE oid = to_regclass(%s)"


@dataclass(frozen=True, slots=True)
class Held:
    """A table that an operation locks, its size and who waits for it."""

    table: str
    rows: int
    size_bytes: int
    why: str


@dataclass(frozen=True, slots=True)
class Coming:
    name: str
    kind: str  # expand: the previous version keeps working; contract: it cannot
    does: list[str]
    holds: list[Held]


def migrations_told(*, as_json: bool) -> int:
    """Print pending migrations. Exit status 0: none; 2: some; 1: the database does not answer or does not fit."""
    try:
        coming, problem = _coming(), _problem()
    except OperationalError as error:
        return _failed(f"the database does not answer: {str(error).strip().splitlines()[0]}")
    if as_json:
        print(json.dumps({"coming": [asdict(migration) for migration in coming], "problem": problem}, indent=2))
    elif problem is None:
        print("\n".join(_words(coming)))
    if problem is not None:
        return 1 if as_json else _failed(f"the database is {problem}")
    return TO_COME if coming else 0


def _problem() -> str | None:
    """Return why this code cannot use a database that is ahead, or None. Pending migrations are no problem."""
    with connection.cursor() as cursor:
        schema_state = standing_of(applied(cursor))
    return None if schema_state.missing else schema_state.problem


def _coming() -> list[Coming]:
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    known = [migration for migration in executor.loader.applied_migrations if migration in executor.loader.graph.nodes]
    state = executor.loader.project_state(known)
    coming = []
    for migration, _ in plan:
        locks = _held(migration, state)
        kind = "contract" if is_contract(migration.name) else "expand"
        does = [operation.describe() for operation in migration.operations]
        coming.append(Coming(f"{migration.app_label}.{migration.name}", kind, does, locks))
        state = migration.mutate_state(state, preserve=False)
    return coming


def _held(migration: Migration, state: Any) -> list[Held]:
    """Return the existing tables that the migration locks. Locks on new tables delay no one."""
    locks = []
    for operation in flat(migration.operations):
        why, model = holds(operation), model_of(migration.app_label, operation)
        if why is None:
            continue
        if model is None:
            locks.append(Held("", 0, 0, why))
        elif model in state.models:
            table = state.apps.get_model(*model)._meta.db_table
            locks.append(Held(table, *_size(table), why))
    return locks


def _size(table: str) -> tuple[int, int]:
    with connection.cursor() as cursor:
        cursor.execute(SIZE, [table])
        row = cursor.fetchone()
    return (int(row[0]), int(row[1])) if row else (0, 0)


def _words(coming: list[Coming]) -> list[str]:
    if not coming:
        return ["Nothing to come: the database has every migration of this code."]
    lines = []
    for migration in coming:
        goes_on = (
            "the version before goes on" if migration.kind == "expand" else "the version before CANNOT go on: stop it"
        )
        lines.append(f"{migration.name}  {migration.kind}: {goes_on}")
        lines += [f"    {effect}" for effect in migration.does]
        lines += [f"    holds {_place(lock)}: {lock.why}" for lock in migration.holds]
    return [*lines, f"{len(coming)} to come. Back up, then: luminet run migrate"]


def _place(lock: Held) -> str:
    if not lock.table:
        return "what it works on"
    return f"{lock.table} (about {lock.rows:,} rows, {lock.size_bytes / 1024**2:,.1f} MiB)"


def _failed(message: str) -> int:
    print(f"luminet: {message}", file=sys.stderr)
    return 1
