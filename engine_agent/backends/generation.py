"""A running request on the event loop's side of any backend: passes the engine's outputs to their reader.

Also the engine's own probe, which generates one token.
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
PROBE_LOOK_SECONDS = 0.5  # between two checks whether other requests receive tokens


class Told:
    """The outputs of one job."""

    def __init__(self, prompts: int, leave: Callable[[], None]) -> None:
        """`leave` makes the engine drop the job."""
        self._prompts, self._leave = prompts, leave
        self._admitted: dict[int, Admission] = {}
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._outputs: asyncio.Queue[Delta | RequestError | None] = asyncio.Queue()
        self.is_over = False

    @property
    def admissions(self) -> tuple[Admission, ...]:
        return tuple(self._admitted[prompt_index] for prompt_index in range(self._prompts))

    async def __aiter__(self) -> AsyncIterator[Delta]:
        """Iterate over deltas as they come. Raises the RequestError that ended the job."""
        while (output := await self._outputs.get()) is not None:
            if isinstance(output, RequestError):
                raise output
            yield output

    async def ready(self, submission: Awaitable[object]) -> None:
        """Wait until the request is sent and every prompt is admitted.

        Raises a RequestError. On any error or cancellation the request is withdrawn.
        """
        try:
            await submission
            await self._ready
        except BaseException:
            self.cancel()
            if self._ready.done() and not self._ready.cancelled():
                self._ready.exception()  # mark the exception as retrieved, because nothing else reads it
            raise

    def cancel(self) -> None:
        if not self.is_over:
            self.end(None)
            self._leave()

    def fail(self, error: RequestError) -> None:
        """End a job that cannot continue, and withdraw it from its engine."""
        if not self.is_over:
            self.end(error)
            self._leave()

    # Called with the engine's outputs

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
    """Return the seconds until the probe has a token. Another request's token counts, too: a busy engine is healthy.

    Raises EngineFailed, DeadlinePassed.
    """
    began, tokens_before = time.perf_counter(), generated_tokens()
    probe = asyncio.create_task(_probed(generate))
    while not (await asyncio.wait({probe}, timeout=PROBE_LOOK_SECONDS))[0]:
        if generated_tokens() > tokens_before:
            probe.cancel()
            return time.perf_counter() - began
    await probe
    return time.perf_counter() - began


async def _probed(generate: Callable[[Generate], Awaitable[Generation]]) -> None:
    params = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)
    request = Generate("probe", NOBODY, ((1, 1),), params, kind="probe", deadline_seconds=PROBE_SECONDS)
    async for _ in await generate(request):
        pass
