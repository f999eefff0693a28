"""The tests' own database: copied from a template that cannot be out of date, and emptied after each commit."""

import ast
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from django.db import IntegrityError, connection
from django.db.migrations.executor import MigrationExecutor

from controlplane.settings.env import CHECKOUT
from tenants.levels import FLEET
from tests.database import template as database_template
from tests.database.factories import make_agent, publish
from tests.database.flush import KEPT, written_tables_empty
from tests.web.api import make_key, make_organisation

OF_PRODUCT = ("tenants", "controlplane", "engine_agent", "kernels", "tests")


def _rows(table: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f'SELECT count(*) FROM "{table}"')
        return int(cursor.fetchone()[0])


@pytest.mark.django_db
def test_database_has_every_migration() -> None:
    executor = MigrationExecutor(connection)
    assert executor.migration_plan(executor.loader.graph.leaf_nodes()) == []


def test_migrations_import_nothing_of_the_product() -> None:
    """The template's name is a hash of the migrations' text, which must then be all that they do."""
    files = [file for file in database_template.sources() if file.parent.name == "migrations"]
    assert len(files) > 10
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.split(".")[0] in OF_PRODUCT], file.relative_to(CHECKOUT)


def test_template_name_covers_names_and_contents() -> None:
    files = {"a.py": b"1", "b.py": b"2"}
    changed = ({"a.py": b"1", "b.py": b"3"}, {"a.py": b"1", "c.py": b"2"}, {"a.py": b"1"}, {"a.py": b"1b.py", "": b"2"})
    names = [database_template.template_name(one) for one in (files, *changed)]
    assert len(set(names)) == len(names)
    assert database_template.template_name(dict(files)) == names[0]


def test_racing_processes_make_one_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, start = [], threading.Barrier(2)

    def make(template: Path) -> None:
        made.append(template)
        time.sleep(0.05)  # long enough for the other to arrive
        template.mkdir()
        (template / "PG_VERSION").write_text("18")

    def copy(number: int) -> str:
        start.wait()
        database_template.cluster_copy(tmp_path / "cache", tmp_path / f"data{number}")
        return (tmp_path / f"data{number}" / "PG_VERSION").read_text()

    (tmp_path / "cache" / "of other sources").mkdir(parents=True)
    monkeypatch.setattr(database_template, "_template_make", make)
    with ThreadPoolExecutor(2) as processes:
        assert list(processes.map(copy, range(2))) == ["18", "18"]
    assert len(made) == 1
    assert {one.name for one in (tmp_path / "cache").iterdir()} == {"lock", made[0].name}


@pytest.mark.django_db(transaction=True)
def test_written_tables_are_emptied() -> None:
    make_key(make_organisation("acme", "chat"))
    publish(FLEET, ttl_seconds=60)
    make_agent()
    written_tables_empty()
    tables = connection.introspection.django_table_names(only_existing=True)
    assert {table for table in tables if _rows(table)} <= KEPT


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("table", ["tenants_auditrecord", "tenants_policyrevision"])
def test_emptied_tables_are_append_only_again(table: str) -> None:
    publish(FLEET, ttl_seconds=60)
    written_tables_empty()
    publish(FLEET, ttl_seconds=60)
    with pytest.raises(IntegrityError, match="append-only"), connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {table}")
