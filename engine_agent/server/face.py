"""Dependencies that the endpoints share, and the result of parsing a request's body."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from engine_agent.backends.base import Backend
from engine_agent.engine.asked import check_prompt
from engine_agent.engine.params import SamplingParams
from engine_agent.http.bodies import Bodies
from engine_agent.http.errors import model_not_found
from engine_agent.journal.journal import Journal
from engine_agent.prompts.templates import Chat
from engine_agent.server.answers import Head, Shape, Vocabulary
from engine_agent.server.guard import Guard
from engine_agent.server.limits import Limits
from engine_agent.server.metrics import Observer
from engine_agent.server.schemas import Asking

T = TypeVar("T")
Understand = Callable[["Face", bytes], Awaitable["Understood"]]  # parses a body. Raises ApiError
SMALL_BODY_BYTES = 4_096  # parsed in a millisecond or two, for which others can wait
MOST_THREADS = 2


class Text(Vocabulary, Protocol):
    """The tokenizer methods that the server needs."""

    def encode(self, text: str, add_special: bool = True) -> list[int]: ...
    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str: ...


class Template(Protocol):
    """The chat template methods that the server needs. `render` takes the result of `pack`. Both raise RequestError."""

    def pack(self, chat: Chat) -> bytes: ...
    async def render(self, packed: bytes) -> str: ...


@dataclass(frozen=True, slots=True)
class Understood:
    """A valid body: the input of the generation and the format of the answer."""

    asked: Asking
    prompts: tuple[Sequence[int], ...]
    sampling: SamplingParams
    shape: Callable[[Head], Shape]
    id_prefix: str


@dataclass(frozen=True, slots=True)
class Face:
    backend: Backend
    tokenizer: Text
    template: Template
    journal: Journal
    guard: Guard
    agent_id: str
    limits: Limits
    observer: Observer
    bodies: Bodies
    clock: Callable[[], float] = time.time  # for deadlines and records: the fleet's, if there is one
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    _threads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_THREADS))

    def check_model(self, name: str) -> None:
        if name != self.backend.card.name:
            raise model_not_found(name, [self.backend.card.name])

    def check_prompt(self, prompt: Sequence[int]) -> None:
        """Raise BadRequest or Overlong, as the engine would, before any further work on the prompt."""
        card = self.backend.card
        check_prompt(prompt, context_tokens=card.context_tokens, vocab_size=card.vocab_size)

    async def worked(self, work: Callable[[], T], *, on: bytes | str) -> T:
        """Return the result of the work on a body or text.

        Large ones are parsed and tokenised in a thread, so that others' tokens continue meanwhile.
        """
        if len(on) <= SMALL_BODY_BYTES:
            return work()
        async with self._threads:
            return await asyncio.to_thread(work)
