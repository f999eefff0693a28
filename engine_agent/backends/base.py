"""What the server needs of an engine, whichever it is: the whole of it, and nothing else.

All calls come from one event loop. What is asked between two steps is answered after the step that runs.
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

Internal = Callable[[str, str, Admission], None]  # kind, namespace, what it was worth


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What is served here."""

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
    backend: str = "paged"  # who computes: our own engine, or vLLM
    backend_version: str = ""
    computed_as: Mapping[str, str] = field(default_factory=dict)  # formats that are computed as another, with that one
    enforcement: Mapping[str, Any] = field(default_factory=dict)  # of policy fields, as enforcement_encode writes it


class Generation(Protocol):
    """An admitted request. Choices of the second prompt follow those of the first."""

    @property
    def admissions(self) -> tuple[Admission, ...]:
        """One for each prompt."""

    def __aiter__(self) -> AsyncIterator[Delta]: ...

    def cancel(self) -> None:
        """Its client has left: blocks are free after the step that runs. May be called twice, or after the end."""


class Backend(Protocol):
    @property
    def card(self) -> ModelCard: ...

    async def generate(self, request: Generate) -> Generation:
        """Answers when every prompt is admitted, so headers can leave. Raises a RequestError; cancelled while it
        waits, the request is withdrawn.
        """

    # The tenants

    async def apply(self, change: Snapshot | Change) -> str:
        """All of it between two steps, or nothing. The hash of the snapshot that holds now. Raises RejectedSnapshot,
        and HashMismatch for a change to another state than the one here.
        """

    async def set_pin_content(self, pin_id: str, token_ids: Sequence[int]) -> None:
        """What a pin of the snapshot keeps. It is prefilled where it is not resident."""

    async def pins(self) -> list[Mapping[str, Any]]:
        """Every pin of the snapshot, with what is missing: its content, its blocks, or nothing."""

    # What the sidecar and people ask

    async def take_receipts(self) -> list[Mapping[str, Any]]: ...

    async def stats(self) -> Mapping[str, Any]: ...

    async def brief(self) -> Mapping[str, Any]:
        """Of the stats, what is asked all the time."""

    async def levels(self) -> Mapping[str, Any]:
        """Of the stats, what is kept over time: the pool, and what namespaces hold and have lost."""

    async def foretell(self, namespaces: Sequence[str]) -> Mapping[str, Any]:
        """What other TTLs and limits would do to them, of those of which that can be told."""

    async def events(self, since: int, boot: str) -> Mapping[str, Any]: ...

    async def block_page(self, boot: str, since: int, *, wait_seconds: float = 0.0) -> Page:
        """What gateways are told that know what came up to `since`: at once when there is something, else within
        `wait_seconds`.
        """

    @property
    def scale_sets(self) -> Mapping[str, str]:
        """By format, the digest that is part of its chains' roots."""

    @property
    def seats(self) -> int:
        """Answers it computes at once."""

    async def check_integrity(self) -> list[str]: ...

    async def is_open(self) -> bool:
        """Whether it takes customers' requests: asked between two steps, at next to no cost. Raises EngineFailed."""

    async def probe(self) -> float:
        """Has one token generated, on nobody's account. Seconds it took. Raises EngineFailed, DeadlinePassed."""

    async def drain(self, is_draining: bool) -> int:
        """Whether new requests are refused from now on. How many run or wait."""


class OpenBackend(Backend, Protocol):
    """What its process needs besides: to be told what happens by itself, and to end it."""

    on_internal: Internal
    on_death: Callable[[], None]  # in the event loop, when it cannot go on
    is_dead: bool
    why_dead: str  # empty while it lives

    @property
    def settings(self) -> EngineSettings:
        """With a number everywhere."""

    async def close(self) -> None:
        """What runs ends with an error."""
