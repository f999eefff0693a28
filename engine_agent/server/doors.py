"""The sockets, secrets and state that an engine process opens before its event loop begins."""

import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine_agent.backends.engine_config import EngineConfig
from engine_agent.server.policy_file import PolicyFile
from engine_agent.server.state import StateFolder


@dataclass(frozen=True, slots=True)
class Doors:
    config: EngineConfig
    state: StateFolder
    public: socket.socket
    admin: socket.socket
    api_key: str | None = field(repr=False)  # None in a fleet, where gateways identify callers
    admin_token: str | None = field(repr=False)  # None where the admin API is a socket that only its owner may open
    identity_secrets: Sequence[bytes] = field(repr=False)
    policy: PolicyFile
