"""The ports of the stack's parts, and whether they are free."""

import socket
from collections.abc import Iterator
from typing import NamedTuple

from controlplane.stack.config import StackConfig

LOCALHOST = "127.0.0.1"


class Listener(NamedTuple):
    part: str
    host: str
    port: int
    setting: str  # the setting that chooses another port


def listeners(config: StackConfig) -> Iterator[Listener]:
    """Yield where the parts will listen, except on ports that the stack chooses when it starts."""
    yield Listener("web", config.web_host, config.web_port, "LUMINET_WEB_PORT")
    if config.agents:
        yield Listener("gateway", LOCALHOST, config.gateway_port, "LUMINET_GATEWAY_PORT")
    for agent in config.agents:
        yield Listener(f"{agent.name}-engine", LOCALHOST, agent.port, "LUMINET_ENGINE_PORT")
        yield Listener(agent.name, LOCALHOST, agent.status_port, "LUMINET_ENGINE_PORT")
    if config.postgres_port:
        yield Listener("postgres", LOCALHOST, config.postgres_port, "LUMINET_POSTGRES_PORT")
    if config.redis_port:
        yield Listener("redis", LOCALHOST, config.redis_port, "LUMINET_REDIS_PORT")


def port_problem(host: str, port: int) -> OSError | None:
    """Return why nothing can listen there, or None; EADDRINUSE if another program does."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        # As servers do: a port in TIME_WAIT after our last run is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
        return None


def port_is_free(host: str, port: int) -> bool:
    return port_problem(host, port) is None


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
