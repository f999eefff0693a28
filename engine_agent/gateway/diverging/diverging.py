"""Samples prompts as they pass, analyses them in a child process, and reports the findings to the control plane."""

import asyncio
import contextlib
import json
import logging
import sys
import time
from array import array
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from engine_agent.contracts.wire import Report
from engine_agent.divergence.analysing import Sample
from engine_agent.divergence.child import samples_encode
from engine_agent.divergence.marks import marks_of
from engine_agent.gateway.diverging.sampling import MOST_TOKENS, Sampling
from engine_agent.gateway.tables import Namespace

log = logging.getLogger(__name__)
LOOK_SECONDS = 1.0
TELL_SECONDS = 10.0
CHILD_SECONDS = 60.0  # an analysis that takes longer is stopped
MOST_WAITING = 16  # prompts whose marks are not computed yet
NICE = 10


class Diverging:
    """`take` costs a request next to nothing: a thread computes the marks, and a child process analyses them."""

    def __init__(
        self,
        *,
        now: Callable[[], float],
        tell: Callable[[Sequence[Report]], Awaitable[None]],
        may_tell: Callable[[], bool],
    ) -> None:
        self._now, self._tell, self._may_tell = now, tell, may_tell
        self._boot = uuid4().hex
        self._sampling = Sampling()
        self._making: set[asyncio.Task[None]] = set()
        self._found: dict[str, Mapping[str, Any]] = {}

    def take(self, namespace: Namespace, tokens: "array[int]", is_whole: bool) -> None:
        """Sample one prompt's tokens, from the first on. They are stored only as marks."""
        if len(self._making) >= MOST_WAITING or not namespace.id.isdecimal() or len(namespace.key) < 32:
            return
        if self._sampling.wants(namespace.id, time.monotonic()):
            head = tokens[:MOST_TOKENS]
            task = asyncio.create_task(self._keep(namespace, head, is_whole and len(head) == len(tokens)))
            self._making.add(task)
            task.add_done_callback(self._making.discard)

    async def run(self) -> None:
        reported_at = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if (namespace := self._sampling.due(time.monotonic())) is not None:
                await self._look(namespace)
            if self._found and self._may_tell() and time.monotonic() - reported_at >= TELL_SECONDS:
                reported_at, findings, self._found = time.monotonic(), self._found, {}
                report = {"boot": self._boot, "at": self._now(), "namespaces": findings}
                await self._tell([Report("diagnostics", report)])

    async def _keep(self, namespace: Namespace, tokens: "array[int]", is_whole: bool) -> None:
        marks = await asyncio.to_thread(marks_of, packed(tokens), namespace.key)
        self._sampling.keep(namespace.id, Sample(marks, is_whole=is_whole))

    async def _look(self, namespace: str) -> None:
        samples = self._sampling.look(namespace, time.monotonic())
        try:
            self._found[namespace] = await looked(samples)
        except (OSError, ValueError, TimeoutError) as problem:
            log.warning("what namespace %s's prompts differ in cannot be said: %s", namespace, problem)


async def looked(samples: Sequence[Sample]) -> Mapping[str, Any]:
    """Analyse samples in a child process of low priority. Raise OSError, ValueError or TimeoutError if that fails."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _CHILD, str(NICE)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        output, _ = await asyncio.wait_for(child.communicate(samples_encode(samples)), CHILD_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
    return dict(json.loads(output))


_CHILD = (
    "import os, runpy, sys; os.nice(int(sys.argv[1])); "
    "runpy.run_module('engine_agent.divergence.child', run_name='__main__')"
)


def packed(tokens: "array[int]") -> bytes:
    """Return the tokens as consecutive little-endian uint32."""
    if sys.byteorder != "little":
        tokens = tokens[:]
        tokens.byteswap()
    return tokens.tobytes()
