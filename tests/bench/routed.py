"""A fleet to ask by its door: real engines with the demo model, and a real gateway process before them."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import httpx

from engine_agent.gateway.route import Routing
from engine_agent.tools.loadgen.server import Form, Server
from tests.engines.processes import state_folder
from tests.gateway.snapshots import KEY, MODEL, engine_snapshot, gateway_snapshot, route, tenants
from tests.integration.gateway_fleet import fleet_engine, told_as
from tests.integration.test_gateway_process import gateway, joined_before
from tests.support.waiting import wait_until

READY_SECONDS = 120


@contextmanager
def routed(routing: Routing, *, agents: int, options: Sequence[str] = (), form: Form) -> Iterator[Server]:
    """Ready, and with nothing cached anywhere."""
    names = [f"agent-{number}" for number in range(1, agents + 1)]
    with ExitStack() as opened, ThreadPoolExecutor(agents) as pool:
        waiting = [fleet_engine(name, *options) for name in names]
        engines = list(pool.map(opened.enter_context, waiting))
        for one in engines:
            assert one.admin("POST", "/apply", told_as(engine_snapshot(tenants()))).status == 200
        routes = [route(name, f"http://127.0.0.1:{one.port}") for name, one in zip(names, engines, strict=True)]
        home = opened.enter_context(state_folder())
        home.mkdir()
        joined_before(home, gateway_snapshot(tenants(), *routes))
        running = opened.enter_context(
            gateway("--home", str(home), "--routing", routing, "--canary-seconds", "0", "--drain-seconds", "0")
        )
        wait_until(lambda: _heard(running.url) == agents)
        yield Server(f"{running.url}/v1", MODEL, KEY, form)


def _heard(url: str) -> int:
    """How many engines answer the gateway and have told what they hold."""
    metrics = httpx.get(f"{url}/metrics", timeout=30).text
    return sum(
        line.startswith("luminet_gateway_cache_known{") and line.endswith(" 1.0") for line in metrics.splitlines()
    )
