"""Our own engine as a backend: one thread computes; the event loop sends requests and receives outputs.

Calls reach the thread through a queue and run between two steps. Outputs of a step reach the event loop in one call.
The thread waits only when no request has anything to compute.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from engine_agent.backends.accelerator import accelerator
from engine_agent.backends.base import Internal, ModelCard
from engine_agent.backends.block_pages import BlockPages, Question, answered
from engine_agent.backends.block_pages import Found as FoundEvents
from engine_agent.backends.generation import Told, probe_seconds
from engine_agent.backends.paged.declarations import paged_enforcement
from engine_agent.backends.paged.opening import Tell, open_engine, served_name
from engine_agent.cache.prefixes import PurgeReceipt
from engine_agent.contracts.block_events import Load, Page
from engine_agent.contracts.enforcement import enforcement_encode
from engine_agent.contracts.protocol import Change, Snapshot
from engine_agent.engine.asked import Generate
from engine_agent.engine.engine import Engine
from engine_agent.engine.errors import BadRequest, EngineFailed, PagesFailed, RequestError
from engine_agent.engine.foretelling import foretellers
from engine_agent.engine.outputs import Admission, Delta
from engine_agent.engine.reporting import (
    engine_brief,
    engine_events,
    engine_levels,
    engine_load,
    engine_stats,
    receipt,
)
from engine_agent.engine.request import Job
from engine_agent.engine.settings import EngineSettings
from engine_agent.engine.tenants import NOBODY
from engine_agent.engine.tokenizer import Tokenizer
from engine_agent.process.version import luminet_version

LOG = logging.getLogger(__name__)
IDLE_SECONDS = 0.2  # between two timer checks without requests
BLOCKED_SECONDS = 0.002  # while all requests wait for memory, which only time or a purge can free
GATHER_SECONDS = 0.05  # outputs of a few steps are delivered together

Found = TypeVar("Found")


_Said = tuple[int, Admission] | Delta | RequestError | None


@dataclass(slots=True)
class _Speaker:
    """A job's sink, which collects outputs for its generation."""

    generation: Told
    tell: Callable[[Told, _Said], None]

    def admitted(self, prompt: int, admission: Admission) -> None:
        self.tell(self.generation, (prompt, admission))

    def delta(self, delta: Delta) -> None:
        self.tell(self.generation, delta)

    def failed(self, error: RequestError) -> None:
        self.tell(self.generation, error)

    def finished(self) -> None:
        self.tell(self.generation, None)


class PagedBackend:
    """Made by `open`, in the event loop that uses it; `close` ends its thread."""

    def __init__(self, engine: Engine, card: ModelCard) -> None:
        self.card = card
        self.engine = engine  # only the thread uses it
        self.on_internal: Internal = lambda kind, namespace, admission: None
        self._loop = asyncio.get_running_loop()
        self._asked: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._said: list[tuple[Told, _Said]] = []
        self._receipts: list[Mapping[str, Any]] = []
        self._is_closing = False
        self._door = threading.Lock()  # protects the queue: nothing enters after the thread's last look
        self.is_dead, self.why_dead = False, ""
        self.on_death: Callable[[], None] = _nothing  # called in the event loop when the thread cannot continue
        self._foretelling = asyncio.Lock()
        self._block_pages = BlockPages(self._look_at_events, hidden=NOBODY)
        self._followers, self._told_number, self._is_newer = 0, 0, asyncio.Event()
        self._applying = asyncio.Lock()  # otherwise a prepared snapshot could be out of date when it is applied
        engine.pins.admitted = self._pin_admitted
        engine.parts.pages.on_loaded = lambda: self._asked.put(_nothing)  # wakes the thread
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)
        self._thread.start()

    @classmethod
    async def open(
        cls,
        folder: Path,
        *,
        name: str | None = None,
        settings: EngineSettings | None = None,
        snapshot: Snapshot | None = None,
        boot: str | None = None,
        tell: Tell = lambda line: None,
    ) -> "PagedBackend":
        """Return a backend that has generated a first token. Raises BadModel, BadSetting, RejectedSnapshot, OSError."""
        name, settings = name or served_name(folder), settings or EngineSettings()
        engine = await asyncio.to_thread(open_engine, folder, name=name, settings=settings, boot=boot, tell=tell)
        backend = cls(engine, _card(engine, name, folder))
        try:
            await backend.probe()
            if snapshot is not None:
                await backend.apply(snapshot)
        except BaseException:
            await backend.close()
            raise
        return backend

    async def close(self) -> None:
        """Fail running requests and wait for the end of the thread."""
        self._shut()
        self._wake_followers()
        self._asked.put(_nothing)
        await asyncio.to_thread(self._thread.join)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.engine.parts.tokenizer

    @property
    def settings(self) -> EngineSettings:
        return self.engine.parts.settings

    # Requests

    async def generate(self, request: Generate) -> Told:
        """Send a request. Raises a RequestError. Cancellation while it waits withdraws the request."""
        job: list[Job] = []

        def leave() -> None:
            for submitted in job:
                self.engine.cancel(submitted)

        if not request.prompts:
            raise BadRequest("prompt", "no prompt at all")
        generation = Told(len(request.prompts), lambda: self._asked.put(leave))
        speaker = _Speaker(generation, self._tell)
        await generation.ready(self._ask(lambda: job.append(self.engine.submit(request, speaker))))
        return generation

    async def probe(self) -> float:
        return await probe_seconds(self.generate, lambda: self.engine.generated_tokens)

    # Tenants

    async def apply(self, change: Snapshot | Change) -> str:
        """Read a snapshot outside the engine's thread, so that answers continue, and apply it between two steps."""
        async with self._applying:
            prepared = await asyncio.to_thread(self.engine.tenants.prepare, change)

            def obey() -> str:
                self._keep(self.engine.tenants.obey(prepared))
                self.engine.after_snapshot()
                return prepared.after.snapshot.hash

            return await self._ask(obey)

    async def set_pin_content(self, pin_id: str, token_ids: Sequence[int]) -> None:
        def keep() -> None:
            if pin_id not in self.engine.tenants.pins:
                raise BadRequest("pin", f"{pin_id!r} is no pin of this engine's snapshot")
            self.engine.pins.set_content(pin_id, token_ids)

        await self._ask(keep)

    async def pins(self) -> list[Mapping[str, Any]]:
        return await self._ask(self.engine.pins.status)

    # Queries

    async def take_receipts(self) -> list[Mapping[str, Any]]:
        def take() -> list[Mapping[str, Any]]:
            pages = self.engine.parts.pages
            pages.run(self.engine.manager.take_operations())
            pages.settle()  # so that pages are really zeroed before a receipt says so
            self._keep(self.engine.manager.take_receipts())
            receipts, self._receipts = self._receipts, []
            return receipts

        return await self._ask(take)

    async def stats(self) -> Mapping[str, Any]:
        return await self._ask(lambda: engine_stats(self.engine))

    async def brief(self) -> Mapping[str, Any]:
        return await self._ask(lambda: engine_brief(self.engine))

    async def levels(self) -> Mapping[str, Any]:
        return await self._ask(lambda: engine_levels(self.engine))

    async def foretell(self, namespaces: Sequence[str]) -> Mapping[str, Any]:
        """Compute forecasts one call at a time: they take CPU time from the engine's thread."""
        async with self._foretelling:
            foretellers_by_namespace = await self._ask(lambda: foretellers(self.engine.manager, namespaces))
            return await asyncio.to_thread(
                lambda: {name: foreteller.told() for name, foreteller in foretellers_by_namespace.items()}
            )

    async def events(self, since: int, boot: str) -> Mapping[str, Any]:
        return await self._ask(lambda: engine_events(self.engine, since, boot))

    async def block_page(self, boot: str, since: int, *, wait_seconds: float = 0.0) -> Page:
        until = self._loop.time() + wait_seconds
        self._followers += 1
        try:
            while True:
                is_newer = self._is_newer  # before the query, so that later changes are noticed
                page = await self._block_pages.page(boot, since)
                if page.number != since or page.is_snapshot or self._loop.time() >= until:
                    return page
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(until):
                        await is_newer.wait()
                        await asyncio.sleep(GATHER_SECONDS)
        finally:
            self._followers -= 1

    async def _look_at_events(self, question: Question | None) -> tuple[FoundEvents, Load]:
        def look() -> tuple[FoundEvents, Load]:
            changes = answered(self.engine.manager.events, question) if question else None
            return changes, engine_load(self.engine)

        return await self._ask(look)

    @property
    def scale_sets(self) -> Mapping[str, str]:
        return {name: scales.digest for name, scales in self.engine.parts.scales.items()}

    @property
    def seats(self) -> int:
        return self.engine.seats

    async def check_integrity(self) -> list[str]:
        return await self._ask(self.engine.manager.check_integrity)

    async def is_open(self) -> bool:
        return await self._ask(lambda: not self.engine.is_draining)

    async def drain(self, is_draining: bool) -> int:
        if self.is_dead:
            return 0

        def drain() -> int:
            self.engine.is_draining = is_draining
            return len(self.engine.running) + len(self.engine.waiting)

        return await self._ask(drain)

    def _keep(self, receipts: Sequence[PurgeReceipt]) -> None:
        self._receipts += [receipt(purge, time.time()) for purge in receipts]

    async def _ask(self, function: Callable[[], Found]) -> Found:
        """Run a function in the thread between two steps."""
        answer: Future[Found] = Future()

        def do() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(function())
            except BaseException as problem:  # passed to the caller
                answer.set_exception(problem)

        with self._door:
            if self._is_closing:
                raise EngineFailed("", "the engine is closed")
            self._asked.put(do)
        return await asyncio.wrap_future(answer)

    # The thread

    def _work(self) -> None:
        try:
            while not self._is_closing:
                self._turn()
        except Exception as problem:
            LOG.critical("the engine's books or pages are wrong, so it serves no more", exc_info=True)
            cause = f"{type(problem).__name__}: {problem}".removesuffix(": ")
            self.why_dead = f"the engine's books or pages are wrong, so it serves no more: {cause}"
            self.is_dead = True
            self._shut()
            self._loop.call_soon_threadsafe(self.on_death)
        self._do_asked()
        self.engine.abandon(EngineFailed("", "the engine was stopped"))
        self._hand_over()
        self.engine.parts.pages.close()

    def _turn(self) -> None:
        self._do_asked()
        computed = self._compute()
        self._hand_over()
        if not computed:
            self._wait()

    def _compute(self) -> int:
        try:
            return (self.engine.step() if self.engine.has_work else 0) or self.engine.tick()
        except PagesFailed:
            raise
        except Exception:
            LOG.exception("a step failed; what was in it is lost, the engine goes on if its books are sound")
            self.engine.fail_all(EngineFailed("", "the engine failed in this step: its log says why"))
            if problems := self.engine.manager.check_integrity():
                raise RuntimeError("; ".join(problems[:5])) from None
            return 0

    def _shut(self) -> None:
        """Close the queue."""
        with self._door:
            self._is_closing = True

    def _wait(self) -> None:
        """Wait for a call, or until timers are due."""
        with suppress(queue.Empty):
            self._asked.get(timeout=BLOCKED_SECONDS if self.engine.has_work else IDLE_SECONDS)()

    def _do_asked(self) -> None:
        with suppress(queue.Empty):
            while True:
                self._asked.get_nowait()()

    def _tell(self, generation: Told, output: _Said) -> None:
        self._said.append((generation, output))

    def _hand_over(self) -> None:
        outputs, self._said = self._said, []
        if outputs and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_deliver, outputs)
        number = self.engine.manager.events.number
        if number != self._told_number and self._followers and not self._loop.is_closed():
            self._told_number = number
            self._loop.call_soon_threadsafe(self._wake_followers)

    def _wake_followers(self) -> None:
        is_newer, self._is_newer = self._is_newer, asyncio.Event()
        is_newer.set()

    def _pin_admitted(self, namespace: str, admission: Admission) -> None:
        self._loop.call_soon_threadsafe(self.on_internal, "pin", namespace, admission)


def _nothing() -> None:
    """Do nothing; only wakes the thread."""


def _deliver(outputs: Sequence[tuple[Told, _Said]]) -> None:
    for generation, output in outputs:
        if isinstance(output, tuple):
            generation.admit(*output)
        elif isinstance(output, Delta):
            generation.say(output)
        else:
            generation.end(output)


def _card(engine: Engine, name: str, folder: Path) -> ModelCard:
    parts = engine.parts
    return ModelCard(
        name=name,
        revision=parts.revision,
        created=int((folder / "config.json").stat().st_mtime),
        context_tokens=parts.context_tokens,
        vocab_size=parts.model.config.vocab_size,
        block_tokens=parts.settings.block_tokens,
        kv_dtypes=engine.kv_formats,
        device=str(parts.pages.arena.device),
        dtype=str(parts.model.embedding.dtype).removeprefix("torch."),
        pool_bytes=parts.settings.pool_bytes,
        block_bytes={name: parts.pages.layouts[name].page_bytes for name in engine.kv_formats},
        accelerator=accelerator(parts.pages.arena.device),
        backend_version=luminet_version(),
        enforcement=enforcement_encode(
            paged_enforcement(
                host_pool_bytes=parts.pages.host_bytes,
                host_formats=parts.pages.host_formats,
                kv_formats=engine.kv_formats,
            )
        ),
    )
