"""A backup is made, the fleet goes on, the database is lost, the backup is brought back: with every part a real one.

What agents hold then is newer than what the database knows: generations, epochs of purged namespaces, ids that were
given out. Customers are served all the while.
"""

import json
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from controlplane.stack.services import luminet
from tests.fleets import Fleet, fleet_running, inside, wait_for
from tests.recount import CACHED, PROMPT
from tests.usage_chats import Customer
from tests.usage_fleets import MODEL, customer, engine_agent, gateway, organisation_make, stored

PARTS = ("web", "worker", "beat")
PAUSE_SECONDS = 0.25
PURGED = "What this customer has said is confidential, and was to be forgotten by everybody. " * 6


@dataclass(slots=True)
class Asking:
    """A customer who goes on asking, whatever happens to the control plane."""

    url: str
    customer: Customer
    statuses: list[int] = field(default_factory=list)
    prompt_tokens: int = 0

    @contextmanager
    def going_on(self) -> Iterator[None]:
        over = threading.Event()

        def ask() -> None:
            while not over.wait(PAUSE_SECONDS):
                self.ask(f"How late is it, at question {len(self.statuses)}?")

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        try:
            yield
        finally:
            over.set()
            asking.join()

    def ask(self, question: str) -> tuple[int, int]:
        """Its status, and how many tokens were cached."""
        answer = asked(self.url, self.customer, question)
        self.statuses.append(answer.status_code)
        if answer.status_code == 200:
            self.prompt_tokens += int(answer.headers[PROMPT])
        return answer.status_code, int(answer.headers.get(CACHED, 0))


def asked(url: str, one: Customer, question: str) -> httpx.Response:
    body = {"model": MODEL, "messages": [{"role": "user", "content": question}], "max_tokens": 2}
    headers = {"authorization": f"Bearer {one.key}"}
    return httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60)


def luminet_run(fleet: Fleet, *words: str) -> "subprocess.CompletedProcess[str]":
    """With the settings of the control plane's own processes."""
    environment = {**_kept(), **fleet.environment}
    return subprocess.run(luminet(*words), env=environment, capture_output=True, text=True, check=False, timeout=300)


def _kept() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("LUMINET_", "DJANGO_"))}


def printed(fleet: Fleet, *words: str) -> Any:
    done = luminet_run(fleet, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def control_plane_stop(fleet: Fleet) -> None:
    for name in PARTS:
        fleet.parts[name].stop()


def control_plane_start(fleet: Fleet) -> None:
    for name in PARTS:
        fleet.parts[name].start(is_awaited=False)
    for name in PARTS:
        fleet.parts[name].wait_ready()


def database_destroy(fleet: Fleet) -> None:
    url = fleet.environment["LUMINET_DATABASE_URL"]
    place, _, name = url.rpartition("/")
    with psycopg.connect(f"{place}/postgres", autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def epochs(fleet: Fleet) -> dict[int, int]:
    return {int(pk): int(epoch) for pk, epoch in fleet.rows("SELECT id, epoch FROM tenants_namespace")}


def all_in_sync(fleet: Fleet, names: Sequence[str]) -> bool:
    items = fleet.ask("GET", "/fleet/agents?limit=200")["items"]
    found = {one["id"]: one for one in items}
    return all(name in found and found[name]["in_sync"] and found[name]["state"] == "ready" for name in names)


def ids(fleet: Fleet, organisation: str) -> tuple[int, int]:
    rows = fleet.rows(
        "SELECT o.id, n.id FROM tenants_organisation o JOIN tenants_namespace n ON n.organisation_id = o.id "
        "WHERE o.slug = %s AND n.slug = 'default'",
        organisation,
    )
    return int(rows[0][0]), int(rows[0][1])


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with fleet_running() as running:
        yield running


def test_a_fleet_takes_up_a_backup_and_nobody_is_served_what_was_purged(fleet: Fleet, tmp_path: Path) -> None:
    organisation_make(fleet, "acme")
    acme, old = customer(fleet, "acme"), customer(fleet, "acme", "that will be revoked")
    old_id = fleet.value("SELECT id FROM tenants_apikey ORDER BY created_at DESC LIMIT 1")
    with engine_agent(fleet, "engine-1"), gateway(fleet) as (_, url):
        wait_for(lambda: asked(url, acme, "Hello?").status_code == 200, "an answer")
        wait_for(lambda: asked(url, old, "Hello?").status_code == 200, "an answer to the other key")
        asking = Asking(url, acme)
        before = stored_tokens(fleet)
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
            wait_for(lambda: asked(url, late, "And I?").status_code == 200, "an answer to who came late")
            wait_for(lambda: asked(url, old, "Hello?").status_code == 401, "the key to be refused")
            for ttl in (60, 90, 120):
                fleet.ask("PUT", "/orgs/acme/policy", {"policy": {"kv_dtype": "bf16", "ttl_seconds": ttl}})
            wait_for(lambda: all_in_sync(fleet, ["engine-1", "gateway"]), "what was published to arrive")
            epochs_before, late_ids = epochs(fleet), ids(fleet, "late")
            generations = generations_of(fleet)
            trail = tmp_path / "trail.jsonl"
            trail.write_text(luminet_run(fleet, "audit", "export").stdout)

            control_plane_stop(fleet)
            database_destroy(fleet)
            count = len(asking.statuses)
            wait_for(lambda: len(asking.statuses) > count + 4, "customers to be served without a database")

            restored = printed(fleet, "restore", str(backup), "--yes", "--audit", str(trail))
            assert restored["era"]["namespaces"] >= 1
            assert restored["endings"]["carried_out"]["key.revoke"] == 1
            assert restored["endings"]["failed"] == []
            control_plane_start(fleet)
            wait_for(lambda: all_in_sync(fleet, ["engine-1", "gateway"]), "agents to take the backup up")
            assert all(generations_of(fleet)[name] > number for name, number in generations.items())
            acme_namespace = ids(fleet, "acme")[1]
            assert epochs(fleet)[acme_namespace] > epochs_before[acme_namespace], "epochs never go back"
            assert asking.ask(PURGED)[1] == 0, "what was purged after the backup matches again"
            assert asking.ask(PURGED)[1] > 0, "and from then on all is as ever"
            assert asked(url, old, "Hello?").status_code == 401, "a revoked key came back with the backup"
            assert asked(url, late, "And I?").status_code == 401, "who is not there is let in"

            organisation_make(fleet, "later")
            later = customer(fleet, "later")
            wait_for(lambda: asked(url, later, "And I?").status_code == 200, "an answer to who came after")
            assert ids(fleet, "later") > late_ids, "ids were given out again that agents had known"
            assert asked(url, later, PURGED).headers[CACHED] == "0"
        assert set(asking.statuses) == {200}, "somebody was not served"
        told = {"acme": asking.prompt_tokens}
        wait_for(lambda: stored_tokens(fleet)["acme"] - before.get("acme", 0) >= told["acme"], "usage to be told again")
        assert luminet_run(fleet, "audit", "verify").returncode == 0
        differences = json.loads(inside(fleet, "tests.usage_inside:differences"))
        assert differences == []


def stored_tokens(fleet: Fleet) -> dict[str, int]:
    found: dict[str, int] = {}
    for place, one in stored(fleet).items():
        found[place.organisation] = found.get(place.organisation, 0) + one.prompt_tokens
    return found


def generations_of(fleet: Fleet) -> dict[str, int]:
    rows = fleet.rows("SELECT id, applied_generation FROM fleet_agent WHERE revoked_at IS NULL")
    return {str(name): int(number) for name, number in rows}
