"""The effects that the sidecar's state machine requests, and the data that it persists."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from engine_agent.contracts.wire import Report

Outcome = Literal[
    "applied",
    "held",  # the requested state is already applied
    "superseded",  # a newer command arrived before this one was started
    "pulled",  # the change does not apply to the current snapshot, so the agent pulls the snapshot
    "away",  # the holder did not answer
    "rejected",
    "operated",
    "repeated",  # done before; its receipt is reported again
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
    """The data persisted beside the snapshot: receipts by operation, oldest first, draining state and last reports."""

    receipts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    is_draining: bool = False
    about: Mapping[str, Any] | None = None
    # Purges reported before they were complete: see state.py.
    partly_told: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Apply:
    """Have the holder apply a snapshot, then store it on disk. One at a time.

    Answered by `Applied` or `ApplyFailed`. If `content` is None, the applied snapshot gets a new generation number.
    """

    generation: int
    target: str
    content: bytes | None = field(repr=False)
    is_change: bool  # True: `content` is a change to the stored snapshot; False: it is a whole snapshot


@dataclass(frozen=True, slots=True)
class Restore:
    """Give the holder the stored snapshot, if any, and its draining state. Answered by `Restored`."""

    is_draining: bool


@dataclass(frozen=True, slots=True)
class Pull:
    """Fetch the desired snapshot. Answered by `Pulled` or `PullFailed`."""

    have: str | None


@dataclass(frozen=True, slots=True)
class Prove:
    """Fetch the proofs of purges after this mark. Answered by `Proved`."""

    boot: str
    after: int


@dataclass(frozen=True, slots=True)
class Operate:
    """Run an operation on the holder. Answered by `Operated`."""

    operation: str
    deed: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Keep:
    """Write the ledger to disk before the next effect."""

    ledger: Ledger


@dataclass(frozen=True, slots=True)
class Tell:
    """Spool these reports and, in the same write, the number of the last reported proof."""

    reports: tuple[Report, ...]
    proofs_told: tuple[str, int] | None = None  # boot and number


@dataclass(frozen=True, slots=True)
class Settle:
    """Acknowledge a message to the broker."""

    delivery: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Send:
    """Send a heartbeat and the spooled reports. One at a time. Answered by `Answered` or `SendFailed`."""


@dataclass(frozen=True, slots=True)
class Log:
    level: Literal["info", "warning", "error"]
    line: str


Effect = Apply | Restore | Pull | Prove | Operate | Keep | Tell | Settle | Send | Log
