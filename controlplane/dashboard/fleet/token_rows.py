"""Join tokens as pages show them, and the commands that agents join by. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from controlplane.dashboard.fleet.rows import Tag
from controlplane.dashboard.frame.words import counted
from controlplane.fleet.join_tokens import is_standing, join_token_state
from controlplane.fleet.models import JoinToken

STATES = {"open": Tag("open", "ok"), "spent": Tag("spent", "info"), "expired": Tag("expired", "info")}
PLACE_OF_MODEL = "PATH"


@dataclass(frozen=True, slots=True)
class TokenRow:
    id: UUID
    name: str
    prefix: str
    state: Tag
    whom: str
    group: str
    uses: str
    by: str
    created_at: datetime
    ends_at: datetime | None
    ending: str  # what revoking it means


@dataclass(frozen=True, slots=True)
class Command:
    what: str
    line: str


@dataclass(frozen=True, slots=True)
class NewToken:
    """With its secret, which is shown now and never again."""

    name: str
    secret: str
    commands: tuple[Command, ...]


def token_row(token: JoinToken, *, now: datetime) -> TokenRow:
    return TokenRow(
        id=token.pk,
        name=token.name,
        prefix=token.prefix,
        state=STATES[join_token_state(token, now=now)],
        whom=token.agent or {"engine": "engines", "gateway": "gateways"}.get(token.kind or "", "engines and gateways"),
        group=token.group.slug,
        uses=_uses(token.uses, token.uses_left),
        by=token.created_by,
        created_at=token.created_at,
        ends_at=token.expires_at,
        ending=_ending(token),
    )


def _uses(uses: int, left: int | None) -> str:
    return f"{uses} joined, {'any number' if left is None else left} more may"


def _ending(token: JoinToken) -> str:
    stay = f" {counted(token.uses, 'agent')} that joined with it {'stays' if token.uses == 1 else 'stay'}."
    standing = " It is the one of the environment, and stays revoked: whoever set it there sets another."
    begin = "From then on nobody joins with it."
    return f"{begin}{stay if token.uses else ''}{standing if is_standing(token) else ''}"


def new_token(token: JoinToken, secret: str, *, address: str) -> NewToken:
    return NewToken(token.name, secret, tuple(commands(address, secret, kind=token.kind, agent=token.agent)))


def commands(address: str, secret: str, *, kind: str | None, agent: str) -> list[Command]:
    name = f" --name {agent}" if agent else ""
    join = f"--join {address} --token {secret}{name}"
    engine = Command("On the machine with the model", f"luminet agent {join} --model {PLACE_OF_MODEL}")
    gateway = Command("For a gateway", f"luminet gateway {join}")
    return [one for one, of in ((engine, "engine"), (gateway, "gateway")) if kind in (None, of)]


def headline(rows: Sequence[Any], total: int) -> str:
    if not total:
        return "Nobody can join: there is no token"
    usable = sum(one.state.word == "open" for one in rows)
    if total > len(rows):
        return f"{counted(total, 'join token')} that {'is' if total == 1 else 'are'} not revoked"
    if not usable:
        return "Nobody can join: no token is open"
    return f"{counted(usable, 'join token')} {'lets' if usable == 1 else 'let'} agents join"
