"""S2's half at a gateway: random bodies, heads and half requests, with slow clients beside them all the while."""

import secrets
import time

import psutil

from tests.bench.figures import Target
from tests.bench.measuring import Bench
from tests.gateway.bad_input import OF_EACH, Aftermath, fleet, suffered
from tests.gateway.levels import faults
from tests.integration.test_gateway_process import Process, complete

CASES = 20_000
WARM_UP = 500  # after which memory is what it will stay
SHOWN = 10  # complaints


def random_input_at_gateway(bench: Bench) -> None:
    seed = secrets.randbelow(2**32)
    with fleet() as running:
        suffered(running, WARM_UP, seed=seed + 1)
        before, began = _resident(running), time.perf_counter()
        found = suffered(running, CASES, seed=seed)
        seconds, gained = time.perf_counter() - began, _resident(running) - before
        is_good = complete(running.url).status_code == 200 and running.process.poll() is None
        mistakes = faults(running.logged)
    _record(bench, found, mistakes, is_good=is_good)
    bench.record("gateway: whole run", unit="s", values=[seconds])
    bench.record("gateway: memory gained meanwhile", unit="MB", values=[gained])


def _record(bench: Bench, found: Aftermath, mistakes: list[str], *, is_good: bool) -> None:
    run, after = found.run, found.after
    statuses = {str(status or "no answer"): count for status, count in sorted(run.statuses.items())}
    bench.record(
        "gateway: random requests",
        unit="",
        values=[run.cases],
        target=Target(">=", CASES),
        parameters={"seed": run.seed, "kinds": len(run.kinds), **statuses},
    )
    none = Target("==", 0)
    bench.record("gateway: server errors", unit="", values=[run.server_errors], target=none)
    bench.record("gateway: answers that none may be", unit="", values=[len(run.complaints)], target=none)
    bench.record("gateway: mistakes in its log", unit="", values=[len(mistakes)], target=none)
    slow = [*found.silent, *found.heads, *found.bodies]
    bench.record(
        "gateway: slow heads and bodies that were not ended with 408",
        unit="",
        values=[sum(one.statuses != (408,) for one in slow)],
        target=none,
        parameters={"silent, slow heads, slow bodies, unread answers, each": OF_EACH},
    )
    left = after.connections + after.body_bytes + after.running
    bench.record("gateway: connections, body bytes, requests left", unit="", values=[left], target=none)
    bench.record("gateway: tasks left", unit="", values=[max(0, after.tasks - found.before.tasks)])
    bench.record("gateway: good requests refused afterwards", unit="", values=[0 if is_good else 1], target=none)
    for complaint in (*run.complaints[:SHOWN], *mistakes[:SHOWN]):
        bench.note(complaint[:600])


def _resident(running: Process) -> float:
    return float(psutil.Process(running.process.pid).memory_info().rss) / 1e6
