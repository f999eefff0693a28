"""Receipts of purges, kept until their reader acknowledges them."""

from collections import deque
from collections.abc import Mapping
from typing import Any

from engine_agent.backends.base import Backend

MOST_KEPT = 10_000


class BadReceiptNumber(Exception):
    """A number after the last receipt, which the caller can never have seen."""


class Receipts:
    """Receipts, numbered from 1 in every boot. The engine returns each once; here they survive a reader's crash."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._kept: deque[Mapping[str, Any]] = deque(maxlen=MOST_KEPT)
        self._count = 0

    async def after(self, number: int) -> list[Mapping[str, Any]]:
        """Return all receipts after `number`. Drop those up to it, which are acknowledged. Raises BadReceiptNumber."""
        for receipt in await self._backend.take_receipts():
            self._count += 1
            self._kept.append({"number": self._count, **receipt})
        if number > self._count:
            raise BadReceiptNumber(f"the last receipt is {self._count}, found {number}")
        while self._kept and self._kept[0]["number"] <= number:
            self._kept.popleft()
        return list(self._kept)
