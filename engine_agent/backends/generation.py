"""A request under way, on the event loop's side of any backend: what its engine told of it, for who reads it; and the
engine's own, of one token.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from engine_agent.backends.base import Generation
from engine_agent.engine.asked import Generate
from engine_agent.engine.errors import RequestError
from engine_agent.engine.outputs import Admission, Delta
from engine_agent.engine.params import SamplingParams
from engine_agent.engine.tenants import NOBODY

PROBE_SECONDS = 10.0
PROBE_LOOK_SECONDS = 0.5  # between two looks at whether others are given tokens


class Told:
    """One job."""

    def __init__(self, prompts: int, leave: Callable[[], None]) -> None:
        """`leave`: the engine is to forget it."""
        self._prompts, self._leave = prompts, leave
        self._admitted: dict[int, Admission] = {}
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._outputs: asyncio.Queue[Delta | RequestError | None] = asyncio.Queue()
        self.is_over = False

    @property
    def admissions(self) -> tuple[Admission, ...]:
        return tuple(self._admitted[place] for place in range(self._prompts))

    async def __aiter__(self) -> AsyncIterator[Delta]:
        """Deltas as they come. Raises the RequestError that ended it."""
        while (output := await self._outputs.get()) is not None:
            if isinstance(output, RequestError):
                raise output
            yield output

    async def ready(self, asking: Awaitable[object]) -> None:
        """When it was asked for and every prompt is admitted. Raises a RequestError; whatever goes wrong, or cancelled,
        it is withdrawn.
        """
        try:
            await asking
            await self._ready
        except BaseException:
            self.cancel()
            if self._ready.done() and not self._ready.cancelled():
                self._ready.exception()  # looked at: nobody else will
            raise

    def cancel(self) -> None:
        if not self.is_over:
            self.end(None)
            self._leave()

    def fail(self, error: RequestError) -> None:
        """It cannot go on, and its engine does not know."""
        if not self.is_over:
            self.end(error)
            self._leave()

    # What its engine tells

    def admit(self, prompt: int, admission: Admission) -> None:
        self._admitted.setdefault(prompt, admission)
        if len(self._admitted) == self._prompts and not self._ready.done():
            self._ready.set_result(None)

    def say(self, delta: Delta) -> None:
        self._outputs.put_nowait(delta)

    def end(self, error: RequestError | None) -> None:
        if self.is_over:
            return
        self.is_over = True
        if error is not None and not self._ready.done():
            self._ready.set_exception(error)
        self._outputs.put_nowait(error)


async def probe_seconds(
    generate: Callable[[Generate], Awaitable[Generation]], generated_tokens: Callable[[], int]
) -> float:
    """Until it has a token. One that somebody else is given meanwhile is as good: a busy engine is well.

    Raises EngineFailed, DeadlinePassed.
    """
    began, before = time.perf_counter(), generated_tokens()
    asking = asyncio.create_task(_probed(generate))
    while not (await asyncio.wait({asking}, timeout=PROBE_LOOK_SECONDS))[0]:
        if generated_tokens() > before:
            asking.cancel()
            return time.perf_counter() - began
    await asking
    return time.perf_counter() - began


async def _probed(generate: Callable[[Generate], Awaitable[Generation]]) -> None:
    params = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)
    asked = Generate("probe", NOBODY, ((1, 1),), params, kind="probe", deadline_seconds=PROBE_SECONDS)
    async for _ in await generate(asked):
        pass
