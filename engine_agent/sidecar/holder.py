"""The interface that a sidecar needs of its holder: an engine, a gateway or a simulation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine_agent.journal.records import Entry


class HolderError(Exception):
    """The base class of a holder's errors."""


class HolderAway(HolderError):
    """The holder does not answer: it has not started, has ended or is too busy."""


class HolderRejected(HolderError):
    """The holder cannot apply that state, and gives the reason. Nothing changed."""


class HolderMismatch(HolderError):
    """The change was made for another state than the applied one. The holder needs the whole snapshot."""


@dataclass(frozen=True, slots=True)
class HolderState:
    """A holder's current state. `boot` changes with every start, which loses all that was in memory."""

    boot: str
    state: str  # one of wire.ENGINE_STATES; the holder itself reports ready, starting, draining or failed
    why: str = ""
    hash: str | None = None  # of the applied snapshot; None: no snapshot yet
    load: Mapping[str, int] = field(default_factory=dict)  # {"running", "waiting"}
    pool: Mapping[str, int] = field(default_factory=dict)  # {"capacity_bytes", "used_bytes"}


@dataclass(frozen=True, slots=True)
class Proof:
    """The engine's proof that a namespace's older epochs are purged. Numbered from 1 in each boot."""

    boot: str
    number: int
    namespace: str
    epoch: int
    blocks: int
    bytes: int
    at: float  # unix seconds
    is_final: bool = True  # False: running sequences still lease some of the blocks


@dataclass(frozen=True, slots=True)
class JournalBoot:
    """One boot's part of the journal. A boot that is not current has ended."""

    boot: str
    last: int
    size_bytes: int
    is_current: bool


@dataclass(frozen=True, slots=True)
class JournalPage:
    """Records of one boot up to number `last`. `lost` lists the ranges of numbers that no longer exist."""

    last: int
    entries: Sequence[Entry]
    lost: Sequence[tuple[int, int]] = ()
    # The holder's own totals at record `last`, for the namespaces with records after the start of the page: [requests,
    # prompt tokens, cached tokens]. None: more records follow, or the boot has ended.
    totals: Mapping[str, Sequence[int]] | None = None


class Holder(Protocol):
    """A holder's interface. Call it from one event loop. Each method may raise HolderAway."""

    async def about(self) -> Mapping[str, Any]:
        """Return the holder's description, as the `about` report needs it."""

    async def state(self) -> HolderState: ...

    async def apply(self, news: bytes) -> str:
        """Apply an encoded snapshot or change, and return the resulting hash.

        Raise HolderRejected or HolderMismatch.
        """

    async def proofs(self, boot: str, after: int) -> Sequence[Proof]:
        """Return the proofs of purges after number `after` of that boot, or all proofs if the boot is another.

        The holder may forget proofs up to `after`.
        """

    async def counters(self, scopes: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """Return the counters of customers' requests since its boot, for each known scope."""

    async def operate(self, action: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run `drain`, `resume`, `integrity` or `warm_pins`. Return the result, or `{"ok": false, …}` if it failed."""

    async def pins_wanted(self) -> Sequence[str]:
        """Return the ids of pins that lack content."""

    async def pin_content(self, pin_id: str, content: Mapping[str, Any]) -> None:
        """Store a pin's content: {"messages" | "prompt" | "token_ids": …}. Raise HolderRejected."""

    async def set_clock(self, offset_seconds: float) -> None:
        """Set how far the control plane's clock is ahead of this machine's."""

    # The journal: empty if the holder keeps none

    async def journal(self) -> Sequence[JournalBoot]:
        """Return the boots with records, oldest first."""

    async def journal_page(self, boot: str, after: int, limit: int) -> JournalPage:
        """Return at most `limit` records after number `after`. Raise HolderRejected if that boot is gone."""

    async def journal_cut(self, boot: str, upto: int) -> None:
        """Delete records up to that number, which are stored elsewhere. Raise HolderRejected."""

    async def levels(self) -> Mapping[str, Any] | None:
        """Return the content of a `levels` report without its time, or None if the holder has no cache."""

    async def gaps(self, namespaces: Sequence[str]) -> Mapping[str, Any]:
        """Return the content of a `gaps` report for those of these namespaces that have data."""
