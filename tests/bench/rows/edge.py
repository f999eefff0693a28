"""S4: what one connection that attacks the web's port does to everybody else."""

import http.client
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from tests.bench import Bench, Target, row
from tests.bench.edge_attacks import ATTACKS, BEGUN
from tests.bench.processes import launched
from tests.bench.stacks import fresh_home, stack_running, web_running

REQUESTS = 100
PAUSE_SECONDS = 0.02
TIMEOUT_SECONDS = 120.0
MOST_MILLISECONDS = 50.0


@row(
    "S4",
    title="Web port: /healthz of a second client while one connection attacks",
    target="≤ 50 ms",
)
def edge_under_attack(bench: Bench) -> None:
    with fresh_home() as config, stack_running(config) as stack, web_running(stack) as web:
        place = urlsplit(web.address)
        host, port = place.hostname or "", place.port or 0
        bench.record("/healthz, idle", unit="ms", values=_asked(host, port, bench.repetitions(REQUESTS)))
        for name in ATTACKS:
            command = (sys.executable, "-m", "tests.bench.edge_attacks", name, host, str(port))
            log = config.logs / "bench-attack.log"
            with launched(command, {}, log=log) as attacker:
                attacker.wait_for(lambda log=log: _has_begun(log))  # type: ignore[misc]
                values = _asked(host, port, bench.repetitions(REQUESTS))
            bench.record(f"/healthz, {name}", unit="ms", values=values, target=Target("<=", MOST_MILLISECONDS))


def _has_begun(log: Path) -> bool | None:
    return BEGUN in log.read_text() or None


def _asked(host: str, port: int, count: int) -> list[float]:
    """Milliseconds of each request, on a connection of its own as a stranger's is."""
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        answer.read()
        taken.append((time.perf_counter() - began) * 1_000)
        connection.close()
        assert answer.status == 200
        time.sleep(PAUSE_SECONDS)
    return taken
