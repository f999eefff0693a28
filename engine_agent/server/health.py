"""Whether the engine still does its work, proven by a token it really generates."""

import asyncio

from engine_agent.backends.base import Backend
from engine_agent.engine.errors import DeadlinePassed

PROBE_SECONDS = 10.0


class Prober:
    """Many may ask at once; they share one token."""

    def __init__(self, backend: Backend, *, most_seconds: float = PROBE_SECONDS) -> None:
        self._backend, self._most_seconds = backend, most_seconds
        self._running: asyncio.Task[float] | None = None

    async def check(self) -> float:
        """Seconds the token took. Raises EngineFailed, Overloaded, DeadlinePassed."""
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
    """Who asked may have left; then its failure is nobody's."""
    if not task.cancelled():
        task.exception()
