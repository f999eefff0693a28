"""A backend that does what a test tells it to: the protocol's other side, without a model. And text as bytes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any

from engine_agent.backends.base import Generate, ModelCard
from engine_agent.contracts.block_events import Load, Page
from engine_agent.contracts.protocol import Change, Snapshot
from engine_agent.engine.errors import BadRequest, RequestError
from engine_agent.engine.outputs import Admission, Delta, Logprob, TokenLogprobs
from engine_agent.prompts.frames import render_request
from engine_agent.prompts.templates import Chat, TemplateSource
from tests.engines.rendering import chat_unpacked

END = 256
CARD = ModelCard(
    name="tiny",
    revision="0123456789abcdef" * 4,
    created=1_700_000_000,
    context_tokens=512,
    vocab_size=257,
    block_tokens=16,
    kv_dtypes=("bf16", "fp8", "int4"),
    device="cpu",
    dtype="float32",
    pool_bytes=1_000,
    block_bytes={"bf16": 10, "fp8": 5, "int4": 3},
)
LOAD = Load(running=2, waiting=1, seats=8, free_blocks=85, pool_blocks=100, seconds_behind=0.25)
STATS: Mapping[str, Any] = {
    "boot": "b1",
    "snapshot_hash": "",
    "running": 2,
    "waiting": 1,
    "preemptions": 3,
    "steps": 40,
    "computed_tokens": 1_000,
    "generated_tokens": 50,
    "pool": {
        "capacity_bytes": 1_000,
        "used_bytes": 250,
        "evictable_bytes": 100,
        "usage_ratio": 0.25,
        "waste_ratio": 0.01,
    },
    "host": None,
    "namespaces": [
        {
            "namespace": "ns-1",
            "organisation_slug": "acme",
            "namespace_slug": "default",
            "revision": 7,
            "epoch": 1,
            "running": 2,
            "waiting": 1,
            "resident_bytes": 250,
            "resident_bytes_by_dtype": {"fp8": 200, "int4": 50},
            "host_bytes": 0,
            "counters": {"expired_blocks": 4},
        }
    ],
    "evictions": [
        {
            "victim": "ns-1",
            "by": "ns-2",
            "cause": "quota",
            "tier": "device",
            "blocks": 2,
            "bytes": 64,
            "demoted_blocks": 0,
        },
        {
            "victim": "ns-1",
            "by": "ns-3",
            "cause": "quota",
            "tier": "device",
            "blocks": 1,
            "bytes": 32,
            "demoted_blocks": 0,
        },
    ],
    "warnings": [],
    "warning_counts": {"preempted": 3},
}


class ByteText:
    """One token for each byte, and one for the end."""

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        return bytes(one for one in ids if one != END).decode(errors="replace")

    def token_text(self, token: int) -> str:
        return "<end>" if token == END else bytes([token]).decode(errors="replace")

    def token_bytes(self, token: int) -> bytes:
        return b"<end>" if token == END else bytes([token])


class PlainTemplate:
    def pack(self, chat: Chat) -> bytes:
        return render_request(TemplateSource(None, {}), chat)

    async def render(self, packed: bytes) -> str:
        chat = chat_unpacked(packed)
        if any(message["role"] == "developer" for message in chat.messages):
            raise BadRequest("messages", "the model's template knows no role developer")
        lines = [f"{message['role']}: {_joined(message['content'])}\n" for message in chat.messages]
        extra = "".join(f"{name}={value}\n" for name, value in chat.kwargs.items())
        return "".join(lines) + extra + ("assistant: " if chat.add_generation_prompt else "")


def _joined(content: Any) -> str:
    return content if isinstance(content, str) else "|".join(part["text"] for part in content)


Script = Callable[[Generate], Iterable[Delta | RequestError]]


def saying(text: str, *, finish: Any = "stop", logprobs: bool = False) -> Script:
    """Every choice says this, a character at a time, all choices in turn."""

    def script(request: Generate) -> Iterable[Delta]:
        choices = len(request.prompts) * request.sampling.n
        for at, letter in enumerate(text):
            for choice in range(choices):
                last = finish if at == len(text) - 1 else None
                yield Delta(choice, letter.encode()[0], letter, told(letter) if logprobs else None, last)

    return script


def told(letter: str) -> TokenLogprobs:
    token = letter.encode()[0]
    return TokenLogprobs(Logprob(token, -0.5), (Logprob(token, -0.5), Logprob(END, float("-inf"))))


class ScriptedGeneration:
    def __init__(self, backend: "ScriptedBackend", request: Generate) -> None:
        self._backend, self._request = backend, request
        self.admissions = tuple(backend.admission(prompt) for prompt in request.prompts)
        self.was_cancelled = False

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self._deltas()

    async def _deltas(self) -> AsyncIterator[Delta]:
        for number, one in enumerate(self._backend.script(self._request)):
            if number == self._backend.pause_after:
                await self._backend.resumed.wait()
            if isinstance(one, RequestError):
                raise one
            yield one
        self._backend.live.discard(self)

    def cancel(self) -> None:
        if self in self._backend.live:
            self.was_cancelled = True
            self._backend.live.discard(self)
            self._backend.cancelled.set()


class ScriptedBackend:
    def __init__(self) -> None:
        self.card = CARD
        self.script: Script = saying("Hello")
        self.refusal: Exception | None = None
        self.cached_tokens = 0
        self.organisation_id = "org-1"  # whose every namespace is
        self.pause_after: int | None = None
        self.resumed = asyncio.Event()
        self.admitting = asyncio.Event()
        self.admitting.set()
        self.asked = asyncio.Event()
        self.withdrawn = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.requests: list[Generate] = []
        self.pages_asked: list[tuple[str, int, float]] = []
        self.live: set[ScriptedGeneration] = set()
        self.stats_told: Mapping[str, Any] | None = STATS
        self.is_draining = False
        self.answers = True  # when it is asked whether it is open

    def admission(self, prompt: Sequence[int]) -> Admission:
        cached = min(self.cached_tokens, len(prompt))
        missed = len(prompt) - cached
        reason = "cold" if missed >= CARD.block_tokens else "none"
        tail = missed % CARD.block_tokens
        missing = {"cold": missed - tail, "tail": tail}
        return Admission(len(prompt), cached, "fp8", 7, reason, missing, self.organisation_id)

    async def generate(self, request: Generate) -> ScriptedGeneration:
        self.requests.append(request)
        self.asked.set()
        try:
            await self.admitting.wait()
        except asyncio.CancelledError:
            self.withdrawn.set()
            raise
        if self.refusal:
            raise self.refusal
        generation = ScriptedGeneration(self, request)
        self.live.add(generation)
        return generation

    async def stats(self) -> Mapping[str, Any]:
        if self.stats_told is None:
            await asyncio.Event().wait()
        assert self.stats_told is not None
        return self.stats_told

    async def brief(self) -> Mapping[str, Any]:
        return await self.stats()

    async def is_open(self) -> bool:
        if not self.answers:
            await asyncio.Event().wait()
        return not self.is_draining

    # The admin face's part, which nothing here asks for.

    async def apply(self, change: Snapshot | Change) -> str:
        raise NotImplementedError

    async def set_pin_content(self, pin_id: str, token_ids: Sequence[int]) -> None:
        raise NotImplementedError

    async def pins(self) -> list[Mapping[str, Any]]:
        raise NotImplementedError

    async def take_receipts(self) -> list[Mapping[str, Any]]:
        raise NotImplementedError

    async def levels(self) -> Mapping[str, Any]:
        return {}

    async def foretell(self, namespaces: Sequence[str]) -> Mapping[str, Any]:
        return {}

    async def events(self, since: int, boot: str) -> Mapping[str, Any]:
        raise NotImplementedError

    async def block_page(self, boot: str, since: int, *, wait_seconds: float = 0.0) -> Page:
        self.pages_asked.append((boot, since, wait_seconds))
        return Page("boot-1", since + 1, boot != "boot-1", True, LOAD, ())

    @property
    def scale_sets(self) -> Mapping[str, str]:
        return {"fp8": "f" * 64}

    @property
    def seats(self) -> int:
        return LOAD.seats

    async def check_integrity(self) -> list[str]:
        raise NotImplementedError

    async def probe(self) -> float:
        raise NotImplementedError

    async def drain(self, is_draining: bool) -> int:
        raise NotImplementedError
