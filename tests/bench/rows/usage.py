"""A1, A3, A4 and S3: what the numbers cost, that they are exact, how soon they are seen, and what no death may take."""

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from threading import Event
from typing import Any

import psutil

from tests.bench import Bench, Target, row
from tests.fleet.fleets import Fleet, Part, fleet_running, inside
from tests.support.waiting import WaitTimeout, wait_until
from tests.usage.agents import TellingAgent, Whose, minute_of, packed, rows_by_chance
from tests.usage.chats import Customer, Door, chats
from tests.usage.fleets import (
    MODEL,
    Postgres,
    Traffic,
    customer,
    engine_agent,
    engine_of,
    gateway,
    is_ready,
    operator_pages,
    organisation_make,
    postgres,
    stored,
    telling,
    told,
    traffic,
    whose,
)
from tests.usage.pages import OpenPages
from tests.usage.recount import KeptJournals, Recount, Sum, by_namespace, journals_kept, total, truth_of

HOUR, DAY = 3_600, 86_400
SECONDS_OF_LOAD = 30.0
SETTLE_SECONDS = 2.0

# A1
AGENTS = 4
NAMESPACES = 200
ROWS_OF_A_REPORT = 500
REPORTS_OF_A_BATCH = 4
BATCHES = 20  # of each agent
MINUTES_TOLD = 30

# A4
PAGES = 500
SAMPLES = 40
FLEET_PAGE, ORGANISATION_PAGE = "/ws/live/fleet", "/ws/live/orgs/acme"


# A1: as many as go in


@row("A1", title="Usage rows ingested per second on 2 cores, exactly once", target="≥ 20,000; stretch ≥ 100,000")
def rows_ingested(bench: Bench) -> None:
    with fleet_running(is_durable=True) as fleet:
        tenants = _tenants(fleet, NAMESPACES)
        _through_the_door(bench, fleet, tenants)
        _bare(bench, fleet, tenants)
    bench.note("the agents that tell, the web process, PostgreSQL, worker and beat share the two cores")


def _tenants(fleet: Fleet, namespaces: int) -> list[Whose]:
    organisation_make(fleet, "acme", *(f"ns-{number:03}" for number in range(1, namespaces)))
    names = ["default", *(f"ns-{number:03}" for number in range(1, namespaces))]
    return [whose(fleet, "acme", name) for name in names]


def _through_the_door(bench: Bench, fleet: Fleet, tenants: Sequence[Whose]) -> None:
    agents = [telling(fleet, f"teller-{number}") for number in range(AGENTS)]
    rounds = iter(range(1_000))

    def rows_per_second() -> float:
        bodies = [_prepared(agent, tenants, seed=next(rounds)) for agent in agents]
        began = time.perf_counter()
        with ThreadPoolExecutor(AGENTS) as pool:
            list(pool.map(_sent, agents, bodies))
        rows = AGENTS * BATCHES * REPORTS_OF_A_BATCH * ROWS_OF_A_REPORT
        return rows / (time.perf_counter() - began)

    bench.measure(
        "through the door",
        unit="rows/s",
        sample=rows_per_second,
        repetitions=5,
        target=Target(">=", 20_000),
        parameters={
            "agents": AGENTS,
            "namespaces": NAMESPACES,
            "rows in a batch": REPORTS_OF_A_BATCH * ROWS_OF_A_REPORT,
            "minutes": MINUTES_TOLD,
            "sent as": "gzip over HTTP, on one kept-alive connection each",
        },
    )
    truth = sum((agent.told() for agent in agents), Sum())
    _apart(bench, "through the door", total(stored(fleet), "acme"), truth)


def _prepared(agent: TellingAgent, tenants: Sequence[Whose], *, seed: int) -> list[bytes]:
    """Batches as they go over the wire: making them is the agents' work, on their own machines."""
    chance, now = random.Random(f"{agent.name} {seed}"), minute_of(time.time())
    minutes = range(now - (MINUTES_TOLD - 1) * 60, now + 1, 60)
    bodies = []
    for _ in range(BATCHES):
        for _ in range(REPORTS_OF_A_BATCH):
            agent.usage(rows_by_chance(chance, tenants, ROWS_OF_A_REPORT, minutes=minutes))
        bodies.append(packed(agent.batch(len(agent.reports) - REPORTS_OF_A_BATCH + 1)))
        agent.forget()
    return bodies


def _sent(agent: TellingAgent, bodies: Sequence[bytes]) -> None:
    for body in bodies:
        while (answer := agent.send_body(body))[0] in (429, 503):  # asked to wait
            time.sleep(0.05)
        if answer[0] != 200:
            raise ValueError(f"{agent.name}: {answer}")
        agent.acknowledged = answer[1]["acknowledged"]


def _bare(bench: Bench, fleet: Fleet, tenants: Sequence[Whose]) -> None:
    """No HTTP, no JSON: what the ingest itself takes, in a process of its own."""
    pairs = [[one.organisation, one.namespace] for one in tenants]
    found = json.loads(inside(fleet, "tests.usage.inside:ingest_rates", json.dumps(pairs), str(bench.repetitions(5))))
    bench.record("the ingest alone", unit="rows/s", values=found, parameters={"rows in a transaction": 2_000})


def _apart(bench: Bench, name: str, found: Sum, truth: Sum) -> None:
    bench.record(
        f"{name}: tokens lost or doubled", unit="tokens", values=[_tokens(found, truth)], target=Target("==", 0)
    )


def _tokens(found: Sum, truth: Sum) -> int:
    prompt, cached = found.prompt_tokens - truth.prompt_tokens, found.cached_tokens - truth.cached_tokens
    return abs(prompt) + abs(cached)


# A3: against a brute-force recount


@row("A3", title="Error of the rolling 24 h against a brute-force recount of every request", target="0 tokens")
def rolling_error(bench: Bench) -> None:
    with fleet_running(is_durable=True) as fleet:
        errors = _told_errors(bench, fleet)
        bench.record(
            "rows of two days, late, doubled and split: tokens apart, each namespace, organisation and the fleet",
            unit="tokens",
            values=errors,
            target=Target("==", 0, of="max"),
        )
        with traffic(fleet, "live", agents=2, rate=100) as agents:
            time.sleep(SECONDS_OF_LOAD)
            agents.agree()
            values = [_tokens(*reversed(two)) for two in agents.differences().values()] or [0]
        parameters = {"requests": agents.requests()}
        bench.record(
            "live traffic", unit="tokens", values=values, target=Target("==", 0, of="max"), parameters=parameters
        )


NAMES = ("default", "batch", "chat")
AGAIN = 20  # reports that are told in every round once more, as many as a body may hold


def _told_errors(bench: Bench, fleet: Fleet) -> list[float]:
    for organisation in ("acme", "globex"):
        organisation_make(fleet, organisation, "batch", "chat")
    tenants = {(slug, name): whose(fleet, slug, name) for slug in ("acme", "globex") for name in NAMES}
    agents = [telling(fleet, f"teller-{number}") for number in range(3)]
    chance, errors = random.Random(3), list[float]()
    rounds = bench.repetitions(10)
    for number in range(rounds):
        bench.step("recount", number + 1, rounds)
        for agent in agents:
            _some_told(agent, list(tenants.values()), chance)
        inside(fleet, "tests.usage.inside:roll")
        errors.append(_window_errors(fleet, tenants, agents))
    return errors


def _some_told(agent: TellingAgent, tenants: Sequence[Whose], chance: random.Random) -> None:
    now = minute_of(time.time())
    for _ in range(5):
        oldest = chance.choice((2 * 60, HOUR, 25 * HOUR, 47 * HOUR))
        agent.usage(rows_by_chance(chance, tenants, 100, minutes=range(now - oldest, now + 1, 60)))
    agent.deliver(most=chance.randrange(1, 4))
    agent.sends(agent.batch(1, AGAIN))
    agent.sends(agent.batch(max(1, len(agent.reports) - chance.randrange(4))))


def _window_errors(fleet: Fleet, tenants: Mapping[tuple[str, str], Whose], agents: Sequence[TellingAgent]) -> int:
    """All scopes of one moment: each is compared over the window that its answer names."""
    rows = [row for agent in agents for report in agent.reports for row in report.told["rows"]]
    apart = 0
    for (slug, name), tenant in tenants.items():
        found = fleet.ask("GET", f"/orgs/{slug}/stats?window=24h&namespace={name}")
        apart += _tokens(_said(found), _counted(rows, found, namespace=tenant.namespace))
    for slug in ("acme", "globex"):
        found = fleet.ask("GET", f"/orgs/{slug}/stats?window=24h")
        apart += _tokens(_said(found), _counted(rows, found, organisation=tenants[slug, "default"].organisation))
    found = fleet.ask("GET", "/fleet/stats?window=24h")
    return apart + _tokens(_said(found), _counted(rows, found))


def _said(found: Mapping[str, Any]) -> Sum:
    return Sum(found["requests"], found["prompt_tokens"], found["cached_tokens"])


def _counted(rows: Sequence[Mapping[str, Any]], window: Mapping[str, Any], **of: str) -> Sum:
    start, end = (datetime.fromisoformat(window[name]).timestamp() for name in ("from", "to"))
    chosen = (row["counts"] for row in rows if start <= row["minute"] <= end and _is_of(row, of))
    return sum((Sum(one["requests"], one["prompt_tokens"], one["cached_tokens"]) for one in chosen), Sum())


def _is_of(row: Mapping[str, Any], of: Mapping[str, str]) -> bool:
    return all(row[name] == value for name, value in of.items())


# A4: how soon it is seen


@row(
    "A4",
    title="Headers left until the number has moved on an open page, 2 agents; then with 500 sockets",
    target="p95 ≤ 2 s; stretch ≤ 1 s; the web process ≤ 15 % of a core at 500 sockets",
    beside="Grafana 10–30 s",
)
def seen_after(bench: Bench) -> None:
    with _serving(("engine-1", "engine-2")) as served:
        with operator_pages(served.fleet, [ORGANISATION_PAGE]) as pages:
            _seen(bench, served, pages, "one page")
        paths = [ORGANISATION_PAGE if number % 2 else FLEET_PAGE for number in range(PAGES)]
        with operator_pages(served.fleet, paths) as pages:
            _seen(bench, served, pages, f"{PAGES} pages")
            _share_of_a_core(bench, served, f"web process, {PAGES} sockets, a request twice a second", Target("<=", 15))
        _share_of_a_core(bench, served, "web process, no socket, the same")
    bench.note("engines, control plane, gateway and pages share the same two cores")


@dataclass(frozen=True, slots=True)
class Served:
    """A fleet with engines behind a gateway, its customers, and what clients were told."""

    fleet: Fleet
    door: Door
    customers: Sequence[Customer]
    engines: Mapping[str, Part]
    gateway: Part
    kept: KeptJournals

    @property
    def recount(self) -> Recount:
        return self.door.recount

    def apart(self) -> int:
        """Tokens between what headers said and what is stored, of all namespaces."""
        truth = by_namespace(truth_of(self.recount, self.kept.opened()).sums)
        rows = by_namespace({place: one for place, one in stored(self.fleet).items() if place.agent in self.engines})
        return sum(_tokens(rows.get(place, Sum()), truth.get(place, Sum())) for place in {*rows, *truth})


@contextmanager
def _serving(names: Sequence[str]) -> Iterator[Served]:
    with ExitStack() as opened:
        fleet = opened.enter_context(fleet_running(is_durable=True))
        organisation_make(fleet, "acme", "batch")
        customers = [customer(fleet, "acme"), customer(fleet, "acme", "batch")]
        homes = [fleet.config.home / name for name in names]
        kept = opened.enter_context(journals_kept(fleet.config.home / "kept", *homes))
        engines = {name: opened.enter_context(engine_agent(fleet, name))[0] for name in names}
        part, url = opened.enter_context(gateway(fleet))
        door = Door(url, Recount())
        wait_until(lambda: door.serves(MODEL, customers[0]), "a model at the gateway")
        yield Served(fleet, door, customers, engines, part, kept)


def _seen(bench: Bench, served: Served, pages: OpenPages, what: str) -> None:
    chance, first, slowest = random.Random(4), list[float](), list[float]()
    samples = bench.repetitions(SAMPLES)
    for number in range(samples):
        bench.step(what, number + 1, samples)
        time.sleep(chance.uniform(0.2, 1.7))  # at any moment of whatever beats inside
        left, requests = _one_more(served)
        pages.until_seen(requests)
        seen = [at - left for page in pages.pages if (at := page.seen_at(requests)) is not None]
        first.append(seen[number % len(seen)])
        slowest.append(max(seen))
    target = Target("<=", 2, of="p95")
    bench.record(f"headers left until a page shows it, {what}", unit="s", values=first, target=target)
    if len(pages.pages) > 1:
        bench.record(f"the same, the slowest of {what}", unit="s", values=slowest, target=target)


def _one_more(served: Served) -> tuple[float, int]:
    """When the headers were here, and what a page must come to: all that was asked so far, by us alone."""
    (chat,) = chats(served.customers, 1, seed=len(served.recount.answers), manners=("stream",))
    with served.door.open(chat):
        return time.perf_counter(), len(served.recount.answers)


def _share_of_a_core(bench: Bench, served: Served, name: str, target: Target | None = None) -> None:
    process = psutil.Process(served.fleet.parts["web"].pid)
    seconds = min(SECONDS_OF_LOAD, 3.0 * bench.repetitions(10))
    with _asking(served, pause_seconds=0.5):
        time.sleep(SETTLE_SECONDS)
        before, began = process.cpu_times(), time.perf_counter()
        time.sleep(seconds)
        after, wall = process.cpu_times(), time.perf_counter() - began
    used = after.user + after.system - before.user - before.system
    bench.record(name, unit="%", values=[100 * used / wall], target=target, parameters={"seconds": seconds})


@contextmanager
def _asking(served: Served, *, pause_seconds: float = 0.0) -> Iterator[None]:
    """One chat after the other, of all manners, until the end."""
    over = Event()

    def ask() -> None:
        seed = 0
        while not over.is_set():
            for chat in chats(served.customers, 5, seed=(seed := seed + 1)):
                served.door.ask(chat)
                over.wait(pause_seconds)

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        try:
            yield
        finally:
            over.set()
        asking.result()


# S3: whichever dies


@row(
    "S3",
    title="kill -9 of each process in turn under load",
    target="0 tokens lost or doubled in the 24-hour numbers",
)
def killed(bench: Bench) -> None:
    with _serving(("engine-1", "engine-2")) as served, postgres(served.fleet) as database:
        with traffic(served.fleet, "load", agents=2, rate=50) as agents:
            for name, kill in _deaths(served, agents, database).items():
                bench.step(name, 0, 1)
                apart = _after(served, agents, kill)
                bench.record(f"{name}: tokens lost or doubled", unit="tokens", values=[apart], target=Target("==", 0))
        headers = served.recount
        bench.note(
            f"{len(headers.answers)} answers by their headers, {len(headers.doubts)} requests in doubt, decided by the "
            f"engines' journals; beside them {agents.requests()} requests of simulated agents"
        )


def _deaths(served: Served, agents: Traffic, database: Postgres) -> dict[str, Callable[[], None]]:
    """Each kills, and brings back what nobody else would."""
    parts = served.fleet.parts
    return {
        "agent's engine": lambda: _engine_killed(served),
        "agent's sidecar": lambda: _part_killed(served.engines["engine-1"]),
        "simulated agents": lambda: agents.restart(50),
        "gateway": lambda: _part_killed(served.gateway),
        **{name: _killer(parts[name]) for name in ("worker", "beat", "web", "redis")},
        "PostgreSQL": lambda: _database_killed(database),
    }


def _killer(part: Part) -> Callable[[], None]:
    return lambda: _part_killed(part)


def _part_killed(part: Part) -> None:
    part.kill()
    part.start()


def _engine_killed(served: Served) -> None:
    engine = engine_of(served.engines["engine-2"])
    engine.kill()
    engine.wait(20)


def _database_killed(database: Postgres) -> None:
    database.kill()
    database.start()


def _after(served: Served, agents: Traffic, kill: Callable[[], None]) -> int:
    """Killed under load and brought back; then, without load, what is apart once nothing moves any more."""
    with _asking(served):
        asked = len(served.recount.answers)
        wait_until(lambda: len(served.recount.answers) > asked + 5, "load")
        kill()
        asked = len(served.recount.answers)
        wait_until(lambda: len(served.recount.answers) > asked + 5, "load again", seconds=180)
    for name in served.engines:
        wait_until(lambda: is_ready(served.fleet, name), name, seconds=180)  # noqa: B023 (asked at once)
    with suppress(WaitTimeout):
        agents.agree()
    simulated = sum(_tokens(rows, journals) for journals, rows in agents.differences().values())
    with suppress(WaitTimeout):
        wait_until(lambda: served.apart() == 0, "rows as headers said", seconds=60)
    shown = told(served.fleet, "acme")
    window = _tokens(shown, total(stored(served.fleet), "acme"))
    agents.part.stop()
    agents.start(50)
    return served.apart() + simulated + window
