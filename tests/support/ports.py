"""Ports for what tests start: apart from those the kernel hands out, and none given twice on this machine.

A server listens many seconds after its port was chosen. By then a port from the kernel's own range may be the near end
of any connection on this machine; one below that range is taken by nobody who did not ask for it. Tests run in several
processes, which start further runs of tests: a byte of one file is locked for each port, by the process that has it.
"""

import fcntl
import functools
import os
import random

from controlplane.stack.config import read_stack_config
from controlplane.stack.ports import port_is_free

FIRST, LAST = 10_000, 32_000  # Linux hands out 32,768 and above
# Not tempfile.gettempdir(), which each run of tests has for itself.
LOCKS = f"/tmp/luminet-tests-{os.geteuid()}.ports"  # opened without following links

_given: set[int] = set()


def free_port() -> int:
    while True:
        port = random.randrange(FIRST, LAST)
        if reserve(port) and port_is_free("127.0.0.1", port):
            return port


def free_engine_port() -> int:
    """One where the two agents' engines and, a hundred further on, their sidecars find room."""
    while True:
        port = random.randrange(FIRST, LAST)
        ports = engine_ports(port)
        if max(ports) < LAST and all(map(reserve, ports)) and has_room(port):
            return port


def engine_ports(port: int) -> set[int]:
    """Everything that follows from this engine port."""
    agents = read_stack_config({"LUMINET_ENGINE_PORT": str(port)}).agents
    return {one for agent in agents for one in (agent.port, agent.status_port)}


def has_room(port: int) -> bool:
    return all(port_is_free("127.0.0.1", one) for one in engine_ports(port))


def reserve(port: int) -> bool:
    """Whether nobody had it; this process has it then, until it ends."""
    if port in _given:
        return False
    try:
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except (BlockingIOError, PermissionError):
        return False
    _given.add(port)
    return True


@functools.cache
def _locks() -> int:
    return os.open(LOCKS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
