"""What a sidecar needs of the thing it stands beside: an engine, a gateway, or one that is only simulated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine_agent.journal.records import Entry


class HolderError(Exception):
    """The root of what a holder may answer besides what was asked for."""


class HolderAway(HolderError):
    """It does not answer: not started yet, dead, or too busy to be asked."""


class HolderRejected(HolderError):
    """It cannot hold that state, and says why. Nothing changed."""


class HolderMismatch(HolderError):
    """It holds another state than the change was made for: it wants the whole snapshot."""


@dataclass(frozen=True, slots=True)
class HolderState:
    """What it says of itself now. `boot` changes with every start, and with it all that it had in memory is gone."""

    boot: str
    state: str  # one of wire.ENGINE_STATES, of which it says ready, starting, draining or failed itself
    why: str = ""
    hash: str | None = None  # of the snapshot it obeys; None: none yet
    load: Mapping[str, int] = field(default_factory=dict)  # {"running", "waiting"}
    pool: Mapping[str, int] = field(default_factory=dict)  # {"capacity_bytes", "used_bytes"}


@dataclass(frozen=True, slots=True)
class Proof:
    """That a namespace's older epochs are gone, in the engine's own words; numbered from 1 in each boot."""

    boot: str
    number: int
    namespace: str
    epoch: int
    blocks: int
    bytes: int
    at: float  # unix seconds
    is_final: bool = True  # False: sequences in flight still hold some of it


@dataclass(frozen=True, slots=True)
class JournalBoot:
    """One boot's part of its journal. One that is not current is over."""

    boot: str
    last: int
    size_bytes: int
    is_current: bool


@dataclass(frozen=True, slots=True)
class JournalPage:
    """Records of one boot up to number `last`. `lost`: from and to which number there are none any more."""

    last: int
    entries: Sequence[Entry]
    lost: Sequence[tuple[int, int]] = ()
    # What the holder itself counted when `last` was its last record, of the namespaces behind where the page begins:
    # [requests, prompt tokens, cached tokens]. None: more records follow, or the boot is over.
    totals: Mapping[str, Sequence[int]] | None = None


class Holder(Protocol):
    """All of it is called from one event loop, and may raise HolderAway."""

    async def about(self) -> Mapping[str, Any]:
        """What it is, as `about` reports it."""

    async def state(self) -> HolderState: ...

    async def apply(self, news: bytes) -> str:
        """Obey an encoded snapshot, or change. The hash that holds now. Raises HolderRejected, HolderMismatch."""

    async def proofs(self, boot: str, after: int) -> Sequence[Proof]:
        """Of purges, behind number `after` of that boot, up to which it may forget them; all, where it has another."""

    async def counters(self, scopes: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """What was counted of customers' requests since its boot, for each scope of which it knows anything."""

    async def operate(self, deed: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """`drain`, `resume`, `integrity`, `warm_pins`. What came of it; `{"ok": false, …}` where it failed."""

    async def pins_wanted(self) -> Sequence[str]:
        """Ids of pins whose content it lacks."""

    async def pin_content(self, pin_id: str, content: Mapping[str, Any]) -> None:
        """`content` is {"messages" | "prompt" | "token_ids": …}. Raises HolderRejected."""

    async def set_clock(self, offset_seconds: float) -> None:
        """How far the control plane's clock is ahead of this machine's."""

    # What it counts: nothing, where it keeps no journal

    async def journal(self) -> Sequence[JournalBoot]:
        """Boots with records, oldest first."""

    async def journal_page(self, boot: str, after: int, limit: int) -> JournalPage:
        """Behind number `after`, at most `limit` records. Raises HolderRejected where that boot is gone."""

    async def journal_cut(self, boot: str, upto: int) -> None:
        """Records up to that number are safe elsewhere. Raises HolderRejected."""

    async def levels(self) -> Mapping[str, Any] | None:
        """What a `levels` report tells, but for when; None: it holds nothing."""

    async def gaps(self, namespaces: Sequence[str]) -> Mapping[str, Any]:
        """What a `gaps` report tells of these namespaces, those of which there is anything to tell."""
