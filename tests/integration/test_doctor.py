"""`luminet doctor` as people run it, beside a real control plane that is well, and after something of it was broken."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from controlplane.settings.env import CHECKOUT
from tests.fleet.control_planes import AGENT, control_plane, sidecar
from tests.fleet.fleets import Fleet, fleet_running, inside
from tests.support.ports import free_port
from tests.support.waiting import wait_until

PATIENT = ("--seconds", "60")  # the machine may have much else to do
Told = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with fleet_running() as fleet:
        fleet.simulate(2)
        fleet.ask("POST", "/orgs", {"slug": "acme", "name": "Acme"})  # with a namespace, and a key sealed for it
        fleet.agents_wait(2)
        # The trail came with the template of databases, which may be older than an anchor may be.
        inside(fleet, "tests.usage.inside:audit_anchor")
        yield fleet


def run(environ: Mapping[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LUMINET_", "DJANGO_"))}
    command = [sys.executable, "-m", "controlplane.cli", "doctor", *PATIENT, *arguments]
    done = subprocess.run(command, cwd=CHECKOUT, env={**kept, **environ}, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stdout + done.stderr
    return done


def told(environ: Mapping[str, str], *arguments: str) -> tuple[int, Told]:
    """By name; the gravest of each."""
    done = run(environ, "--json", *arguments)
    order = ["not_examined", "ok", "note", "warning", "broken"]
    found = sorted(json.loads(done.stdout), key=lambda one: order.index(one["status"]))
    assert all(one["do"] for one in found if one["status"] in ("warning", "broken"))
    return done.returncode, {one["name"]: one for one in found}


def of_processes(fleet: Fleet, **more: str) -> dict[str, str]:
    """Production's settings: without a stack's home."""
    return {**{name: one for name, one in fleet.environment.items() if name != "LUMINET_HOME"}, **more}


def from_afar(fleet: Fleet, token: str) -> dict[str, str]:
    return {"LUMINET_URL": fleet.web, "LUMINET_TOKEN": token, "LUMINET_HOME": str(fleet.config.home / "nobody's")}


def told_of_agents_in_sync(fleet: Fleet) -> tuple[int, Told]:
    """On a busy machine an agent may be behind for a moment, and the doctor names it then."""
    heard: list[tuple[int, Told]] = []

    def are_in_sync() -> bool:
        heard[:] = [told(of_processes(fleet))]
        return "agents" in heard[0][1]

    wait_until(are_in_sync, "agents that are in sync")
    return heard[0]


def is_pulse_there(fleet: Fleet) -> bool:
    return bool(fleet.value("SELECT count(*) FROM live_pulse WHERE recorded_at > now() - interval '5 s'"))


def test_a_control_plane_that_is_well_is_told_so_and_no_secret_is_shown(fleet: Fleet) -> None:
    wait_until(lambda: is_pulse_there(fleet), "a pulse")
    status, found = told_of_agents_in_sync(fleet)
    assert [one for one in found.values() if one["status"] == "broken"] == []
    assert status == 0
    stores = ("database", "database-owner", "redis", "redis-login", "agent-login-trial", "agent-logins")
    for name in (*stores, "web", "worker", "beat", "pulse", "migrations"):
        assert found[name]["status"] == "ok", found[name]
    assert found["agents"]["says"].startswith("2 agents and gateways are in sync")
    said = json.dumps(found)
    secrets = [path.read_text().strip() for path in fleet.config.secrets.iterdir()]
    assert len(secrets) >= 7
    assert [one for one in secrets if one in said] == []


def test_the_whole_trail_is_walked_where_that_is_asked_for(fleet: Fleet) -> None:
    status, found = told(of_processes(fleet), "--deep", "trail")
    assert (status, found["audit"]["status"]) == (0, "ok")


def test_a_wrong_password_for_the_database_is_broken_and_what_needs_it_is_not_examined(fleet: Fleet) -> None:
    head, _, place = fleet.environment["LUMINET_DATABASE_URL"].partition("@")
    wrong = f"{head.rpartition(':')[0]}:wrong-one@{place}"
    status, found = told(of_processes(fleet, LUMINET_DATABASE_URL=wrong), "reachability", "migrations", "fleet")
    assert status == 1
    assert "password authentication failed" in found["database"]["says"]
    assert "wrong-one" not in json.dumps(found)
    assert {found[name]["status"] for name in ("migrations", "agents", "pulse")} == {"not_examined"}
    assert found["redis"]["status"] == "ok"


def test_a_redis_that_is_away_is_broken_and_the_database_is_examined_as_ever(fleet: Fleet) -> None:
    away = f"redis://127.0.0.1:{free_port()}/0"
    status, found = told(of_processes(fleet, LUMINET_REDIS_URL=away), "reachability", "migrations")
    assert (status, found["redis"]["status"], found["worker"]["status"]) == (1, "broken", "not_examined")
    assert (found["database"]["status"], found["migrations"]["status"]) == ("ok", "ok")


def test_a_redis_that_hangs_is_told_and_nobody_waits_for_it(fleet: Fleet) -> None:
    fleet.parts["redis"].pause()
    try:
        status, found = told(of_processes(fleet), "reachability")
    finally:
        fleet.parts["redis"].resume()
    assert (status, found["redis"]["status"]) == (1, "broken")
    wait_until(lambda: is_pulse_there(fleet), "the pulse to be back")


@pytest.mark.parametrize("where", [("--home", "."), ("--url", "http://127.0.0.1:9")], ids=["home", "url"])
def test_a_trail_that_is_in_no_database_here_is_not_promised(where: tuple[str, str]) -> None:
    done = run({}, "--deep", *where)
    assert (done.returncode, done.stdout) == (1, "")
    assert "--deep walks the audit trail in its database" in done.stderr


def test_a_migration_that_is_missing_and_one_that_is_ahead_are_told(fleet: Fleet) -> None:
    name = fleet.value("SELECT name FROM django_migrations WHERE app = 'alerts' ORDER BY id DESC LIMIT 1")
    fleet.rows("UPDATE django_migrations SET name = '0999_contract_tomorrow' WHERE app = 'alerts' AND name = %s", name)
    try:
        done = run(of_processes(fleet), "migrations")
    finally:
        fleet.rows("UPDATE django_migrations SET name = %s WHERE name = '0999_contract_tomorrow'", name)
    assert done.returncode == 1
    assert f"1 migration is not applied, the first is alerts.{name}" in done.stdout
    assert "luminet run migrate" in done.stdout
    assert (
        "The database is ahead of this Luminet, which cannot work with it: alerts.0999_contract_tomorrow" in done.stdout
    )


def test_another_master_key_opens_nothing_and_a_malformed_setting_is_named(fleet: Fleet) -> None:
    other = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
    status, found = told(of_processes(fleet, LUMINET_MASTER_KEY=other), "secrets")
    assert (status, found["master-key"]["status"]) == (1, "broken")
    assert other not in json.dumps(found)
    status, found = told(of_processes(fleet, LUMINET_PEPPER="AAAA"), "secrets", "reachability")
    assert (status, found["LUMINET_PEPPER"]["status"]) == (1, "broken")


def test_an_agents_login_that_may_do_more_than_its_own_is_found(fleet: Fleet) -> None:
    with fleet.broker() as broker:
        login = next(one for one in map(str, broker.acl_users()) if one.startswith("agent."))
        fleet.parts["worker"].pause()  # its sweep would set it right
        broker.execute_command("ACL SETUSER", login, "~*", "+@all")
        try:
            status, found = told(of_processes(fleet), "reachability")
        finally:
            fleet.parts["worker"].resume()
    assert (status, found["agent-logins"]["status"]) == (1, "broken")
    assert login in found["agent-logins"]["says"]
    assert found["worker"]["status"] == "broken"


def test_a_model_that_nobody_measured_in_the_fleets_format_is_told_of(fleet: Fleet) -> None:
    assert "formats" not in told(of_processes(fleet), "fleet")[1], "no request comes to a simulated agent"
    fleet.rows("""UPDATE fleet_agent SET about = jsonb_set(about, '{address}', '"http://127.0.0.1:9"')""")
    try:
        status, found = told(of_processes(fleet), "fleet")
    finally:
        fleet.rows("UPDATE fleet_agent SET about = jsonb_set(about, '{address}', 'null')")
    assert (status, found["formats"]["status"]) == (0, "warning")
    assert "get 400: fp8 was not measured on simulated" in found["formats"]["says"]


def test_from_afar_an_operator_sees_the_fleet_and_a_wrong_token_is_told(fleet: Fleet) -> None:
    wait_until(lambda: is_pulse_there(fleet), "a pulse")
    status, found = told(from_afar(fleet, fleet.tokens["operator"]))
    assert (status, found["token"]["status"], found["pulse"]["status"]) == (0, "ok", "ok")
    assert found["luminet"]["says"].endswith("as the control plane")
    status, found = told(from_afar(fleet, "lmo_wrong"), "reachability", "fleet")
    assert (status, found["token"]["status"], found["agents"]["status"]) == (1, "broken", "not_examined")


def test_an_address_that_leads_nowhere_is_told_and_a_token_does_not_travel_in_clear(tmp_path: Path) -> None:
    nowhere = {
        "LUMINET_URL": f"http://127.0.0.1:{free_port()}",
        "LUMINET_TOKEN": "lmo_x",
        "LUMINET_HOME": str(tmp_path),
    }
    status, found = told(nowhere)
    assert (status, found["web"]["status"]) == (1, "broken")
    done = run({**nowhere, "LUMINET_URL": "http://luminet.invalid"})
    assert (done.returncode, "would travel in clear" in done.stderr) == (1, True)


def test_an_agent_that_hangs_is_stale(fleet: Fleet) -> None:
    part = fleet.simulate(1, prefix="late")
    fleet.agents_wait(3)
    part.pause()
    try:
        wait_until(
            lambda: fleet.value("SELECT bool_or(conditions ? 'stale') FROM fleet_agent WHERE id LIKE 'late%%'"),
            "it to be stale",
        )
        status, found = told(of_processes(fleet), "fleet")
    finally:
        part.resume()
    name = fleet.value("SELECT id FROM fleet_agent WHERE id LIKE 'late%%'")
    assert (status, found[name]["status"]) == (1, "broken")
    assert "is stale" in found[name]["says"]


def test_an_agents_home_says_whose_it_is_whether_it_runs_and_what_its_logins_can_do(
    redis_server: str, tmp_path: Path
) -> None:
    home = tmp_path / "agent"
    with control_plane(redis_server) as plane:
        with sidecar(plane, home, "--engine-state", str(tmp_path / "engine")):
            wait_until(lambda: (home / "credentials").exists(), "it to join")
            _, found = told({}, "--home", str(home), "reachability", "permissions")
            assert found["credentials"]["says"].startswith(f"This is the engine {AGENT} of")
            assert {found[name]["status"] for name in ("process", "broker", "files")} == {"ok"}
        (home / "credentials").chmod(0o644)
        plane.token = "another"
        status, found = told({}, "--home", str(home), "reachability", "permissions")
    assert status == 1
    assert {found[name]["status"] for name in ("process", "control-plane", "files")} == {"broken"}
    assert "does not know its token" in found["control-plane"]["says"]
    status, found = told({}, "--home", str(home), "reachability")
    assert "does not answer" in found["control-plane"]["says"]


def test_in_a_bare_place_it_says_make_up_and_whose_files_others_can_read(tmp_path: Path) -> None:
    bare = {"LUMINET_HOME": str(tmp_path / "home"), "LUMINET_WEB_PORT": str(free_port())}
    done = run(bare, "reachability")
    assert (done.returncode, "→ make up" in done.stdout) == (1, True)
    secrets = tmp_path / "home" / "secrets"
    secrets.mkdir(parents=True)
    (tmp_path / "home").chmod(0o700)
    secrets.chmod(0o700)
    (secrets / "pepper").touch(mode=0o644)
    (secrets / "pepper").chmod(0o644)
    status, found = told(bare, "permissions")
    assert (status, found["files"]["do"]) == (1, f"chmod 600 {secrets / 'pepper'}")


def test_without_any_package_it_still_says_what_is_missing() -> None:
    """Python alone, as on a machine where nothing was installed."""
    with tempfile.TemporaryDirectory() as folder:
        kept = {"PATH": os.environ["PATH"], "LUMINET_HOME": folder, "PYTHONPATH": str(CHECKOUT)}
        command = [sys.executable, "-S", "-m", "controlplane.cli", "doctor", *PATIENT]
        done = subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode == 1, done.stderr
    assert "packages are not installed for this Python: django, psycopg" in done.stdout
