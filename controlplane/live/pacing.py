"""A deed that many ask for, done as often as asked and at most once in a while."""

import asyncio
from collections.abc import Awaitable, Callable


class Paced:
    """Who asks while it is done, or too soon after, is served by the next time: together with everybody else."""

    def __init__(self, deed: Callable[[], Awaitable[None]], *, seconds: float) -> None:
        self._deed = deed
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
