"""Migrations since the upgrade base leave the version before what it works with, or say why not (docs/upgrades.md)."""

from collections.abc import Sequence
from typing import Any

import pytest
from django.conf import settings
from django.db import migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.migration import Migration

from controlplane.database.schema import APPS, Standing, is_contract, shipped, standing_of
from controlplane.settings.env import CHECKOUT
from tests.database.breaking_operations import broken_by, created_by
from tests.upgrading.code import NoHistory, commit_before, git, history_ensure

OURS = ("tenants", "live", "fleet", "analytics", "rollouts", "alerts")
A_REASON = 20  # characters that no reason is shorter than


def problems(found: Sequence[Migration]) -> list[str]:
    """Of migrations in their order: what the version before may fail on, and nothing says why it does not."""
    new = set().union(*(created_by(one) for one in found))
    said = []
    for one in found:
        broken = broken_by(one, but=new)
        if (broken or is_contract(one.name)) and len(getattr(one, "code_before", "")) < A_REASON:
            said += [f"{one.app_label}.{one.name}: {why}; say in `code_before`" for why in broken or ["a contract"]]
    return said


def migration(*operations: Any, name: str = "0099_more", **more: str) -> Migration:
    kind = type("Migration", (Migration,), {"operations": list(operations), **more})
    made: Migration = kind(name, "tenants")
    return made


@pytest.fixture(scope="module")
def before() -> set[tuple[str, str]]:
    """Migrations that the upgrade base has."""
    commit = commit_before()
    try:
        history_ensure(commit)
    except NoHistory as reason:
        pytest.skip(f"nothing to compare with: {reason}")
    listed = git(CHECKOUT, "ls-tree", "-r", "--name-only", commit).decode().splitlines()
    paths = [one.split("/") for one in listed if "/migrations/0" in one]
    return {(one[-3], one[-1].removesuffix(".py")) for one in paths}


def test_new_migrations_leave_the_version_before_what_it_works_with(before: set[tuple[str, str]]) -> None:
    disk = MigrationLoader(None).disk_migrations
    assert problems([one for key, one in sorted(disk.items()) if key[0] in OURS and key not in before]) == []


def test_no_migration_of_the_version_before_is_gone_or_changed(before: set[tuple[str, str]]) -> None:
    assert before - shipped() == set()
    places = [f"{APPS[app].replace('.', '/')}/migrations/{name}.py" for app, name in sorted(before)]
    assert git(CHECKOUT, "diff", "--stat", commit_before(), "--", *places) == b""


def test_what_the_version_before_may_fail_on_needs_its_reason(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        migrations.RemoveField("organisation", "name"),
        migrations.RenameField("organisation", "name", "title"),
        migrations.AlterField("organisation", "name", models.TextField()),
        migrations.AddField("organisation", "colour", models.TextField()),
        migrations.AddField("organisation", "colour", models.TextField(default="red")),
        migrations.DeleteModel("Organisation"),
        migrations.RenameModel("Organisation", "Customer"),
        migrations.AlterModelTable("Organisation", "customers"),
        migrations.RemoveConstraint("organisation", "one_slug"),
        migrations.RunSQL("DROP TABLE tenants_organisation"),
        migrations.RunPython(migrations.RunPython.noop),
        migrations.SeparateDatabaseAndState([migrations.RemoveField("organisation", "name")], []),
    ]
    for operation in cases:
        with subtests.test(msg=type(operation).__name__):
            assert len(problems([migration(operation)])) == 1
            assert problems([migration(operation, code_before="it has not read this since version 0.2")]) == []


def test_what_only_adds_needs_none(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        migrations.AddField("organisation", "colour", models.TextField(null=True)),
        migrations.AddField("organisation", "colour", models.TextField(db_default="red")),
        migrations.AddIndex("organisation", models.Index(fields=["name"], name="by_name")),
        migrations.CreateModel("Colour", [("id", models.BigAutoField(primary_key=True))]),
    ]
    for operation in cases:
        with subtests.test(msg=type(operation).__name__):
            assert problems([migration(operation)]) == []


def test_a_table_that_the_version_before_does_not_know_may_change_as_it_likes() -> None:
    create = migration(migrations.CreateModel("Colour", [("id", models.BigAutoField(primary_key=True))]))
    remove = migration(migrations.RemoveField("colour", "name"), name="0100_other")
    assert problems([create, remove]) == []


def test_a_contract_says_why_it_is_one() -> None:
    assert len(problems([migration(name="0099_contract_names")])) == 1


# Whether a database and code fit


def test_all_that_has_migrations_is_compared() -> None:
    assert shipped() == set(MigrationLoader(None).disk_migrations)
    assert {one.removesuffix(".migrations") for one in APPS.values()} >= {
        one for one in settings.INSTALLED_APPS if one in {"tenants"} or one.endswith(OURS)
    }


def test_a_database_that_is_behind_does_not_fit() -> None:
    last = max(one for one in shipped() if one[0] == "tenants")
    problem = standing_of(shipped() - {last}).problem
    assert problem == f"not applied yet: run `luminet run migrate` ({'.'.join(last)})"


def test_a_database_that_is_ahead_by_what_was_added_fits_and_by_a_contract_does_not() -> None:
    assert standing_of({*shipped(), ("tenants", "0099_colours")}).problem is None
    problem = standing_of({*shipped(), ("tenants", "0099_colours"), ("tenants", "0100_contract_names")}).problem
    assert problem is not None
    assert problem.startswith("ahead of this code, which cannot work with it any more: tenants.0100_contract_names.")


def test_one_that_was_never_migrated_lacks_everything() -> None:
    assert standing_of([]) == Standing(tuple(sorted(shipped())), ())
