"""All servers at once, two web processes and two gateways among them, and proxies before them."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from controlplane.common.health import web_check
from tests.edge.cases import Server
from tests.edge.proxied import Proxied
from tests.edge.servers import Running, engine_running, gateway_running, sidecar_running, web_restarted
from tests.edge.taps import tapped
from tests.fleet.fleets import Fleet, Part, fleet_running, static_files_collect
from tests.servers.proxies import API_HOST, ProxyName, proxy_running
from tests.support.ports import free_port
from tests.usage.chats import Customer
from tests.usage.fleets import customer, engine_agent, gateway, organisation_make


@dataclass(frozen=True, slots=True)
class World:
    fleet: Fleet
    servers: Mapping[Server, Running]  # with short deadlines, for cases
    webs: tuple[Part, Part]
    gateways: tuple[Part, Part]
    gateway_urls: tuple[str, str]
    acme: Customer
    folder: Path

    @property
    def ports(self) -> tuple[int, int, int, int]:
        """Of the web processes, then of the gateways."""
        urls = (*(web.environment["LUMINET_WEB_PORT"] for web in self.webs), *self.gateway_urls)
        first, second, third, fourth = (int(url.rpartition(":")[2]) for url in urls)
        return first, second, third, fourth


@contextmanager
def world_running(folder: Path) -> Iterator[World]:
    with fleet_running() as fleet, ExitStack() as stack:
        static_files_collect(fleet)
        others = (gateway_running(folder), engine_running(), sidecar_running(folder))
        servers = [web_restarted(fleet), *(stack.enter_context(running) for running in others)]
        organisation_make(fleet, "acme")
        acme = customer(fleet, "acme")
        stack.enter_context(engine_agent(fleet, "engine-1"))
        (first, first_url), (second, second_url) = (
            stack.enter_context(gateway(fleet, name)) for name in ("gateway-1", "gateway-2")
        )
        web = _second_web(fleet)
        stack.callback(web.stop)
        web.start()
        yield World(
            fleet=fleet,
            servers={running.server: running for running in servers},
            webs=(fleet.parts["web"], web),
            gateways=(first, second),
            gateway_urls=(first_url, second_url),
            acme=acme,
            folder=folder,
        )


def _second_web(fleet: Fleet) -> Part:
    first, port = fleet.parts["web"], free_port()
    environment = {**first.environment, "LUMINET_WEB_PORT": str(port)}
    log = fleet.config.logs / "web-2.log"
    return Part("web-2", first.command, environment, log, lambda: web_check(f"http://127.0.0.1:{port}"))


@contextmanager
def cases_proxied(world: World, name: ProxyName) -> Iterator[Mapping[Server, Proxied]]:
    """Web and gateway behind the proxy, each with a tap. Without TLS: what is looked at is what is inside it."""
    web, gateway = world.servers["web"], world.servers["gateway"]
    with tapped(web.port, web.port, gateway.port, gateway.port) as taps:
        ports = [tap.port for tap in taps]
        with proxy_running(name, world.folder / f"{name}-cases", ports, is_plain=True) as port:
            yield {
                "web": Proxied(name, web, port, b"127.0.0.1", taps[:2]),
                "gateway": Proxied(name, gateway, port, API_HOST.encode(), taps[2:]),
            }
