"""A fleet whose numbers are looked at: what is stored, what is told, and PostgreSQL's own death."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil

from controlplane.common.health import NotReady, database_check
from controlplane.stack.config import unprivileged_owner
from controlplane.stack.credentials import credentials_ensure
from controlplane.stack.postgres import Cluster, cluster_prepare, identity
from controlplane.stack.services import luminet
from tests.engines.processes import DEMO
from tests.fleet.fleets import Fleet, Part, inside
from tests.suite import outliving
from tests.support.ports import free_port
from tests.support.waiting import WaitTimeout, wait_until
from tests.usage.agents import TellingAgent, Whose
from tests.usage.chats import Customer
from tests.usage.pages import OpenPages, pages_open
from tests.usage.recount import KeptJournals, Place, Sum, Sums, journals_kept
from tests.usage.traffic import BOOT, JOURNALS

MODEL = "demo"
AGREE_SECONDS = 180.0
STORED = (
    "SELECT o.slug, n.slug, s.agent, sum(m.requests)::bigint, sum(m.prompt_tokens)::bigint, "
    "sum(m.cached_tokens)::bigint FROM analytics_minute m JOIN analytics_series s ON s.id = m.series_id "
    "JOIN tenants_namespace n ON n.id = s.namespace_id JOIN tenants_organisation o ON o.id = n.organisation_id "
    "WHERE s.kind = 'customer' GROUP BY 1, 2, 3 HAVING sum(m.requests) > 0"
)
STORED_BY_IDS = (
    "SELECT s.organisation_id, s.namespace_id, sum(m.requests)::bigint, sum(m.prompt_tokens)::bigint, "
    "sum(m.cached_tokens)::bigint FROM analytics_minute m JOIN analytics_series s ON s.id = m.series_id "
    "WHERE s.kind = 'customer' AND s.agent LIKE %s GROUP BY 1, 2 HAVING sum(m.requests) > 0"
)
STORED_MINUTES = (
    "SELECT extract(epoch FROM m.minute)::bigint, sum(m.requests)::bigint FROM analytics_minute m "
    "JOIN analytics_series s ON s.id = m.series_id WHERE s.kind = 'customer' AND s.agent LIKE %s GROUP BY 1"
)
WHOSE = (
    "SELECT o.id, n.id FROM tenants_namespace n JOIN tenants_organisation o ON o.id = n.organisation_id "
    "WHERE o.slug = %s AND n.slug = %s"
)


# Tenants


def organisation_make(fleet: Fleet, slug: str, *namespaces: str) -> None:
    """In the format that the demo model may serve on any machine."""
    fleet.ask("POST", "/orgs", {"slug": slug, "name": slug.title()})
    fleet.ask("PUT", f"/orgs/{slug}/policy", {"policy": {"kv_dtype": "bf16"}})
    for name in namespaces:
        fleet.ask("POST", f"/orgs/{slug}/namespaces", {"slug": name})


def customer(fleet: Fleet, organisation: str, namespace: str | None = None) -> Customer:
    """With a key for all of the organisation's namespaces."""
    key = fleet.ask("POST", f"/orgs/{organisation}/keys", {"name": f"key of {namespace}", "scopes": ["infer"]})
    return Customer(organisation, key["secret"], namespace)


def whose(fleet: Fleet, organisation: str, namespace: str = "default") -> Whose:
    ((organisation_id, namespace_id),) = fleet.rows(WHOSE, organisation, namespace)
    return Whose(str(organisation_id), str(namespace_id))


def telling(fleet: Fleet, name: str) -> TellingAgent:
    return TellingAgent.enrolled(fleet.web, fleet.tokens["join"], name)


# What is stored, and what is told


def stored(fleet: Fleet) -> Sums:
    """Of customers, straight from the rows of minutes."""
    return {Place(*row[:3]): Sum(*row[3:]) for row in fleet.rows(STORED)}


def stored_by_ids(fleet: Fleet, agents: str = "%") -> dict[tuple[str, str], Sum]:
    """By the ids that engines know, of the agents with such names."""
    found = fleet.rows(STORED_BY_IDS, agents)
    return {(str(place[0]), str(place[1])): Sum(*place[2:]) for place in found}


def stored_minutes(fleet: Fleet, agents: str = "%") -> dict[int, int]:
    """How many requests of customers in each minute, by its unix seconds."""
    return {int(minute): int(requests) for minute, requests in fleet.rows(STORED_MINUTES, agents)}


def told(fleet: Fleet, organisation: str, window: str = "24h", namespace: str | None = None) -> Sum:
    """By the API."""
    where = "" if namespace is None else f"&namespace={quote(namespace)}"
    found = fleet.ask("GET", f"/orgs/{organisation}/stats?window={window}{where}")
    return Sum(found["requests"], found["prompt_tokens"], found["cached_tokens"])


def operator_pages(fleet: Fleet, paths: Sequence[str]) -> AbstractContextManager[OpenPages]:
    """Live sockets, as the operator whom fleets have."""
    return pages_open(fleet.web, json.loads(inside(fleet, "tests.usage.inside:operator_session")), paths)


def refused_rows(fleet: Fleet, agent: str) -> list[tuple[Any, ...]]:
    return fleet.rows(
        'SELECT report, "row", field, problem FROM analytics_refusedrow WHERE agent = %s ORDER BY id', agent
    )


# Processes


@contextmanager
def engine_agent(
    fleet: Fleet, name: str, *options: str, within: Callable[[Sequence[str]], Sequence[str]] = tuple
) -> Iterator[tuple[Part, Path]]:
    """A real sidecar, and an engine with the demo model that it started; and its home. `within`: how it is started."""
    home = fleet.config.home / name
    command = luminet("agent", "--join", fleet.web, "--name", name, "--home", str(home), "--model", str(DEMO))
    engine = ("--model-name", MODEL, "--port", str(free_port()), "--status-port", str(free_port()))
    small = ("--pool", "32MiB", "--device", "cpu", "--threads", "1")
    part = _part(fleet, name, within((*command, *engine, *small, *options)))
    with _running(fleet, part, name):
        yield part, home


@contextmanager
def gateway(fleet: Fleet, name: str = "gateway") -> Iterator[tuple[Part, str]]:
    """And where it listens."""
    port, home = free_port(), fleet.config.home / name
    command = luminet("gateway", "--join", fleet.web, "--name", name, "--home", str(home), "--port", str(port))
    part = _part(fleet, name, command)
    with _running(fleet, part, name):
        yield part, f"http://127.0.0.1:{port}"


def _part(fleet: Fleet, name: str, command: Sequence[str]) -> Part:
    environment = {"LUMINET_JOIN_TOKEN": fleet.tokens["join"], "PYTHONUNBUFFERED": "1"}
    return Part(name, command, environment, fleet.config.logs / f"{name}.log")


@contextmanager
def _running(fleet: Fleet, part: Part, name: str) -> Iterator[None]:
    fleet.agents.append(part)
    part.start()
    try:
        wait_until(lambda: is_ready(fleet, name), f"{name} to be ready\n{part.said[-3000:]}")
        yield
    finally:
        part.stop()
        with suppress(Exception):  # whatever else failed is the news
            fleet.ask("DELETE", f"/fleet/agents/{name}")


def is_ready(fleet: Fleet, *names: str) -> bool:
    """Whether all of these are ready and in sync."""
    items = fleet.ask("GET", "/fleet/agents?limit=200")["items"]
    return {*names} <= {one["id"] for one in items if one["state"] == "ready" and one["in_sync"]}


def engine_of(part: Part) -> psutil.Process:
    """The process that a sidecar has started."""
    return wait_until(lambda: next(iter(psutil.Process(part.pid).children()), None), "an engine's process")


@dataclass(slots=True)
class Traffic:
    """Simulated agents in one process (usage_traffic.py), which write journals as engines do and have production's
    sidecars tell them. What stands in those journals is the truth. `clock`: how far their wall clock is ahead.
    """

    fleet: Fleet
    prefix: str
    agents: int
    kept: KeptJournals
    clock: Path
    part: Part

    @property
    def home(self) -> Path:
        return self.fleet.config.home / f"agents-{self.prefix}"

    def start(self, rate: float) -> None:
        """So many requests a second of each agent; 0: they only tell what is left."""
        self.part.command = traffic_command(self.fleet, self.prefix, self.agents, self.home, self.clock, rate)
        self.part.start()

    def restart(self, rate: float) -> None:
        self.part.kill()
        self.start(rate)

    def requests(self) -> int:
        """As the journals have it."""
        return sum(one.requests for one in self.kept.sums().values())

    def stored(self) -> dict[tuple[str, str], Sum]:
        return stored_by_ids(self.fleet, f"{self.prefix}-%")

    def stored_requests(self) -> int:
        return sum(one.requests for one in self.stored().values())

    def differences(self) -> dict[tuple[str, str], tuple[Sum, Sum]]:
        """Between journals and rows, by namespace."""
        journals, rows = self.kept.sums(), self.stored()
        both = {place: (journals.get(place, Sum()), rows.get(place, Sum())) for place in {*journals, *rows}}
        return {place: two for place, two in both.items() if two[0] != two[1]}

    def agree(self) -> None:
        """Until the journals and the rows are the same, with no more traffic."""
        self.part.stop()
        self.start(0)
        self.until_the_same()

    def quiet(self) -> None:
        """No more traffic in this process, and all of it told."""
        os.kill(self.part.pid, signal.SIGUSR1)
        self.until_the_same()

    def until_the_same(self) -> None:
        with naming(self.differences):
            wait_until(lambda: not self.differences(), "journals and rows to be the same", seconds=AGREE_SECONDS)

    def boots(self) -> int:
        """How many have written journals."""
        return len(self.kept.boots())

    def journals_of(self, boot: str) -> int:
        """How many were begun by that name."""
        return len(list(self.kept.folder.glob(f"*__*-{boot}__000000000001.log")))

    def clock_set(self, seconds: float) -> None:
        self.clock.write_text(str(seconds))


@contextmanager
def naming(found: Callable[[], object]) -> Iterator[None]:
    """What is waited for in vain is said with what there is instead."""
    try:
        yield
    except WaitTimeout as problem:
        raise WaitTimeout(f"{problem}: {found()}") from None


def traffic_command(fleet: Fleet, prefix: str, agents: int, home: Path, clock: Path, rate: float) -> tuple[str, ...]:
    own = (sys.executable, "-m", "tests.usage.clock", str(clock), "tests.usage.traffic")
    told = ("--join", fleet.web, "--agents", str(agents), "--home", str(home), "--prefix", prefix, "--json-logs")
    return (*own, *told, "--traffic", f"{rate:g}")


@contextmanager
def traffic(
    fleet: Fleet, prefix: str, *, agents: int = 2, rate: float = 50, boot: str | None = None
) -> Iterator[Traffic]:
    home = fleet.config.home
    (home / f"agents-{prefix}").mkdir()
    clock = home / f"clock-{prefix}"
    clock.write_text("0")
    with journals_kept(home / f"kept-{prefix}", home / f"agents-{prefix}") as kept:
        part = _part(fleet, f"agents-{prefix}", ())
        part.environment = {
            **part.environment,
            JOURNALS: str(home / f"agents-{prefix}"),
            **({BOOT: boot} if boot else {}),
        }
        found = Traffic(fleet, prefix, agents, kept, clock, part)
        fleet.agents.append(found.part)
        found.start(rate)
        try:
            with naming(lambda: found.part.said[-3000:]):
                wait_until(lambda: found.stored_requests() > 0, f"traffic of {prefix}")
            yield found
        finally:
            found.part.stop()


class Postgres:
    """The fleet's own: killed with all its backends, and started anew on what it left."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._started: list[subprocess.Popen[bytes]] = []
        self.kills = 0

    def kill(self) -> None:
        """SIGKILL to all of it at once: nothing is written any more."""
        postmaster = psutil.Process(self._pid())
        everybody = [postmaster, *postmaster.children(recursive=True)]
        for one in everybody:
            with suppress(psutil.NoSuchProcess):
                os.kill(one.pid, signal.SIGKILL)
        for one in everybody:
            with suppress(psutil.NoSuchProcess):
                one.wait(20)
        self.kills += 1

    def start(self) -> None:
        cluster, url = self._cluster(), self._fleet.environment["LUMINET_DATABASE_URL"]
        port = int(url.rsplit(":", 1)[1].split("/")[0])
        with (self._fleet.config.logs / "postgres.log").open("ab") as log:
            who = identity(unprivileged_owner())
            process = subprocess.Popen(cluster.command(port), cwd=cluster.data, stdout=log, stderr=log, **who)
        outliving.name(process.pid)
        self._started.append(process)
        wait_until(lambda: _answers(url), "PostgreSQL to recover")

    def stop(self) -> None:
        for process in self._started:
            process.send_signal(signal.SIGINT)
            process.wait(20)

    def _pid(self) -> int:
        return int((self._cluster().data / "postmaster.pid").read_text().split()[0])

    def _cluster(self) -> Cluster:
        config = self._fleet.config
        return cluster_prepare(config, owner=unprivileged_owner(), passwords=credentials_ensure(config.secrets))


@contextmanager
def postgres(fleet: Fleet) -> Iterator[Postgres]:
    """Its transactions must have been durable: a fleet that runs with `is_durable`."""
    found = Postgres(fleet)
    try:
        yield found
    finally:
        found.stop()


def _answers(url: str) -> bool:
    try:
        database_check(url)
    except NotReady:
        return False
    return True
