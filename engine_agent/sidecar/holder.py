"""What a sidecar needs of the thing it stands beside: an engine, a gateway, or one that is only simulated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


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
