"""What one socket has still to be sent: the newest message of each type, and nothing older."""

import asyncio

from controlplane.live.listeners import Listener


class Cut(Exception):  # not an error: access has ended
    """This socket is to be closed with that code."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"closed with {code}")


class Outbox:
    """Filling it never waits for whoever empties it, and it never holds more than one message of a type."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self._newest: dict[str, str] = {}
        self._code: int | None = None
        self._something = asyncio.Event()

    def __len__(self) -> int:
        return len(self._newest)

    def offer(self, kind: str, text: str) -> None:
        self._newest.pop(kind, None)  # a newer message goes to the end: they leave in the order they were told
        self._newest[kind] = text
        self._something.set()

    def cut(self, code: int) -> None:
        self._code = code
        self._something.set()

    async def taken(self) -> list[str]:
        """Everything there is, as soon as there is anything; Cut where there is to be nothing any more."""
        await self._something.wait()
        self._something.clear()
        if self._code is not None:
            raise Cut(self._code)
        texts = list(self._newest.values())
        self._newest.clear()
        return texts
