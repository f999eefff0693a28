"""Ports for what tests start: apart from those the kernel hands out, and none twice in one process.

A server listens many seconds after its port was chosen. By then a port from the kernel's own range may be the near end
of any connection on this machine; one below that range is taken by nobody who did not ask for it.
"""

import os
import random
import re

from controlplane.stack.config import read_stack_config
from controlplane.stack.ports import port_is_free

FIRST, LAST = 10_000, 32_000  # Linux hands out 32,768 and above
SHARES = 8  # of workers that run side by side
STATUS_PORT_FURTHER = 100

_given: set[int] = set()


def free_port() -> int:
    while True:
        port = random.choice(own_share())
        if port not in _given and port_is_free("127.0.0.1", port):
            _given.add(port)
            return port


def free_engine_port() -> int:
    """One where the two agents' engines and, a hundred further on, their sidecars find room."""
    while True:
        port = free_port()
        if not _given & (engine_ports(port) - {port}) and has_room(port):
            _given.update(engine_ports(port))
            return port


def engine_ports(port: int) -> set[int]:
    """Everything that follows from this engine port."""
    agents = read_stack_config({"LUMINET_ENGINE_PORT": str(port)}).agents
    return {one for agent in agents for one in (agent.port, agent.status_port)}


def has_room(port: int) -> bool:
    return all(port_is_free("127.0.0.1", one) for one in engine_ports(port))


def own_share() -> range:
    """The ports of this test worker, with room at the end for the sidecars of its last engines."""
    size = (LAST - FIRST) // SHARES
    first = FIRST + size * (worker() % SHARES)
    return range(first, first + size - STATUS_PORT_FURTHER - 2)


def worker() -> int:
    """Which of the workers that run side by side this is; the last share is for a run without any."""
    named = re.fullmatch(r"gw(\d+)", os.environ.get("PYTEST_XDIST_WORKER", ""))
    return int(named[1]) if named else SHARES - 1
