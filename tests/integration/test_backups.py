"""A backup is made, the fleet goes on, the database is lost, the backup is brought back: with every part a real one.

What agents hold then is newer than what the database knows: generations, epochs of purged namespaces, ids that were
given out. Customers are served all the while.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from controlplane.backups.databases import server_open, with_database
from controlplane.backups.errors import BackupProblem
from controlplane.backups.restoring import put_in_place
from tests.fleet.fleets import Fleet, fleet_running, inside
from tests.fleet.uninterrupted import (
    Asking,
    all_in_sync,
    asked,
    control_plane_start,
    control_plane_stop,
    luminet_run,
    printed,
    serves,
)
from tests.support.waiting import wait_until
from tests.usage.fleets import customer, engine_agent, gateway, naming, organisation_make, stored
from tests.usage.recount import CACHED, total

LOCALES = """SELECT datlocprovider::text, datlocale, pg_encoding_to_char(encoding) FROM pg_database
WHERE datname IN (%s, %s)"""
PURGED = "What this customer has said is confidential, and was to be forgotten by everybody. " * 6


def database_destroy(fleet: Fleet) -> None:
    url = fleet.database_url
    place, _, name = url.rpartition("/")
    with psycopg.connect(f"{place}/postgres", autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def epochs(fleet: Fleet) -> dict[int, int]:
    return {int(pk): int(epoch) for pk, epoch in fleet.rows("SELECT id, epoch FROM tenants_namespace")}


def ids(fleet: Fleet, organisation: str) -> tuple[int, int]:
    rows = fleet.rows(
        "SELECT o.id, n.id FROM tenants_organisation o JOIN tenants_namespace n ON n.organisation_id = o.id "
        "WHERE o.slug = %s AND n.slug = 'default'",
        organisation,
    )
    return int(rows[0][0]), int(rows[0][1])


def given_out(fleet: Fleet) -> dict[str, int | None]:
    """The last id of what is known by it outside the control plane."""
    rows = fleet.rows(
        "SELECT sequencename::text, last_value FROM pg_sequences "
        "WHERE sequencename IN ('tenants_organisation_id_seq', 'tenants_namespace_id_seq')"
    )
    assert len(rows) == 2
    return {str(name): None if value is None else int(value) for name, value in rows}


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with fleet_running() as running:
        yield running


def test_a_fleet_takes_up_a_backup_and_nobody_is_served_what_was_purged(fleet: Fleet, tmp_path: Path) -> None:
    organisation_make(fleet, "acme")
    acme, old = customer(fleet, "acme"), customer(fleet, "acme", "that will be revoked")
    old_id = fleet.value("SELECT id FROM tenants_apikey ORDER BY created_at DESC LIMIT 1")
    with engine_agent(fleet, "engine-1"), gateway(fleet) as (_, url):
        wait_until(lambda: serves(url, acme), "an answer")
        wait_until(lambda: serves(url, old), "an answer to the other key")
        wait_until(lambda: total(stored(fleet), "acme").requests == 2, "these two to be counted")
        asking, before = Asking(url, acme), total(stored(fleet), "acme")
        with asking.going_on():
            asking.ask(PURGED)
            assert asking.ask(PURGED)[1] > 0, "it is cached"
            backup = tmp_path / "luminet.backup"
            made = printed(fleet, "backup", str(backup))
            assert made["bytes"] == backup.stat().st_size > 0
            assert backup.stat().st_mode & 0o777 == 0o600

            # What the backup does not know.
            fleet.ask("POST", "/orgs/acme/namespaces/default/purge", {})
            fleet.ask("DELETE", f"/orgs/acme/keys/{old_id}")
            organisation_make(fleet, "late")
            late = customer(fleet, "late")
            wait_until(lambda: asked(url, late, "And I?").status_code == 200, "an answer to who came late")
            wait_until(lambda: asked(url, old, "Hello?").status_code == 401, "the key to be refused")
            for ttl in (60, 90, 120):
                fleet.ask("PUT", "/orgs/acme/policy", {"policy": {"kv_dtype": "bf16", "ttl_seconds": ttl}})
            wait_until(lambda: all_in_sync(fleet, ["engine-1", "gateway"]), "what was published to arrive")
            epochs_before, late_ids = epochs(fleet), ids(fleet, "late")
            generations = generations_of(fleet)
            trail = tmp_path / "trail.jsonl"
            trail.write_text(luminet_run(fleet, "audit", "export").stdout)

            control_plane_stop(fleet)
            ids_before = given_out(fleet)
            printed(fleet, "restore", "--already-restored", "--audit", str(trail), "--dry-run")
            tried = printed(fleet, "restore", str(backup), "--audit", str(trail), "--dry-run")
            assert tried["endings"]["carried_out"]["key.revoke"] == 1
            assert (epochs(fleet), given_out(fleet)) == (epochs_before, ids_before), "a dry run changed something"
            database_destroy(fleet)
            count = len(asking.statuses)
            wait_until(lambda: len(asking.statuses) > count + 4, "customers to be served without a database")

            restored = printed(fleet, "restore", str(backup), "--yes", "--audit", str(trail))
            assert restored["era"]["namespaces"] >= 1
            assert restored["endings"]["carried_out"]["key.revoke"] == 1
            assert restored["endings"]["failed"] == []
            strangers = "SELECT has_function_privilege('public', 'luminet_minutes_drop(date)', 'EXECUTE')"
            assert fleet.value(strangers) is False, "a restore lets strangers drop days of usage"
            control_plane_start(fleet)
            # The backup says that they are in sync: what they were when it was made.
            wait_until(lambda: all_beyond(fleet, generations), "agents to be told of the backup")
            wait_until(lambda: all_in_sync(fleet, ["engine-1", "gateway"]), "agents to take the backup up")
            acme_namespace = ids(fleet, "acme")[1]
            assert epochs(fleet)[acme_namespace] > epochs_before[acme_namespace], "epochs never go back"
            assert asking.ask(PURGED)[1] == 0, "what was purged after the backup matches again"
            assert asking.ask(PURGED)[1] > 0, "and from then on all is as ever"
            assert asked(url, old, "Hello?").status_code == 401, "a revoked key came back with the backup"
            assert asked(url, late, "And I?").status_code == 401, "who is not there is let in"

            organisation_make(fleet, "later")
            later = customer(fleet, "later")
            wait_until(lambda: asked(url, later, "And I?").status_code == 200, "an answer to who came after")
            assert ids(fleet, "later") > late_ids, "ids were given out again that agents had known"
            assert asked(url, later, PURGED).headers[CACHED] == "0"
        assert set(asking.statuses) == {200}, "somebody was not served"
        told = before + total(asking.recount.lower())
        with naming(lambda: (told, total(stored(fleet), "acme"))):
            wait_until(lambda: total(stored(fleet), "acme") == told, "usage to be told again, once")
        assert luminet_run(fleet, "audit", "verify").returncode == 0
        differences = json.loads(inside(fleet, "tests.usage.inside:differences"))
        assert differences == []


def generations_of(fleet: Fleet) -> dict[str, int]:
    rows = fleet.rows("SELECT id, applied_generation FROM fleet_agent WHERE revoked_at IS NULL")
    return {str(name): int(number) for name, number in rows}


def all_beyond(fleet: Fleet, before: Mapping[str, int]) -> bool:
    """Whether every agent has a later snapshot than then in force."""
    now = generations_of(fleet)
    return all(now[name] > number for name, number in before.items())


def test_a_backup_is_tried_without_changing_anything(fleet: Fleet, tmp_path: Path) -> None:
    backup = str(tmp_path / "luminet.backup")
    printed(fleet, "backup", backup)
    before = epochs(fleet)
    tried = printed(fleet, "restore", backup, "--dry-run")
    assert tried["aside"] is None
    assert epochs(fleet) == before
    databases = {name for (name,) in fleet.rows("SELECT datname FROM pg_database")}
    assert not any(name.endswith("_restoring") for name in databases)


def test_what_was_there_before_is_there_again_when_the_backup_cannot_take_its_place(fleet: Fleet) -> None:
    url = fleet.database_url
    with server_open(url) as server:
        for name in ("place", "place_restoring"):
            server.create(name)
        assert set(fleet.rows(LOCALES, "place", "place_restoring")) == {("b", "C.UTF-8", "UTF8")}
        now = datetime(2026, 11, 28, tzinfo=UTC)
        with (
            psycopg.connect(with_database(url, "place_restoring")),
            pytest.raises(BackupProblem, match="being accessed"),
        ):
            put_in_place(server, fresh="place_restoring", name="place", now=now)
        assert (server.has("place"), server.has("place_restoring")) == (True, True)
        assert put_in_place(server, fresh="place_restoring", name="place", now=now) == "place_before_20261128_000000"
        for name in ("place", "place_before_20261128_000000"):
            server.drop(name)


def test_what_cannot_be_is_said_before_anything_is_touched(fleet: Fleet, tmp_path: Path) -> None:
    organisation_make(fleet, "sealed")  # with a key of its own, under the master key
    backup = str(tmp_path / "luminet.backup")
    printed(fleet, "backup", backup)
    other = {"LUMINET_MASTER_KEY": "b3RoZXIgbWFzdGVyIGtleSBvdGhlciBtYXN0ZXIga2V5"[:43] + "="}
    for words, change, said in (
        (("backup", backup), {}, "is there already: no backup is written over another"),
        (("restore", backup, "--yes"), {}, "open to the database luminet: stop web, worker, beat"),
        (("restore", __file__, "--yes"), {}, "is no backup: `luminet backup` makes one"),
        (("restore", f"{backup}.not-there"), {}, "No such file or directory"),
        (("restore", backup, "--dry-run"), other, "LUMINET_MASTER_KEY: another one than the backup's"),
        (("backup", str(tmp_path / "nowhere" / "file")), {}, "No such file or directory"),
    ):
        done = luminet_run(fleet, *words, **change)
        assert (done.returncode, said in done.stderr) == (1, True), (words, done.stderr)
        assert "Traceback" not in done.stderr
