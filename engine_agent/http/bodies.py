"""Reads request bodies within limits: each is no longer than a prompt can be, and all together fit into memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from engine_agent.http.client import Client
from engine_agent.http.errors import ApiError, unavailable


class BodyLimits(Protocol):
    @property
    def body_bytes(self) -> int:
        """Return the most bytes of one body."""

    @property
    def held_bytes(self) -> int:
        """Return the most bytes of all bodies that are being received or answered."""

    @property
    def receive_seconds(self) -> float: ...


class Bodies:
    def __init__(self, limits: BodyLimits) -> None:
        self._limits = limits
        self._held_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Return the bytes of all bodies that are being received or answered."""
        return self._held_bytes

    @asynccontextmanager
    async def reading(self, client: Client) -> AsyncIterator[bytes]:
        """Yield the whole body. Its bytes count as held until the caller leaves this context."""
        _check_encoding(client)
        self._check(_announced(client.headers.get("content-length")))
        body = bytearray()
        try:
            await self._receive(client, body)
            yield bytes(body)
        finally:
            self._held_bytes -= len(body)

    async def _receive(self, client: Client, body: bytearray) -> None:
        try:
            async with asyncio.timeout(self._limits.receive_seconds):
                more = True
                while more:
                    chunk, more = await client.chunk()
                    self._check(len(body) + len(chunk), len(body))
                    body += chunk
                    self._held_bytes += len(chunk)
        except TimeoutError:
            problem = f"The body did not arrive within {self._limits.receive_seconds:g} s."
            raise ApiError(408, problem, code="request_timeout", headers={"connection": "close"}) from None

    def _check(self, size: int, counted_bytes: int = 0) -> None:
        if size > self._limits.body_bytes:
            problem = f"The body has more than {self._limits.body_bytes:,} bytes, and no prompt needs more here."
            raise ApiError(413, problem, code="request_too_large")
        if self._held_bytes + size - counted_bytes > self._limits.held_bytes:
            raise unavailable("Too many large requests arrive at once.", "overloaded")


def _announced(length: str | None) -> int:
    return int(length) if length and length.isascii() and length.isdecimal() and len(length) < 19 else 0


def _check_encoding(client: Client) -> None:
    encoding = client.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        problem = f"A body encoded as {encoding[:40]!a} is not read here: send it plain."
        raise ApiError(415, problem, code="unsupported_encoding")
