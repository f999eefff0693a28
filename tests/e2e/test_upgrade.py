"""A fleet that serves is upgraded to this code as docs/upgrades.md says, from the commit in deploy/upgrades-from.

Its database, journals, spools, snapshots and credentials are what that commit's own code wrote, its processes run that
code until they are replaced, and customers ask all the time. Where this tree has no such commit, that is said.
"""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from controlplane.stack.postgres import wheel_binaries
from tests.fleet.fleets import inside
from tests.support.waiting import wait_until
from tests.upgrading.clients import Clients, clients_asking
from tests.upgrading.code import NEW, Code, NoHistory, code_before
from tests.upgrading.fleet import AGENTS, MODEL, Upgrading, fleet_of
from tests.usage.chats import Customer, Door
from tests.usage.fleets import customer, organisation_make, told
from tests.usage.recount import Recount, Sum, total

ORGANISATIONS = ("acme", "globex")
NAMESPACE = "chat"  # of acme: whose policy is published again and again


@dataclass(slots=True)
class Seen:
    """What was seen on the way. `hashes`: what every agent held of each policy published, and which code it ran."""

    upgrading: Upgrading
    clients: Clients
    head: str = ""
    hashes: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)
    sessions: dict[str, bool] = field(default_factory=dict)
    ended_with: dict[str, int | None] = field(default_factory=dict)
    spooled: int = 0


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Code:
    try:
        return code_before(tmp_path_factory.mktemp("before"))
    except NoHistory as reason:
        pytest.skip(f"there is nothing to upgrade from: {reason}")


@pytest.fixture(scope="module")
def seen(old: Code) -> Iterator[Seen]:
    """All of it done, and nobody asks any more."""
    with fleet_of(old) as upgrading:
        customers = customers_made(upgrading)
        with clients_asking(customers, MODEL, upgrading.gateways["gateway-1"]) as clients:
            found = Seen(upgrading, clients)
            steps(found, old)
        yield found


def customers_made(upgrading: Upgrading) -> list[Customer]:
    fleet = upgrading.fleet
    organisation_make(fleet, "acme", NAMESPACE)
    organisation_make(fleet, "globex")
    found = [customer(fleet, "acme"), customer(fleet, "acme", NAMESPACE), customer(fleet, "globex")]
    wait_until(lambda: all(serves(upgrading, one) for one in found), "the gateway to know every key")
    return found


def serves(upgrading: Upgrading, one: Customer) -> bool:
    return Door(upgrading.gateways["gateway-1"], Recount()).serves(MODEL, one)


# As an operator does it


def steps(seen: Seen, old: Code) -> None:
    upgrading, clients = seen.upgrading, seen.clients
    clients.more(20)
    seen.head = json.loads(upgrading.command(old, "audit", "verify", "--json"))["head"]
    backed_up(upgrading)
    upgrading.migrate(NEW)
    upgrading.command(NEW, "migrations")  # ends well where nothing is to come
    published(seen, "the old control plane on the new database")
    upgrading.control_plane(NEW, "web", "worker", "beat")
    seen.sessions["the new web"] = upgrading.is_signed_in()
    published(seen, "the new control plane, everything else old")
    gateway_replaced(seen)
    published(seen, "a new gateway, old agents")
    agent_replaced(seen, "agent-1", NEW)
    published(seen, "one agent of each")
    purged(seen)
    agent_died_and_replaced(seen, "agent-2")
    published(seen, "everything new")
    clients.more(20)
    way_back(seen, old)
    clients.more(20)


def backed_up(upgrading: Upgrading) -> None:
    """While everything runs."""
    dump = wheel_binaries() / "bin" / "pg_dump"
    url = upgrading.fleet.environment["LUMINET_DATABASE_URL"]
    file = upgrading.fleet.config.home / "before.dump"
    subprocess.run([dump, "--format=custom", f"--file={file}", url], check=True)
    assert file.stat().st_size > 0


def gateway_replaced(seen: Seen) -> None:
    """The new one beside the old one, clients sent there, the old one drained until its answers ended, and stopped."""
    upgrading, clients = seen.upgrading, seen.clients
    address = upgrading.gateway("gateway-2", NEW)
    upgrading.ready("gateway-2")
    under_way = clients.long(clients.customers[0], seed=1)
    clients.move(address)
    gateway = upgrading.fleet.parts["gateway-1"]
    assert not under_way.is_over
    upgrading.command(NEW, "drain", "gateway-1", "--wait")
    assert upgrading.running("gateway-1") == 0, "the drain did not wait for its answers"
    under_way.whole()
    gateway.stop()
    assert gateway.process is not None
    seen.ended_with["gateway-1"] = gateway.process.returncode
    upgrading.command(NEW, "delete", "agent", "gateway-1", "--yes")


def agent_replaced(seen: Seen, name: str, code: Code) -> None:
    """As the guide has it: drained, which waits for its answers, stopped, started on its home, resumed."""
    upgrading = seen.upgrading
    under_way = seen.clients.long_at(name)
    upgrading.command(NEW, "drain", name, "--wait")
    under_way.whole()
    part = upgrading.fleet.parts[name]
    part.stop()
    assert part.process is not None
    seen.ended_with[name] = part.process.returncode
    upgrading.agent(name, code)
    upgrading.command(NEW, "resume", name, "--wait")
    upgrading.ready(name)
    seen.clients.more()


def agent_died_and_replaced(seen: Seen, name: str) -> None:
    """Drained; then its machine dies with reports on its disk that nobody has: the control plane is away just then."""
    upgrading, fleet = seen.upgrading, seen.upgrading.fleet
    under_way = seen.clients.long_at(name)
    upgrading.command(NEW, "drain", name)
    upgrading.ready("gateway-2")
    assert not under_way.is_over
    fleet.parts["web"].pause()
    try:
        under_way.whole()
        wait_until(lambda: upgrading.spooled(name) > 0, f"{name} to spool what nobody takes")
        seen.spooled = upgrading.spooled(name)
        seen.clients.more()
        upgrading.dies(name)
    finally:
        fleet.parts["web"].resume()
    upgrading.agent(name, NEW)
    upgrading.command(NEW, "resume", name, "--wait")
    upgrading.ready(name)
    seen.clients.more()


def way_back(seen: Seen, old: Code) -> None:
    """The control plane and one agent: on a database and a home that the new code has worked with."""
    upgrading = seen.upgrading
    upgrading.control_plane(old, "web", "worker", "beat")
    seen.sessions["the old web again"] = upgrading.is_signed_in()
    agent_replaced(seen, "agent-2", old)
    published(seen, "back on the old control plane, one agent of each")


# What is looked at on the way


def published(seen: Seen, when: str) -> None:
    """A policy, until every agent holds it, and answers say so."""
    upgrading, fleet = seen.upgrading, seen.upgrading.fleet
    policy = {"kv_dtype": "bf16", "ttl_seconds": 600 + len(seen.hashes)}
    made = fleet.ask("PUT", f"/orgs/acme/namespaces/{NAMESPACE}/policy", {"policy": policy})
    rollout = f"/rollouts/{made['rollout']}"
    wait_until(lambda: fleet.ask("GET", rollout)["state"] == "done", f"{when}: every agent to acknowledge it")
    upgrading.ready(*AGENTS)
    wait_until(
        lambda: made["revision"] in seen.clients.revisions.get(NAMESPACE, ()) or seen.clients.failures,
        f"{when}: answers of revision {made['revision']}",
    )
    shown = {name: upgrading.shown(name) for name in AGENTS}
    seen.hashes[when] = {name: (one["applied_hash"], upgrading.codes[name].name) for name, one in shown.items()}


def purged(seen: Seen) -> None:
    """A namespace, with a receipt of the old agent and of the new one."""
    fleet = seen.upgrading.fleet
    operation = fleet.ask("POST", f"/orgs/acme/namespaces/{NAMESPACE}/purge", {})["operation"]
    wait_until(lambda: fleet.ask("GET", f"/operations/{operation}")["state"] == "done", "both receipts of a purge")


def told_of(seen: Seen, organisation: str) -> Sum:
    return told(seen.upgrading.fleet, organisation)


# What must hold


def test_every_request_is_answered_whole_all_along(seen: Seen) -> None:
    assert seen.clients.failures == []
    assert seen.clients.answers > 100
    assert {one.place.agent for one in seen.clients.recount.answers} == {*AGENTS}


def test_whoever_is_stopped_ends_well_and_leaves_nothing_undone(seen: Seen) -> None:
    assert seen.ended_with == {"gateway-1": 0, "agent-1": 0, "agent-2": 0}
    assert seen.spooled > 0, "or the new code never had to deliver what the old one had left"


def test_a_policy_published_at_any_step_is_held_by_every_agent_with_one_hash(seen: Seen) -> None:
    for when, held in seen.hashes.items():
        assert len({applied for applied, _ in held.values()}) == 1, (when, held)
    codes = [sorted({code == NEW.name for _, code in held.values()}) for held in seen.hashes.values()]
    assert [False] in codes
    assert [False, True] in codes
    assert [True] in codes
    assert len({applied for held in seen.hashes.values() for applied, _ in held.values()}) == len(seen.hashes)


@pytest.mark.parametrize("organisation", ORGANISATIONS)
def test_the_last_24_hours_are_what_headers_said_to_its_clients(seen: Seen, organisation: str) -> None:
    truth = total(seen.clients.recount.lower(), organisation)
    wait_until(lambda: told_of(seen, organisation).requests >= truth.requests, "all that was counted to be told")
    assert told_of(seen, organisation) == truth
    assert truth.cached_tokens > 0


def test_everybody_who_counts_agrees_to_the_token(seen: Seen) -> None:
    truth = total(seen.clients.recount.lower())
    wait_until(lambda: sum(told_of(seen, one).requests for one in ORGANISATIONS) >= truth.requests, "all to be told")
    assert json.loads(inside(seen.upgrading.fleet, "tests.usage.inside:differences")) == []


def test_the_audit_trail_goes_on_where_the_old_code_left_it(seen: Seen) -> None:
    verified = seen.upgrading.command(NEW, "audit", "verify", "--head", seen.head, "--json")
    assert json.loads(verified)["sound"] is True


def test_who_had_signed_in_stays_so(seen: Seen) -> None:
    assert seen.sessions == {"the new web": True, "the old web again": True}
