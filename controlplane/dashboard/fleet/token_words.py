"""Wording for join tokens, and the commands that join agents. Pure."""

from collections.abc import Sequence

from controlplane.dashboard.frame.words import counted
from controlplane.fleet.join_tokens import is_standing
from controlplane.fleet.models import JoinToken

PLACE_OF_MODEL = "PATH"


def whom(token: JoinToken) -> str:
    return token.agent or {"engine": "engines", "gateway": "gateways"}.get(token.kind or "", "engines and gateways")


def ending(token: JoinToken) -> str:
    """Return what revoking the token means."""
    agents_note = f" {counted(token.uses, 'agent')} that joined with it {'stays' if token.uses == 1 else 'stay'}."
    environment_note = " It is the one of the environment, and stays revoked: whoever set it there sets another."
    begin = "From then on nobody joins with it."
    return f"{begin}{agents_note if token.uses else ''}{environment_note if is_standing(token) else ''}"


def commands(address: str, secret: str, *, kind: str | None, agent: str) -> list[tuple[str, str]]:
    """Return (where to run it, command) pairs."""
    name = f" --name {agent}" if agent else ""
    join = f"--join {address} --token {secret}{name}"
    engine = ("On the machine with the model", f"luminet agent {join} --model {PLACE_OF_MODEL}")
    gateway = ("For a gateway", f"luminet gateway {join}")
    return [command for command, role in ((engine, "engine"), (gateway, "gateway")) if kind in (None, role)]


def headline(states: Sequence[str], total: int) -> str:
    if not total:
        return "Nobody can join: there is no token"
    usable = sum(state == "open" for state in states)
    if total > len(states):
        return f"{counted(total, 'join token')} that {'is' if total == 1 else 'are'} not revoked"
    if not usable:
        return "Nobody can join: no token is open"
    return f"{counted(usable, 'join token')} {'lets' if usable == 1 else 'let'} agents join"
