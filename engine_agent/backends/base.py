"""The complete interface between the server and an engine of any kind.

All calls come from one event loop. Calls that need a moment between two steps are answered after the current step.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine_agent.contracts.block_events import Page
from engine_agent.contracts.protocol import Change, Snapshot
from engine_agent.engine.asked import Generate as Generate
from engine_agent.engine.asked import Kind as Kind
from engine_agent.engine.outputs import Admission, Delta
from engine_agent.engine.settings import EngineSettings

Internal = Callable[[str, str, Admission], None]  # kind, namespace, admission


@dataclass(frozen=True, slots=True)
class ModelCard:
    """The served model and its engine."""

    name: str
    revision: str
    created: int  # unix seconds
    context_tokens: int  # prompt and answer together
    vocab_size: int
    block_tokens: int
    kv_dtypes: tuple[str, ...]  # that this engine really computes
    device: str
    dtype: str
    pool_bytes: int = 0
    block_bytes: Mapping[str, int] = field(default_factory=dict)  # by format
    accelerator: Mapping[str, Any] | None = None  # {"name", "memory_bytes"}
    backend: str = "paged"  # the kind of engine: our own, or vLLM
    backend_version: str = ""
    computed_as: Mapping[str, str] = field(default_factory=dict)  # format → really computed format, where they differ
    enforcement: Mapping[str, Any] = field(default_factory=dict)  # of policy fields, as `enforcement_encode` writes it


class Generation(Protocol):
    """An admitted request. Choices of the second prompt follow those of the first."""

    @property
    def admissions(self) -> tuple[Admission, ...]:
        """Return one admission for each prompt."""

    def __aiter__(self) -> AsyncIterator[Delta]: ...

    def cancel(self) -> None:
        """Stop the request of a client that has left. Blocks are free after the current step. May be repeated."""


class Backend(Protocol):
    @property
    def card(self) -> ModelCard: ...

    async def generate(self, request: Generate) -> Generation:
        """Return once every prompt is admitted, so that headers can be sent. Raises a RequestError.

        Cancellation while it waits withdraws the request.
        """

    # Tenants

    async def apply(self, change: Snapshot | Change) -> str:
        """Apply a snapshot or change between two steps, all or nothing. Return the hash of the applied snapshot.

        Raises RejectedSnapshot, and HashMismatch for a change to another state than the applied one.
        """

    async def set_pin_content(self, pin_id: str, token_ids: Sequence[int]) -> None:
        """Set the content of a pin in the snapshot. Missing blocks are prefilled."""

    async def pins(self) -> list[Mapping[str, Any]]:
        """Return every pin of the snapshot, with what it lacks: its content, its blocks, or nothing."""

    # Queries of the sidecar and of operators

    async def take_receipts(self) -> list[Mapping[str, Any]]: ...

    async def stats(self) -> Mapping[str, Any]: ...

    async def brief(self) -> Mapping[str, Any]:
        """Return the part of the stats that is polled frequently."""

    async def levels(self) -> Mapping[str, Any]:
        """Return the part of the stats that is recorded over time: the pool, and what namespaces use and have lost."""

    async def foretell(self, namespaces: Sequence[str]) -> Mapping[str, Any]:
        """Return forecasts of other TTLs and limits for those of the namespaces that have data."""

    async def events(self, since: int, boot: str) -> Mapping[str, Any]: ...

    async def block_page(self, boot: str, since: int, *, wait_seconds: float = 0.0) -> Page:
        """Return changes for a gateway that knows those up to `since`, waiting up to `wait_seconds` for the first."""

    @property
    def scale_sets(self) -> Mapping[str, str]:
        """Return the digest of each format's scale set, which is part of its chains' roots."""

    @property
    def seats(self) -> int:
        """Return how many answers the engine computes at once."""

    async def check_integrity(self) -> list[str]: ...

    async def is_open(self) -> bool:
        """Return whether the engine accepts customers' requests, checked between two steps. Raises EngineFailed."""

    async def probe(self) -> float:
        """Generate one token, charged to no namespace. Return the seconds. Raises EngineFailed, DeadlinePassed."""

    async def drain(self, is_draining: bool) -> int:
        """Set whether new requests are refused, and return how many run or wait."""


class OpenBackend(Backend, Protocol):
    """A backend with what its process needs in addition: reports of internal events, and a way to end it."""

    on_internal: Internal
    on_death: Callable[[], None]  # called in the event loop when it cannot continue
    is_dead: bool
    why_dead: str  # empty while it works

    @property
    def settings(self) -> EngineSettings:
        """Return the settings with all defaults filled in."""

    async def close(self) -> None:
        """Close the backend. Running requests end with an error."""
