"""`luminet migrations`, and who starts on which database: real processes on a real PostgreSQL."""

import json
import subprocess
from collections.abc import Iterator

import pytest

from controlplane.settings.env import CHECKOUT
from controlplane.stack.services import luminet
from tests.fleet.fleets import Fleet, environment_for, finished, fleet_described
from tests.servers.embedded import postgres_running, temporary_home

BEYOND = ("tenants", "0099_colours")
CONTRACT = ("tenants", "0100_contract_names")


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    """Its database alone, migrated."""
    with temporary_home() as config:
        found = fleet_described(config)
        url = found.environment["LUMINET_DATABASE_URL"]
        with postgres_running(config, port=int(url.rsplit(":", 1)[1].split("/")[0]), url=url):
            finished(found, luminet("run", "migrate"))
            yield found


def ran(fleet: Fleet, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**environment_for(CHECKOUT), **fleet.environment}
    return subprocess.run(
        luminet(*arguments), cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def applied(fleet: Fleet, *names: tuple[str, str]) -> None:
    for name in names:
        fleet.rows("INSERT INTO django_migrations (app, name, applied) VALUES (%s, %s, now())", *name)


def forgotten(fleet: Fleet, *names: tuple[str, str]) -> None:
    for name in names:
        fleet.rows("DELETE FROM django_migrations WHERE app = %s AND name = %s", *name)


def test_nothing_to_come_is_said(fleet: Fleet) -> None:
    done = ran(fleet, "migrations")
    assert (done.returncode, done.stdout) == (0, "Nothing to come: the database has every migration of this code.\n")


def test_what_is_to_come_is_shown_with_who_waits(fleet: Fleet) -> None:
    names = ("0004_housekeeping_indexes", "0005_ends_are_readable", "0006_known_devices", "0007_owners")
    behind = [("tenants", name) for name in names]
    forgotten(fleet, *behind)
    try:
        done = ran(fleet, "migrations", "--json")
        assert done.returncode == 2, done.stderr
        told = json.loads(done.stdout)
        assert [one["name"] for one in told["coming"]] == [".".join(one) for one in behind]
        assert {one["kind"] for one in told["coming"]} == {"expand"}
        assert any(
            held["table"].startswith("tenants_") and "wait" in held["why"] for held in told["coming"][0]["holds"]
        )
        assert f"{len(behind)} to come. Back up, then: luminet run migrate" in ran(fleet, "migrations").stdout
        for part in ("web", "worker"):
            refused = ran(fleet, "run", part)
            assert refused.returncode == 1
            assert "the database is not applied yet: run `luminet run migrate`" in refused.stderr
    finally:
        applied(fleet, *behind)


def test_a_database_that_a_contract_has_taken_ahead_lets_nobody_start_and_says_what_to_do(fleet: Fleet) -> None:
    applied(fleet, BEYOND)
    try:
        assert ran(fleet, "migrations").returncode == 0
        applied(fleet, CONTRACT)
        for command in (("run", "web"), ("run", "worker"), ("migrations",)):
            refused = ran(fleet, *command)
            assert refused.returncode == 1
            assert "the database is ahead of this code" in refused.stderr
            assert "tenants.0100_contract_names" in refused.stderr
            assert "Traceback" not in refused.stderr
    finally:
        forgotten(fleet, BEYOND, CONTRACT)


def test_a_database_that_is_away_is_said_to_be(fleet: Fleet) -> None:
    away = {**fleet.environment, "LUMINET_DATABASE_URL": "postgresql://luminet:none@127.0.0.1:9/luminet"}
    done = ran(Fleet(fleet.config, away, {}), "migrations")
    assert done.returncode == 1
    assert "the database does not answer" in done.stderr
