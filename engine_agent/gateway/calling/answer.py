"""An engine's answer as it arrives: its head, then its body in parts, for a single reader. Unread bytes are bounded."""

import asyncio
from collections.abc import Callable, Sequence

READ_BYTES = 2**18  # unread, above which the connection stops reading


class Lost(Exception):
    """The connection ended, or the engine sent something that is not HTTP."""


class Answer:
    """An answer that a connection fills. `is_full` and `is_over` show the connection when to stop reading."""

    __slots__ = ("_held", "_is_whole", "_parts", "_problem", "_resume", "_waiter", "has_head", "headers", "status")

    def __init__(self, resume: Callable[[], None]) -> None:
        self.status = 0
        self.headers: Sequence[tuple[str, str]] = ()  # in the engine's order, with lower-case names
        self.has_head = False
        self._resume = resume  # makes the connection read again
        self._parts: list[bytes] = []
        self._held = 0
        self._is_whole = False
        self._problem: Lost | None = None
        self._waiter: asyncio.Future[None] | None = None

    # For the reader

    async def head(self) -> None:
        """Wait for status and headers. Raise Lost if the connection fails."""
        while not self.has_head:
            await self._more()

    async def part(self) -> bytes:
        """Return the bytes since the last call, or none at the end. Raise Lost if the connection failed."""
        while not self._parts:
            if self._is_whole:
                return b""
            await self._more()
        parts, was_full = self._parts, self.is_full
        self._parts, self._held = [], 0
        if was_full:
            self._resume()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def header(self, name: str) -> str:
        """Return the header's first value, or an empty string."""
        return next((value for header_name, value in self.headers if header_name == name), "")

    @property
    def media_type(self) -> str:
        return self.header("content-type").partition(";")[0].strip().lower()

    # For the connection

    @property
    def is_whole(self) -> bool:
        return self._is_whole

    @property
    def is_over(self) -> bool:
        return self._is_whole or self._problem is not None

    @property
    def is_full(self) -> bool:
        return self._held > READ_BYTES

    def begin(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        self.status, self.headers, self.has_head = status, headers, True
        self._wake()

    def add(self, data: bytes) -> None:
        self._parts.append(data)
        self._held += len(data)
        self._wake()

    def end(self) -> None:
        self._is_whole = True
        self._wake()

    def fail(self, problem: str) -> None:
        if not self.is_over:
            self._problem = Lost(problem)
            self._wake()

    async def _more(self) -> None:
        if self._problem is not None:
            raise self._problem
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
