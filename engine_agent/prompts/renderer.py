"""Renders chats in separate processes, so that no template can block an event loop or take a server's memory.

A few processes stay alive, and each renders one chat at a time. One that exceeds its limits is replaced.
"""

import asyncio
import contextlib
import logging
from typing import cast

from engine_agent.prompts.bounds import START_SECONDS, Bounds, Started, process_start
from engine_agent.prompts.errors import BadRequest, RequestError, TemplateUnavailable
from engine_agent.prompts.frames import ASKS, HEAD, OutOfMemory, answer_decode, render_request
from engine_agent.prompts.templates import Chat, TemplateSource

log = logging.getLogger(__name__)
PROCESSES = 2  # one slow template leaves another process free
REAP_SECONDS = 60.0  # a killed process may take that long to end on a very busy machine


class Renderer:
    """A pool of renderer processes. A chat waits at most `wait_seconds` for one."""

    def __init__(self, *, wait_seconds: float, bounds: Bounds | None = None) -> None:
        self._wait_seconds, self._bounds = wait_seconds, bounds or Bounds()
        self._free = asyncio.Semaphore(PROCESSES)
        self._children: set[_Child] = set()
        self._idle: list[_Child] = []
        self._rendering: set[asyncio.Task[str]] = set()
        self._is_closed = False

    async def warm(self) -> None:
        """Start a process before the first chat needs it."""
        if not self._children:
            with contextlib.suppress(OSError):  # the first chat tries again, and reports the error
                self._idle.append(await self._start())

    async def render(self, request: bytes) -> str:
        """Return the text of a `render_request`. Raise BadRequest or TemplateUnavailable."""
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._free.acquire()
        except TimeoutError:
            raise TemplateUnavailable("", f"{PROCESSES} others take long") from None
        task = asyncio.create_task(self._answer(request))
        self._rendering.add(task)
        task.add_done_callback(self._done)
        # If the caller leaves, the process finishes the chat, and need not be replaced.
        return await asyncio.shield(task)

    def close(self) -> None:
        self._is_closed = True
        for child in tuple(self._children):
            child.kill()
            child.reap()
        self._children.clear()
        self._idle.clear()

    def _done(self, task: "asyncio.Task[str]") -> None:
        self._free.release()
        self._rendering.discard(task)
        if not task.cancelled():
            task.exception()  # marked as retrieved: its caller may have left

    async def _answer(self, request: bytes) -> str:
        child = await self._next()
        try:
            return await self._asked(child, request)
        finally:
            if child.is_good and child.is_small:
                self._idle.append(child)
            else:
                await self._end(child)

    async def _asked(self, child: "_Child", request: bytes) -> str:
        problem: RequestError
        try:
            async with asyncio.timeout(self._bounds.wall_seconds):
                return await child.ask(request)
        except OutOfMemory:
            problem = self._bounds.out_of_memory()
        except TimeoutError:
            problem = self._bounds.out_of_time()
        except EOFError:
            problem = self._bounds.ended(await self._end(child))
        log.warning("a chat could not be rendered: %s", problem.problem)
        raise problem

    async def _next(self) -> "_Child":
        """Raise TemplateUnavailable if no process starts."""
        while self._idle:
            child = self._idle.pop()
            if child.is_good:
                return child
            await self._end(child)
        try:
            return await self._start()
        except OSError as problem:
            raise TemplateUnavailable("", f"no process can be started: {problem}") from problem

    async def _start(self) -> "_Child":
        """Raise OSError if the process does not get ready."""
        child = await _Child.start(self._bounds)
        self._children.add(child)
        try:
            if self._is_closed:
                raise EOFError
            async with asyncio.timeout(START_SECONDS):
                await child.ready()
        except BaseException as problem:
            status = await self._end(child)
            if isinstance(problem, EOFError | TimeoutError):
                raise OSError(f"it ended with status {status} before it was ready") from None
            raise
        return child

    async def _end(self, child: "_Child") -> int:
        """Kill the process, and return its exit status."""
        self._children.discard(child)
        child.kill()
        return await asyncio.to_thread(child.reap)


class _Child(asyncio.Protocol):
    """One process, with one request at a time."""

    def __init__(self, started: Started) -> None:
        self._process, self._exchange = started.process, started.exchange
        self._transport: asyncio.Transport
        self._head: asyncio.Future[tuple[int, bytes]] | None = None
        self._received, self._is_lost = b"", False
        self.is_good = True  # whether it can take another request

    @classmethod
    async def start(cls, bounds: Bounds) -> "_Child":
        """Raise OSError if no process starts."""
        started = await asyncio.to_thread(process_start, bounds)
        child = cls(started)
        await asyncio.get_running_loop().create_unix_connection(lambda: child, sock=started.connection)
        return child

    @property
    def is_small(self) -> bool:
        return self._exchange.is_usual

    async def ready(self) -> None:
        """Raise EOFError if the process ends before it is ready."""
        await self._answered()

    async def ask(self, request: bytes) -> str:
        """Raise BadRequest, OutOfMemory, or EOFError if the process ends before it answers."""
        self.is_good = False  # until it answers, with memory left
        self._transport.write(HEAD.pack(self._exchange.put(request), ASKS))
        size, kind = await self._answered()
        try:
            text = answer_decode(kind, self._exchange.take(size))
        except BadRequest:
            self.is_good = True
            raise
        self.is_good = True
        return text

    def kill(self) -> None:
        self._transport.abort()
        self._process.kill()

    def reap(self) -> int:
        """Return the exit status of a killed process."""
        self._exchange.close()
        return self._process.wait(REAP_SECONDS)

    async def _answered(self) -> tuple[int, bytes]:
        """Raise EOFError if the process ends before it answers."""
        self._head = asyncio.get_running_loop().create_future()
        self._look()
        return await self._head

    def _look(self) -> None:
        """End the wait for a head if it has arrived, or never will."""
        if self._head is None or self._head.done():
            return
        if len(self._received) >= HEAD.size:
            self._head.set_result(HEAD.unpack(self._received))
            self._received = b""
        elif self._is_lost:
            self._head.set_exception(EOFError())

    # Callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._look()

    def connection_lost(self, problem: Exception | None) -> None:
        self._is_lost, self.is_good = True, False
        self._look()


class BoundedTemplate:
    """A model's chat template, rendered within bounds."""

    def __init__(self, source: TemplateSource, renderer: Renderer) -> None:
        self._source, self._renderer = source, renderer

    def pack(self, chat: Chat) -> bytes:
        """Encode a chat for `render`, in a thread if it is long. Raise BadRequest if it is nested too deeply."""
        return render_request(self._source, chat)

    async def render(self, packed: bytes) -> str:
        """Return the text to tokenise, without the tokenizer's special tokens.

        Raise BadRequest or TemplateUnavailable.
        """
        return await self._renderer.render(packed)
