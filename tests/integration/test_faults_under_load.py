"""kill -9 of what the fleet is made of, one and two at once, in an order by chance, while clients keep asking.

After each: whoever asks is served again, and what dies of the control plane refuses nobody. At the end of all: what
headers said is what is stored, to the token, everybody who counts agrees, and nothing is left over anywhere. One alone
of engine and sidecar is test_usage_faults.py's.
"""

import json
import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count

import httpx
import psutil
import pytest

from tests.bench.pages import NotAnswered
from tests.fleet.fleets import Fleet, Part, fleet_running, inside
from tests.support.waiting import wait_until
from tests.usage.chats import LEFT, Customer, Door, chats
from tests.usage.fleets import (
    MODEL,
    Postgres,
    customer,
    engine_agent,
    engine_of,
    gateway,
    is_ready,
    naming,
    organisation_make,
    postgres,
    stored,
    told,
)
from tests.usage.recount import KeptJournals, Recount, Sum, by_namespace, journals_kept, total, truth_of

SEED = int(os.environ.get("LUMINET_FAULTS_SEED", "0")) or random.SystemRandom().randrange(1, 10_000)
ENGINES, GATEWAYS = ("engine-1", "engine-2"), ("gateway-1", "gateway-2")
CLIENTS = 3
# By what dies at once. Of those without an agent or a gateway clients must notice nothing.
KILLS: Sequence[tuple[str, ...]] = (
    ("gateway-1",),
    ("worker",),
    ("beat",),
    ("web",),
    ("redis",),
    ("postgres",),
    ("redis", "worker"),
    ("postgres", "web"),
    ("engine of engine-1", "engine-1"),
    ("gateway-2", "redis"),
)
UNNOTICED = {"worker", "beat", "web", "redis", "postgres"}
HELD = "SELECT count(*) FROM fleet_operationstep WHERE state = 'waiting'"
_ttls = count(2_000)


@dataclass(slots=True)
class Load:
    """Clients that ask one chat after the other, of another gateway where the first is not there."""

    doors: Sequence[Door]
    customers: Sequence[Customer]
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def recount(self) -> Recount:
        return self.doors[0].recount

    def unserved(self) -> tuple[list[str], dict[int, int]]:
        """What became of requests whose clients waited in vain; how many were turned away, by status."""
        return self.recount.in_vain(but=LEFT), dict(self.recount.refusals)

    def ask_on(self, client: int) -> None:
        for seed in count(SEED + 100_000 * client):
            for number, chat in enumerate(chats(self.customers, 8, seed=seed, max_tokens=6)):
                if self.over.is_set():
                    return
                self.doors[(client + number) % len(self.doors)].ask(chat)

    def more(self, requests: int = 12) -> None:
        """That many answers from now on."""
        reached = len(self.recount.answers) + requests
        wait_until(lambda: len(self.recount.answers) >= reached, "answers under load")


@dataclass(slots=True)
class Whole:
    fleet: Fleet
    database: Postgres
    agents: dict[str, Part]
    load: Load
    kept: KeptJournals

    def kill(self, name: str) -> Callable[[], None]:
        """And how it is brought back, as whoever looks after it would."""
        if name == "postgres":
            self.database.kill()
            return self.database.start
        if name.startswith("engine of "):
            engine = engine_of(self.agents[name.removeprefix("engine of ")])
            engine.kill()
            engine.wait(20)
            return _nothing  # its sidecar starts another
        part = self.agents.get(name) or self.fleet.parts[name]
        part.kill()
        return part.start

    def is_whole(self) -> bool:
        """By what the control plane says, and by themselves: it may not have missed yet who has just died."""
        serve = all(door.serves(MODEL, self.load.customers[0]) for door in self.load.doors)
        try:
            return serve and all(answers(self.agents[name]) for name in ENGINES) and is_ready(self.fleet, *self.agents)
        except NotAnswered:  # a web whose database is coming back says so with a 503
            return False

    def truth(self) -> dict[tuple[str, str], Sum]:
        return by_namespace(truth_of(self.load.recount, self.kept.opened()).sums)

    def rows(self) -> dict[tuple[str, str], Sum]:
        return by_namespace({place: one for place, one in stored(self.fleet).items() if place.agent in ENGINES})


def _nothing() -> None:
    """Somebody else does it."""


@pytest.fixture(scope="module")
def whole() -> Iterator[Whole]:
    with ExitStack() as opened:
        fleet = opened.enter_context(fleet_running(is_durable=True))
        database = opened.enter_context(postgres(fleet))
        organisation_make(fleet, "acme", "batch")
        organisation_make(fleet, "globex")
        customers = [customer(fleet, "acme"), customer(fleet, "acme", "batch"), customer(fleet, "globex")]
        homes = [fleet.config.home / name for name in ENGINES]
        kept = opened.enter_context(journals_kept(fleet.config.home / "kept", *homes))
        agents = {name: opened.enter_context(engine_agent(fleet, name))[0] for name in ENGINES}
        recount, doors = Recount(), []
        for name in GATEWAYS:
            agents[name], url = opened.enter_context(gateway(fleet, name))
            doors.append(Door(url, recount))
        for door in doors:
            wait_until(lambda: door.serves(MODEL, customers[0]), "a model at the gateway")  # noqa: B023 (asked at once)
        yield Whole(fleet, database, agents, Load(doors, customers), kept)


@contextmanager
def asking(load: Load) -> Iterator[None]:
    load.over.clear()
    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(load.ask_on, number) for number in range(CLIENTS)]
        try:
            yield
        finally:
            load.over.set()
        for client in clients:
            client.result()


def test_whatever_is_killed_under_load_is_served_again_and_nothing_is_lost_or_doubled(whole: Whole) -> None:
    print(f"\nLUMINET_FAULTS_SEED={SEED}")
    order = random.Random(SEED).sample(KILLS, len(KILLS))
    with asking(whole.load):
        whole.load.more()
        for names in order:
            killed_and_back(whole, names)
    exactly_counted(whole)
    nothing_is_left(whole)


def killed_and_back(whole: Whole, names: Sequence[str]) -> None:
    load, before = whole.load, whole.load.unserved()
    back = [whole.kill(name) for name in names]
    if UNNOTICED.issuperset(names):
        load.more()
        assert load.unserved() == before, f"{names} are dead, and clients noticed (LUMINET_FAULTS_SEED={SEED})"
    for bring in back:  # what others need was named first
        bring()
    with naming(lambda: (names, SEED, whole.fleet.said())):
        load.more()
        wait_until(whole.is_whole, f"everybody ready and in sync after {names}")


def exactly_counted(whole: Whole) -> None:
    with naming(lambda: (SEED, whole.truth(), whole.rows())):
        wait_until(lambda: whole.rows() == whole.truth(), "rows as headers said")
    truth = truth_of(whole.load.recount, whole.kept.opened()).sums
    for organisation in ("acme", "globex"):
        assert told(whole.fleet, organisation) == total(truth, organisation)
    for namespace in ("default", "batch"):
        assert told(whole.fleet, "acme", namespace=namespace) == whole.truth()["acme", namespace]
    assert json.loads(inside(whole.fleet, "tests.usage.inside:differences")) == []


def nothing_is_left(whole: Whole) -> None:
    fleet = whole.fleet
    for name in ENGINES:
        wait_until(lambda: requests_of(whole.agents[name]) == 0, f"{name} to be idle")  # noqa: B023 (asked at once)
        assert problems_in_books(fleet, name) == []
    fleet.ask("PUT", "/orgs/acme/policy", {"policy": {"kv_dtype": "bf16", "ttl_seconds": next(_ttls)}})
    wait_until(lambda: fleet.value(HELD) == 0 and whole.is_whole(), "every step of every operation to end")
    assert inside(fleet, "tests.usage.inside:audit_is_sound") == "true"
    for name in ENGINES:
        assert len(psutil.Process(whole.agents[name].pid).children()) == 1, (
            "one engine, and none that outlived a sidecar"
        )


def metrics_of(agent: Part) -> list[str]:
    """Of its engine."""
    port = agent.command[list(agent.command).index("--port") + 1]
    return httpx.get(f"http://127.0.0.1:{port}/metrics").text.splitlines()


def answers(agent: Part) -> bool:
    try:
        return bool(metrics_of(agent))
    except httpx.TransportError:
        return False


def requests_of(agent: Part) -> float:
    """That run or wait, as it says itself."""
    lines = metrics_of(agent)
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting")
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(names))


def problems_in_books(fleet: Fleet, agent: str) -> list[str]:
    """What an engine finds that looks through its blocks: also those that nobody holds and that are not free."""
    path = f"/operations/{fleet.ask('POST', f'/fleet/agents/{agent}/integrity', {})['operation']}"
    wait_until(lambda: fleet.ask("GET", path)["state"] == "done", f"{agent} to look through its books")
    ((receipt,),) = fleet.rows(
        "SELECT s.receipt FROM fleet_operationstep s WHERE s.deed = 'integrity' AND s.agent_id = %s "
        "ORDER BY s.done_at DESC LIMIT 1",
        agent,
    )
    return list(receipt["result"]["problems"])
