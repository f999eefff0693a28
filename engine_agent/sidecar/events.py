"""What happens to a sidecar, as its state machine hears of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from engine_agent.contracts.wire import Command, ReportKind
from engine_agent.sidecar.holder import HolderState, Proof

FailureKind = Literal["away", "rejected", "mismatch", "malformed"]


@dataclass(frozen=True, slots=True)
class Started:
    """First of all."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed: at the latest when `Sidecar.due_at()` said so."""


@dataclass(frozen=True, slots=True)
class CommandCame:
    """Opened and well-formed. `is_redelivered`: the broker gave us this message before, and never heard of its end."""

    delivery: int
    command: Command
    is_redelivered: bool = False


@dataclass(frozen=True, slots=True)
class CommandRefused:
    """It could not be opened, or is no command."""

    delivery: int
    reason: Literal["malformed", "forged", "corrupt"]
    what: str = ""


@dataclass(frozen=True, slots=True)
class Applied:
    """Answers `Apply`: the holder holds it, and the store has it on disk. `boot`: of the holder that does."""

    generation: int
    hash: str
    boot: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ApplyFailed:
    """Answers `Apply`. The store has what it had."""

    generation: int
    hash: str
    kind: FailureKind
    why: str


@dataclass(frozen=True, slots=True)
class Restored:
    """Answers `Restore`; with a `kind` where it failed, and why."""

    boot: str
    kind: FailureKind | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Pulled:
    """Answers `Pull`. `content` None: what we have is what we are to hold."""

    generation: int
    hash: str
    content: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class PullFailed:
    """Answers `Pull`."""

    why: str


@dataclass(frozen=True, slots=True)
class Proved:
    """Answers `Prove`, with all that came behind the mark; None: the holder did not answer."""

    proofs: Sequence[Proof] | None


@dataclass(frozen=True, slots=True)
class Operated:
    """Answers `Operate`. `is_away`: nobody answered, so it is no result: whoever asked asks again."""

    operation: str
    ok: bool
    result: Mapping[str, Any]
    is_away: bool = False


@dataclass(frozen=True, slots=True)
class HolderSeen:
    """A look at the holder; `state` None: it does not answer, and `why`."""

    state: HolderState | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class AboutSeen:
    about: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answered:
    """Answers `Send`: what was sent is stored over there. `spooled`: how many reports are still to be sent; `waiting`:
    of which kinds they are.
    """

    desired_generation: int | None
    desired_hash: str | None
    cadence_seconds: float
    watch: tuple[str, ...] = ()
    spooled: int = 0
    waiting: frozenset[ReportKind] = frozenset()


@dataclass(frozen=True, slots=True)
class SendFailed:
    """Answers `Send`. `is_final`: we are revoked, or unknown, and will hardly be heard again. `wait_seconds`: that the
    control plane asks for before the next.
    """

    why: str
    is_final: bool = False
    wait_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Spooled:
    """So many reports were spooled besides those that were said to be told."""

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
