"""What a sidecar's state machine wants done, and what it wants remembered."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from engine_agent.contracts.wire import Report

Outcome = Literal[
    "applied",
    "held",  # what it asks for is held already
    "superseded",  # a newer one came before it was begun
    "pulled",  # it does not lead there from here: the snapshot is pulled
    "away",  # the holder did not answer
    "rejected",
    "operated",
    "repeated",  # done before; its receipt is told again
    "woken",
    "malformed",
    "forged",
    "misaddressed",
    "expired",
    "replayed",
    "older",
    "corrupt",
]


@dataclass(frozen=True, slots=True)
class Held:
    generation: int
    hash: str


@dataclass(frozen=True, slots=True)
class Ledger:
    """What is remembered besides the snapshot: receipts by operation, oldest first, and what was last told."""

    receipts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    is_draining: bool = False
    about: Mapping[str, Any] | None = None
    partly_told: Mapping[str, int] = field(default_factory=dict)  # purges told before they were over: see state.py


@dataclass(frozen=True, slots=True)
class Apply:
    """Have the holder obey it, then put it on disk. One at a time. Answered by `Applied` or `ApplyFailed`.

    `content` None: it is the snapshot that is held already, under another number.
    """

    generation: int
    target: str
    content: bytes | None = field(repr=False)
    is_change: bool  # to the snapshot in the store; else it is a whole one


@dataclass(frozen=True, slots=True)
class Restore:
    """Give the holder the snapshot in the store (where there is one), and its draining. Answered by `Restored`."""

    is_draining: bool


@dataclass(frozen=True, slots=True)
class Pull:
    """Answered by `Pulled` or `PullFailed`."""

    have: str | None


@dataclass(frozen=True, slots=True)
class Prove:
    """Fetch the proofs of purges behind this mark. Answered by `Proved`."""

    boot: str
    after: int


@dataclass(frozen=True, slots=True)
class Operate:
    """Answered by `Operated`."""

    operation: str
    deed: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Keep:
    """Put the ledger on disk, before whatever follows."""

    ledger: Ledger


@dataclass(frozen=True, slots=True)
class Tell:
    """Spool these, and in the same write up to which proof is told."""

    reports: tuple[Report, ...]
    proofs_told: tuple[str, int] | None = None  # boot and number


@dataclass(frozen=True, slots=True)
class Settle:
    """The broker may forget this message."""

    delivery: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Send:
    """What is spooled, and a heartbeat. One at a time. Answered by `Answered` or `SendFailed`."""


@dataclass(frozen=True, slots=True)
class Log:
    level: Literal["info", "warning", "error"]
    line: str


Effect = Apply | Restore | Pull | Prove | Operate | Keep | Tell | Settle | Send | Log
