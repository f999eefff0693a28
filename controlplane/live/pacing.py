"""Run an action on request, but at most once in an interval."""

import asyncio
from collections.abc import Awaitable, Callable


class Paced:
    """Combines requests: those made during a run or too soon after it are all served by the next run."""

    def __init__(self, action: Callable[[], Awaitable[None]], *, seconds: float) -> None:
        self._deed = action
        self._seconds = seconds
        self._asked = asyncio.Event()

    @property
    def is_asked(self) -> bool:
        return self._asked.is_set()

    def ask(self) -> None:
        self._asked.set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._asked.wait()
            self._asked.clear()
            began = loop.time()
            await self._deed()
            await asyncio.sleep(max(0.0, began + self._seconds - loop.time()))
