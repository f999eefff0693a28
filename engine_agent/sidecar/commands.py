"""Parse sealed commands as far as possible without the agent's state. No I/O."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from engine_agent.contracts.protocol import MalformedMessage
from engine_agent.contracts.sealing import Unsealable, command_open
from engine_agent.contracts.wire import MOST_COMMAND_CHARACTERS, OPERATED, command_decode
from engine_agent.sidecar.events import CommandCame, CommandRefused


@dataclass(frozen=True, slots=True)
class Wanted:
    """A desired state. If `change` is None, the agent must pull the snapshot."""

    target: str
    base: str | None
    change: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Operation:
    operation: str
    deed: str
    arguments: Mapping[str, Any]
    deadline: float


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys that open commands for this agent and verify the control plane's signature."""

    agent: str
    sealing: bytes = field(repr=False)
    verifying: Ed25519PublicKey


def command_read(sealed: object, keys: Keys, *, delivery: int, is_redelivered: bool) -> CommandCame | CommandRefused:
    """Return the event for a message from the broker."""
    if not isinstance(sealed, str) or len(sealed) > MOST_COMMAND_CHARACTERS:
        return CommandRefused(delivery, "malformed", f"no text of at most {MOST_COMMAND_CHARACTERS:,} characters")
    try:
        opened = command_open(sealed, agent=keys.agent, key=keys.sealing, verifying=keys.verifying)
        return CommandCame(delivery, command_decode(opened), is_redelivered)
    except MalformedMessage as problem:
        return CommandRefused(delivery, "malformed", str(problem)[:200])
    except Unsealable as problem:
        match problem.reason:
            case "forged" | "corrupt" as reason:
                return CommandRefused(delivery, reason)
            case _:
                return CommandRefused(delivery, "malformed")


def state_wanted(body: Mapping[str, Any]) -> Wanted | None:
    target, base, change = body.get("target"), body.get("base"), body.get("change")
    if body.keys() != {"target", "base", "change"} or not _is_hash(target) or not (base is None or _is_hash(base)):
        return None
    if change is None:
        return Wanted(str(target), base, None)
    try:
        return Wanted(str(target), base, base64.b64decode(change, validate=True))
    except (ValueError, TypeError):
        return None


def operation_wanted(body: Mapping[str, Any]) -> Operation | None:
    operation, action = body.get("operation"), body.get("deed")
    arguments, deadline = body.get("arguments"), body.get("deadline")
    is_good = isinstance(operation, str) and 0 < len(operation) <= 64 and action in OPERATED
    if not is_good or not isinstance(arguments, dict) or type(deadline) not in (int, float):
        return None
    return Operation(str(operation), str(action), arguments, float(deadline or 0))


def _is_hash(value: object) -> bool:
    return isinstance(value, str) and len(value) == 64
