"""Turns a body into its prompt as engines will see it: rendered, tokenised and hashed, as far as that is worth the
time.

Processes with limits render chats; a request whose chat cannot be rendered is routed without its prompt.

Known pieces are not tokenised again. Of new text, the first 16,384 characters are tokenised, 4,096 if 16,384 are
already known, and none if little follows the known part: the head shows where a prompt is cached. The rest is tokenised
later, in the background, so that of a chat that continues only the end is new. No text is stored, only tokens and
hashes, under names that are keyed hashes as well.
"""

import asyncio
import secrets
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, TypeVar

from engine_agent.cache.keys import Digest, packed_tokens
from engine_agent.gateway.knowing.bundles import Loaded
from engine_agent.gateway.knowing.chains import NAME_BYTES, Chain, Ground, Link, Marked
from engine_agent.gateway.knowing.cutting import Around
from engine_agent.gateway.knowing.remembering import Remembered
from engine_agent.prompts.bodies import PromptText, chat_read, completion_prompts, rendered_chat
from engine_agent.prompts.bounds import Bounds
from engine_agent.prompts.errors import EngineError
from engine_agent.prompts.renderer import BoundedTemplate, Renderer

T = TypeVar("T")
CHAT = "/v1/chat/completions"
HEAD_TOKENS = 4_096  # the most that `Prompt.tokens` contains
HEAD_CHARACTERS, MORE_CHARACTERS = 16_384, 4_096
TAIL = 16  # a rest so many times smaller than the known part is not tokenised: it changes no route
INLINE_CHARACTERS = 1_500  # a text of this size is tokenised in less than a millisecond
CHUNK_TOKENS = 1_024  # piece size of a prompt that consists of token ids
REMEMBERED_BYTES = 16 << 20  # limit for the tokens of pieces, and the same again for chains
MOST_LATER, LATER_CHARACTERS = 64, 4 << 20  # prompts whose rest waits for the background thread
THREADS = 2
RENDER_BOUNDS = Bounds(memory_bytes=512 << 20)
RENDER_WAIT_SECONDS = 2.0  # limit of the wait for a renderer process: only the route depends on it


@dataclass(frozen=True, slots=True)
class Prompt:
    tokens: "array[int]" = field(repr=False)  # the tokens of the prompt's head
    known_tokens: int
    is_whole: bool  # `known_tokens` counts the whole prompt
    is_only: bool  # the body has no other prompt
    chains: Mapping[Ground, Marked]
    model: str
    kv_format: str

    def matchable(self, chain_key: Ground) -> int:
        """Return how many tokens can match, in full blocks. An engine always computes the last, to get an output."""
        known_tokens = self.known_tokens - 1 if self.is_whole else self.known_tokens
        return max(0, known_tokens) // chain_key.block_tokens * chain_key.block_tokens

    @property
    def beginning(self) -> bytes:
        """Return the marks of the first blocks, which identify a conversation."""
        return next((marked.marks[:32] for marked in self.chains.values()), b"")


@dataclass(frozen=True, slots=True)
class Asking:
    """One body, and each `Ground` under which its prompt may be cached, all with the same bundle."""

    body: Mapping[str, Any] = field(repr=False)
    is_light: bool  # cheap to read, however long it is
    path: str
    model: str
    kv_format: str
    loaded: Loaded
    roots: Mapping[Ground, Digest] = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Piece:
    name: bytes
    text: str = ""
    tokens: "array[int] | None" = None  # if the prompt consists of token ids


@dataclass(frozen=True, slots=True)
class _Pieces:
    pieces: Sequence[_Piece]
    around: Around
    is_only: bool


class _TooLong(Exception):
    """More text is new than may be tokenised in the event loop."""


class Prompting:
    def __init__(
        self, tokenising: Callable[[float], None] = lambda seconds: None, renderer: Renderer | None = None
    ) -> None:
        self._tokenising = tokenising
        self._renderer = renderer or Renderer(wait_seconds=RENDER_WAIT_SECONDS, bounds=RENDER_BOUNDS)
        self._key = secrets.token_bytes(32)  # key of the names of pieces, which reveal nothing without it
        self._tokens: Remembered[bytes, array[int]] = Remembered(REMEMBERED_BYTES)
        self._links: Remembered[bytes, Link] = Remembered(REMEMBERED_BYTES)
        self._threads = ThreadPoolExecutor(THREADS, "prompts")
        self._later = ThreadPoolExecutor(1, "prompts-later")
        self._waiting: list[int] = []  # the characters of each prompt that waits for the background thread

    async def read(self, prompt_request: Asking) -> Prompt | None:
        """Return None if the prompt cannot be rendered here: the engine will report why."""
        try:
            text = await self._rendered(prompt_request) if prompt_request.path == CHAT else None
        except EngineError:
            return None
        if prompt_request.is_light:  # waiting for a thread would take longer than the work
            try:
                return self._read(prompt_request, text, most=INLINE_CHARACTERS)
            except _TooLong:
                pass
        return await self._in_thread(lambda: self._read(prompt_request, text))

    async def warm(self) -> None:
        """Start the renderer before the first chat needs it."""
        await self._renderer.warm()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._later.shutdown(wait=False, cancel_futures=True)
        self._renderer.close()

    async def _rendered(self, prompt_request: Asking) -> PromptText:
        """Raise EngineError if the chat cannot be rendered."""
        template = BoundedTemplate(prompt_request.loaded.bundle.template, self._renderer)

        def pack() -> bytes:
            return template.pack(chat_read(prompt_request.body))

        packed = pack() if prompt_request.is_light else await self._in_thread(pack)
        return rendered_chat(prompt_request.body, await template.render(packed))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _read(self, prompt_request: Asking, text: PromptText | None, most: int | None = None) -> Prompt | None:
        """Read a prompt. `text`: that of a rendered chat."""
        pieces = self._pieces(prompt_request, text)
        if pieces is None:
            return None
        prompt = self._walk(prompt_request, pieces, _New(most, sum(len(piece.text) for piece in pieces.pieces)))
        if not prompt.is_whole:
            self._make_up(prompt_request, pieces)
        return prompt

    def _make_up(self, prompt_request: Asking, pieces: _Pieces) -> None:
        """Tokenise the rest of the prompt later, in the background."""
        size = sum(len(piece.text) for piece in pieces.pieces)
        if not size or len(self._waiting) >= MOST_LATER or sum(self._waiting) + size > LATER_CHARACTERS:
            return
        self._waiting.append(size)

        def made_up() -> None:
            try:
                self._walk(prompt_request, pieces, _New(LATER_CHARACTERS))
            finally:
                self._waiting.remove(size)

        self._later.submit(made_up)

    # From a body to pieces

    def _pieces(self, prompt_request: Asking, text: PromptText | None) -> _Pieces | None:
        if text is not None:
            return self._of_text(prompt_request, text, is_only=True)
        try:
            prompts = completion_prompts(prompt_request.body)
        except EngineError:
            return None
        first, is_only = prompts[0], len(prompts) == 1
        return (
            self._of_text(prompt_request, first, is_only)
            if isinstance(first, PromptText)
            else self._of_ids(first, is_only)
        )

    def _of_text(self, prompt_request: Asking, prompt_text: PromptText, is_only: bool) -> _Pieces | None:
        cutter = prompt_request.loaded.cutter
        around = cutter.around if prompt_text.adds_special else Around()
        if around is None:
            return None
        try:
            pieces = [_Piece(self._name(piece.encode()), piece) for piece in cutter.pieces(prompt_text.text)]
        except UnicodeEncodeError:
            return None
        return _Pieces(pieces, around, is_only)

    def _of_ids(self, ids: Sequence[int], is_only: bool) -> _Pieces:
        chunks = (array("I", ids[start : start + CHUNK_TOKENS]) for start in range(0, len(ids), CHUNK_TOKENS))
        pieces = [_Piece(self._name(packed_tokens(chunk)), tokens=chunk) for chunk in chunks]
        return _Pieces(pieces, Around(), is_only)

    def _name(self, data: bytes) -> bytes:
        return blake2b(data, key=self._key, digest_size=NAME_BYTES).digest()

    # From pieces to marks

    def _walk(self, prompt_request: Asking, pieces: _Pieces, new: "_New") -> Prompt:
        """Compute the prompt of the pieces. Raise _TooLong if more text is new than `new` allows."""
        leading_tokens = array("I", pieces.around.before)
        chains = [
            Chain(chain_key, root, self._links, begins=leading_tokens)
            for chain_key, root in prompt_request.roots.items()
        ]
        head = leading_tokens[:]
        is_whole = True
        for piece in pieces.pieces:
            known_links = [chain.meet(piece.name) for chain in chains]
            new.is_headless = len(head) >= HEAD_TOKENS
            tokens, is_whole = self._tokens_of(prompt_request.loaded, piece, new, is_known=all(known_links))
            for chain in chains:
                chain.go(tokens, is_whole=is_whole)
            if tokens is not None and len(head) == chains[0].tokens - len(tokens) and len(head) < HEAD_TOKENS:
                head += tokens
            if not is_whole:
                break
        if is_whole and pieces.around.after:
            self._end(chains, pieces.around)
        self._tokenising(new.seconds)
        marked = {chain.ground: chain.marked() for chain in chains}
        tokens = head[:HEAD_TOKENS]
        return Prompt(
            tokens, chains[0].tokens, is_whole, pieces.is_only, marked, prompt_request.model, prompt_request.kv_format
        )

    def _tokens_of(
        self, loaded: Loaded, piece: _Piece, new: "_New", *, is_known: bool
    ) -> "tuple[array[int] | None, bool]":
        """Return the piece's tokens, if needed, and whether they are complete."""
        if piece.tokens is not None:
            return piece.tokens, True
        if is_known and new.is_headless:
            new.seen += len(piece.text)
            return None, True
        name = loaded.prefix + piece.name
        known_tokens = self._tokens.get(name)
        if known_tokens is not None or is_known:
            new.seen += len(piece.text)
            return known_tokens, True
        room = new.room()
        if len(piece.text) > room and new.is_bounded:
            raise _TooLong
        with new.timed():
            tokens = loaded.cutter.head_tokens(piece.text, room) if room else array("I")
        new.taken += min(room, len(piece.text))
        if len(piece.text) > room:
            return tokens, False
        self._tokens.put(name, tokens, len(tokens) * tokens.itemsize)
        return tokens, True

    def _end(self, chains: Sequence[Chain], around: Around) -> None:
        trailing_tokens = array("I", around.after)
        for chain in chains:
            chain.meet(packed_tokens(trailing_tokens))
            chain.go(trailing_tokens)


@dataclass(slots=True)
class _New:
    """How much of a prompt is new, and how much of that may be tokenised now. `most`: characters above which the
    prompt is too long; None: as many as are worthwhile. `total`: the prompt's characters, if its end may be left out.
    """

    most: int | None
    total: int | None = None
    is_headless: bool = False  # from here on, only marks need tokens
    seen: int = 0
    taken: int = 0
    seconds: float = 0.0

    @property
    def is_ending(self) -> bool:
        """Return whether only little follows the known part."""
        return self.total is not None and self.total - self.seen <= self.seen // TAIL and self.seen > HEAD_CHARACTERS

    @property
    def is_bounded(self) -> bool:
        return self.most is not None and not self.is_ending

    def room(self) -> int:
        if self.is_ending:
            return 0
        most_characters = max(HEAD_CHARACTERS - self.seen, MORE_CHARACTERS) if self.most is None else self.most
        return max(0, most_characters - self.taken)

    def timed(self) -> "_Timed":
        return _Timed(self)


@dataclass(slots=True)
class _Timed:
    new: _New
    began: float = 0.0

    def __enter__(self) -> None:
        self.began = time.perf_counter()

    def __exit__(self, *problem: object) -> None:
        self.new.seconds += time.perf_counter() - self.began
