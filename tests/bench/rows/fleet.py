"""P1, P2 and P3: a fleet of simulated agents on a real broker and database. Production's sidecar, no engine."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import psutil

from tests.bench import Bench, Target, row
from tests.fleet.fleets import Fleet, Part, fleet_running
from tests.support.waiting import wait_until

AGENTS = 100
MANY_AGENTS = 1_000
AGENTS_IN_ONE_PROCESS = 50
PUBLISHES = 50
PUBLISHES_TO_MANY = 10
ROUNDS = 5
STEADY_SECONDS = 60.0
SETTLE_SECONDS = 15.0  # nothing measured: what enrolling has set off comes to rest
POLL_SECONDS = 0.01
LONG_SECONDS = 600.0
ACKNOWLEDGED = (
    "SELECT count(*) FROM fleet_agent WHERE revoked_at IS NULL AND applied_hash = desired_hash "
    "AND desired_at >= to_timestamp(%s)"
)


@row(
    "P1",
    title="Publish until every agent has acknowledged with the hash",
    target="100 agents p99 ≤ 1 s; 1,000 agents ≤ 2 s",
    beside="Envoy AI Gateway 5 s, Portkey 60 s (by their own documentation)",
)
def publish_to_all(bench: Bench) -> None:
    with fleet_running(is_durable=True) as fleet:
        _enrolled(fleet, AGENTS)
        _publishes(bench, fleet, AGENTS, PUBLISHES, Target("<=", 1, of="p99"))
    with fleet_running(is_durable=True) as fleet:
        _enrolled(fleet, MANY_AGENTS)
        _publishes(bench, fleet, MANY_AGENTS, PUBLISHES_TO_MANY, Target("<=", 2, of="p99"))
    bench.note("the simulated agents run on the same cores as the control plane that pushes to them")


def _enrolled(fleet: Fleet, agents: int) -> None:
    processes = max(1, agents // AGENTS_IN_ONE_PROCESS)
    fleet.simulate(agents, "--processes", str(processes))
    wait_until(lambda: fleet.in_sync() >= agents, f"{agents} agents in sync", seconds=LONG_SECONDS)
    fleet.ask("POST", "/orgs", {"slug": "acme", "name": "Acme"})
    wait_until(lambda: fleet.in_sync() >= agents, f"{agents} agents in sync", seconds=LONG_SECONDS)


def _publishes(bench: Bench, fleet: Fleet, agents: int, publishes: int, target: Target) -> None:
    numbers = count(1)

    def publish() -> float:
        return _seconds_until_all(fleet, agents, lambda: _ttl_publish(fleet, 600 + next(numbers)))

    bench.measure(
        f"publish until all {agents:,} have acknowledged",
        unit="s",
        sample=publish,
        repetitions=publishes,
        warmup=2,
        target=target,
        parameters={"agents": agents, "agents in one process": AGENTS_IN_ONE_PROCESS},
    )


def _ttl_publish(fleet: Fleet, seconds: int) -> None:
    fleet.ask("PUT", "/orgs/acme/policy", {"policy": {"ttl_seconds": seconds}})


def _seconds_until_all(fleet: Fleet, agents: int, publish: Callable[[], None]) -> float:
    """From before the request is sent until the database holds the last acknowledgement."""
    wall, began = time.time(), time.perf_counter()
    publish()
    _polled(lambda: int(fleet.value(ACKNOWLEDGED, wall)) >= agents, f"{agents} acknowledgements")
    return time.perf_counter() - began


def _polled(look: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + LONG_SECONDS
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited in vain for {what}")
        time.sleep(POLL_SECONDS)
    return found


@row(
    "P2",
    title="A stale agent is shown, a bad policy taken back, a tenant purged with every receipt",
    target="≤ 10 s · ≤ 60 s · ≤ 1 s",
    beside="Kong 45 s · 5 min · – (by its own documentation)",
)
def shown_back_purged(bench: Bench) -> None:
    with fleet_running(is_durable=True) as fleet:
        _enrolled(fleet, AGENTS_IN_ONE_PROCESS)
        bench.note(f"{AGENTS_IN_ONE_PROCESS} agents, and one more that is killed")
        _purges(bench, fleet)
        _taken_back(bench, fleet)
        _stale_shown(bench, fleet)


def _purges(bench: Bench, fleet: Fleet) -> None:
    def purge() -> float:
        began = time.perf_counter()
        path = fleet.ask("POST", "/orgs/acme/namespaces/default/purge", {})["operation"]
        ended = _polled(lambda: _ended(fleet, path), "every receipt")
        seconds = time.perf_counter() - began
        if len(ended["receipts"]) != AGENTS_IN_ONE_PROCESS:
            raise ValueError(f"expected {AGENTS_IN_ONE_PROCESS} receipts, found {len(ended['receipts'])}")
        return seconds

    bench.measure(
        "purge until every receipt is there",
        unit="s",
        sample=purge,
        repetitions=20,
        warmup=1,
        target=Target("<=", 1, of="p99"),
        parameters={"agents": AGENTS_IN_ONE_PROCESS},
    )


def _ended(fleet: Fleet, operation: str) -> Any:
    found = fleet.ask("GET", f"/operations/{operation}")
    return None if found["state"] == "running" else found


def _taken_back(bench: Bench, fleet: Fleet) -> None:
    """A policy that matches nothing any more goes to a canary first: its hit ratio falls, and the guard sees it."""

    def bad_policy() -> float:
        fleet.ask("PUT", "/orgs/acme/policy", {"policy": {"ttl_seconds": 601}})
        _in_sync(fleet)
        began = time.perf_counter()
        spec = {"strategy": "canary", "steps": [10, 100], "bake_seconds": 60, "guards": {"hit_ratio_drop": 0.05}}
        answer = fleet.ask("PUT", "/orgs/acme/policy", {"policy": {"prefix_caching": False}, "rollout": spec})
        path = f"/rollouts/{answer['rollout']}"
        _polled(lambda: fleet.ask("GET", path)["state"] == "rolled_back", "the rollback")
        _in_sync(fleet)
        return time.perf_counter() - began

    bench.measure(
        "bad policy published until it is taken back from every agent",
        unit="s",
        sample=bad_policy,
        repetitions=ROUNDS,
        warmup=0,
        target=Target("<=", 60, of="max"),
        parameters={"agents": AGENTS_IN_ONE_PROCESS, "canary, percent": 10, "bake, s": 60},
    )


def _in_sync(fleet: Fleet) -> None:
    _polled(lambda: fleet.in_sync() >= AGENTS_IN_ONE_PROCESS, "everybody in sync")


def _stale_shown(bench: Bench, fleet: Fleet) -> None:
    numbers = count(1)

    def stale() -> float:
        with _one_more(fleet, f"mortal-{next(numbers)}") as (part, agent):
            part.kill()
            began = time.perf_counter()
            _polled(lambda: fleet.ask("GET", f"/fleet/agents/{agent}")["state"] == "stale", "stale")
            return time.perf_counter() - began

    bench.measure(
        "agent killed until it is shown as stale",
        unit="s",
        sample=stale,
        repetitions=ROUNDS,
        warmup=0,
        target=Target("<=", 10, of="max"),
        parameters={"agents": AGENTS_IN_ONE_PROCESS + 1},
    )


@contextmanager
def _one_more(fleet: Fleet, prefix: str) -> Iterator[tuple[Part, str]]:
    part = fleet.simulate(1, prefix=prefix)
    (agent,) = _polled(lambda: _ready_named(fleet, prefix), "one more agent")
    try:
        yield part, agent
    finally:
        part.stop()
        fleet.ask("DELETE", f"/fleet/agents/{agent}")


def _ready_named(fleet: Fleet, prefix: str) -> list[str]:
    found = fleet.ask("GET", "/fleet/agents?limit=200")["items"]
    return [one["id"] for one in found if one["id"].startswith(prefix) and one["state"] == "ready"]


@row(
    "P3", title="Steady state at 1,000 agents: what the control plane takes", target="≤ 60 % of a core, ≤ 50 queries/s"
)
def steady_state(bench: Bench) -> None:
    with fleet_running(is_durable=True) as fleet:
        _enrolled(fleet, MANY_AGENTS)
        time.sleep(SETTLE_SECONDS)
        _cores(bench, fleet)
        _queries(bench, fleet)
        bench.record("agents in sync afterwards", unit="", values=[fleet.in_sync()], target=Target("==", MANY_AGENTS))


@dataclass(frozen=True, slots=True)
class Used:
    at: float
    seconds: dict[str, float]  # CPU time by part

    @classmethod
    def by(cls, fleet: Fleet) -> "Used":
        pids = {name: part.pid for name, part in fleet.parts.items()} | {"postgres": _postmaster(fleet)}
        return cls(time.perf_counter(), {name: _cpu_seconds(pid) for name, pid in pids.items()})


def _postmaster(fleet: Fleet) -> int:
    """The parent of the processes that PostgreSQL itself keeps running."""
    pid = fleet.value("SELECT min(pid) FROM pg_stat_activity WHERE datid IS NULL")
    return int(psutil.Process(pid).ppid())


def _cpu_seconds(pid: int) -> float:
    """With its children that live and those that have ended."""
    process = psutil.Process(pid)
    own = process.cpu_times()
    living = (one.cpu_times() for one in process.children(recursive=True))
    return sum(
        (times.user + times.system for times in living), own.user + own.system + own.children_user + own.children_system
    )


def _cores(bench: Bench, fleet: Fleet) -> None:
    before = Used.by(fleet)
    time.sleep(STEADY_SECONDS)
    after = Used.by(fleet)
    wall = after.at - before.at
    shares = {name: 100 * (after.seconds[name] - before.seconds[name]) / wall for name in after.seconds}
    bench.record(
        "all of it, share of a core",
        unit="%",
        values=[sum(shares.values())],
        target=Target("<=", 60),
        parameters={"agents": MANY_AGENTS, "seconds": STEADY_SECONDS, "a heartbeat every, s": 5},
    )
    for name, share in sorted(shares.items()):
        bench.record(f"{name}, share of a core", unit="%", values=[share])


def _queries(bench: Bench, fleet: Fleet) -> None:
    """Counted in a window of its own, from the statements that PostgreSQL logs then: logging them is not free."""
    with fleet.statements_logged() as count_now:
        before = count_now()
        began = time.perf_counter()
        time.sleep(STEADY_SECONDS)
        found = (count_now() - before) / (time.perf_counter() - began)
    parameters: dict[str, str | int] = {"agents": MANY_AGENTS, "BEGIN, COMMIT and the like": "not counted"}
    bench.record("queries", unit="1/s", values=[found], target=Target("<=", 50), parameters=parameters)
