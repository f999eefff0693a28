"""Errors about agents, with messages for people and codes for agents. Nothing here knows HTTP: door.py translates."""

from collections.abc import Iterable
from typing import ClassVar

from tenants.errors import Conflict, FieldProblem


class FleetError(Exception):
    """The root of this package's errors."""


class AgentRefused(FleetError):
    """A request of an agent was refused. `code` is for programs."""

    code: ClassVar[str]


class UnknownToken(AgentRefused):
    """The token is unknown, expired, spent or revoked. Of a join token, the error does not reveal which."""

    code = "unknown_token"

    def __init__(self) -> None:
        super().__init__("This token is not valid.")


class Revoked(AgentRefused):
    """The token belongs to a revoked agent. It has its own code, so that a revoked agent stops retrying."""

    code = "revoked"

    def __init__(self, agent: str) -> None:
        self.agent = agent
        super().__init__(f"{agent} was revoked: an operator took it out of the fleet.")


class WrongKind(AgentRefused):
    """The token, or the agent of that name, is for the other kind."""

    code = "wrong_kind"

    def __init__(self, *, expected: str, found: str, of: str) -> None:
        super().__init__(f"kind: {of} is for the kind {expected}, found {found}")


class WrongName(AgentRefused):
    """The join token is bound to another name."""

    code = "wrong_name"

    def __init__(self, *, expected: str, found: str) -> None:
        super().__init__(f"name: this token is for {expected}, found {found[:80]!r}")


class NameTaken(AgentRefused):
    code = "name_taken"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"name: there is an agent {name}; choose another name, revoke that one, or ask for a join token bound to it"
        )


class MalformedRequest(AgentRefused):
    """The request or the description in it is invalid. The message names every invalid field."""

    code = "malformed"

    def __init__(self, problems: Iterable[FieldProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{problem.field}: {problem.message}" for problem in self.problems))


class BrokerAway(FleetError):
    """Redis does not answer, or does not let the control plane manage logins."""


class TooMuchWaits(FleetError):
    """So many batches wait to be written that no more are accepted for a moment."""

    def __init__(self, batches: int, size: int) -> None:
        super().__init__(f"{batches} batches of {size} bytes wait to be written")


class AgentIsRevoked(Conflict):
    def __init__(self, agent: str) -> None:
        super().__init__([FieldProblem("agent", f"{agent} is revoked; it can only be looked at")])
