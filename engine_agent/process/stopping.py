"""Stop a server process: the first SIGTERM or SIGINT asks it to finish, the second ends it at once."""

import asyncio
import signal
from collections.abc import Coroutine, Sequence
from typing import Any

STOPPED_AT_ONCE = 128


class StopSignals:
    def __init__(self) -> None:
        self.stopping, self.now = asyncio.Event(), asyncio.Event()
        self._last = 0

    def listen(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._receive, number)

    @property
    def exit_status(self) -> int:
        return STOPPED_AT_ONCE + self._last if self.now.is_set() else 0

    def _receive(self, number: int) -> None:
        self._last = number
        if self.stopping.is_set():
            self.now.set()
        self.stopping.set()


async def first(event: Coroutine[Any, Any, Any], tasks: Sequence["asyncio.Task[None]"]) -> None:
    """Wait for the event. If a task ends before, raise its error."""
    waiting = asyncio.create_task(event)
    done, _ = await asyncio.wait({waiting, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    for task in done - {waiting}:
        task.result()
