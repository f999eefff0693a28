"""The messages waiting for one socket: only the newest of each type."""

import asyncio

from controlplane.live.listeners import Listener


class Cut(Exception):  # not an error: access has ended
    """The socket must be closed with this code."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"closed with {code}")


class Outbox:
    """The unsent messages of one socket, at most one of each type. Adding one never waits for the client."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self._newest: dict[str, str] = {}
        self._code: int | None = None
        self._something = asyncio.Event()

    def __len__(self) -> int:
        return len(self._newest)

    def offer(self, kind: str, text: str) -> None:
        self._newest.pop(kind, None)  # a newer message goes to the end, to keep the order of sending
        self._newest[kind] = text
        self._something.set()

    def cut(self, code: int) -> None:
        self._code = code
        self._something.set()

    async def taken(self) -> list[str]:
        """Wait for messages and return all of them, or raise Cut if access has ended."""
        await self._something.wait()
        self._something.clear()
        if self._code is not None:
            raise Cut(self._code)
        texts = list(self._newest.values())
        self._newest.clear()
        return texts
