"""The events that the sidecar's state machine handles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from engine_agent.contracts.wire import Command, ReportKind
from engine_agent.sidecar.holder import HolderState, Proof

FailureKind = Literal["away", "rejected", "mismatch", "malformed"]


@dataclass(frozen=True, slots=True)
class Started:
    """The sidecar has started. Always the first event."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed. It comes no later than `Sidecar.due_at()`."""


@dataclass(frozen=True, slots=True)
class CommandCame:
    """A valid command has arrived. `is_redelivered`: the broker delivered it before and got no acknowledgement."""

    delivery: int
    command: Command
    is_redelivered: bool = False


@dataclass(frozen=True, slots=True)
class CommandRefused:
    """A message could not be opened, or is not a valid command."""

    delivery: int
    reason: Literal["malformed", "forged", "corrupt"]
    what: str = ""


@dataclass(frozen=True, slots=True)
class Applied:
    """Answers `Apply`: the holder has applied the snapshot and the store has saved it. `boot` is the holder's."""

    generation: int
    hash: str
    boot: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ApplyFailed:
    """Answers `Apply`. The stored snapshot is unchanged."""

    generation: int
    hash: str
    kind: FailureKind
    why: str


@dataclass(frozen=True, slots=True)
class Restored:
    """Answers `Restore`. `kind` and `why` are set if it failed."""

    boot: str
    kind: FailureKind | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Pulled:
    """Answers `Pull`. If `content` is None, the stored snapshot is the desired one."""

    generation: int
    hash: str
    content: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class PullFailed:
    """Answers `Pull` after a failure."""

    why: str


@dataclass(frozen=True, slots=True)
class Proved:
    """Answers `Prove` with all proofs after the mark, or None if the holder did not answer."""

    proofs: Sequence[Proof] | None


@dataclass(frozen=True, slots=True)
class Operated:
    """Answers `Operate`.

    If `is_away`, the holder did not answer and there is no result: the control plane asks again.
    """

    operation: str
    ok: bool
    result: Mapping[str, Any]
    is_away: bool = False


@dataclass(frozen=True, slots=True)
class HolderSeen:
    """The result of a poll of the holder. If `state` is None, it did not answer and `why` says why."""

    state: HolderState | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class AboutSeen:
    about: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answered:
    """Answers `Send`: the control plane has stored the reports.

    `spooled` is the number of reports still to be sent, and `waiting` their kinds.
    """

    desired_generation: int | None
    desired_hash: str | None
    cadence_seconds: float
    watch: tuple[str, ...] = ()
    spooled: int = 0
    waiting: frozenset[ReportKind] = frozenset()


@dataclass(frozen=True, slots=True)
class SendFailed:
    """Answers `Send` after a failure.

    `is_final`: the agent is revoked or unknown, so a retry will hardly succeed. `wait_seconds` is the control plane's
    requested delay.
    """

    why: str
    is_final: bool = False
    wait_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Spooled:
    """`count` reports were spooled in addition to those of `Tell`."""

    count: int


Event = (
    Started
    | Ticked
    | CommandCame
    | CommandRefused
    | Applied
    | ApplyFailed
    | Restored
    | Pulled
    | PullFailed
    | Proved
    | Operated
    | HolderSeen
    | AboutSeen
    | Answered
    | SendFailed
    | Spooled
)
