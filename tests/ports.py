"""Ports for a whole stack: one where the two agents' engines and, a hundred further on, their sidecars find room."""

from controlplane.stack.config import read_stack_config
from controlplane.stack.ports import free_port, port_is_free


def free_engine_port() -> int:
    while True:
        port = free_port()
        if port < 65_000 and has_room(port):
            return port


def has_room(port: int) -> bool:
    """Whether everything that follows from this engine port is free."""
    agents = read_stack_config({"LUMINET_ENGINE_PORT": str(port)}).agents
    return all(port_is_free("127.0.0.1", one) for agent in agents for one in (agent.port, agent.status_port))
