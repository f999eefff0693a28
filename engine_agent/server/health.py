"""Prove that the engine works, with a token that it really generates."""

import asyncio

from engine_agent.backends.base import Backend
from engine_agent.engine.errors import DeadlinePassed

PROBE_SECONDS = 10.0


class Prober:
    """Shares one probe among concurrent callers."""

    def __init__(self, backend: Backend, *, most_seconds: float = PROBE_SECONDS) -> None:
        self._backend, self._most_seconds = backend, most_seconds
        self._running: asyncio.Task[float] | None = None

    async def check(self) -> float:
        """Return the seconds that the token took. Raises EngineFailed, Overloaded, DeadlinePassed."""
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._probe())
            self._running.add_done_callback(_seen)
        return await asyncio.shield(self._running)

    async def _probe(self) -> float:
        try:
            async with asyncio.timeout(self._most_seconds):
                return await self._backend.probe()
        except TimeoutError:
            raise DeadlinePassed("", f"no token within {self._most_seconds:g} s") from None


def _seen(task: "asyncio.Task[float]") -> None:
    """Mark the task's exception as retrieved, because all callers may have left."""
    if not task.cancelled():
        task.exception()
