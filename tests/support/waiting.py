"""Waiting for other processes, threads and tasks. The deadline ends a hang; no test judges the machine's speed."""

import asyncio
import inspect
import subprocess
import time
from collections.abc import Callable
from typing import Any, TypeVar

DEADLINE_SECONDS = 300.0
# Each check costs the processes time that they need to get there: the longer a wait, the longer its pauses.
LEAST_PAUSE_SECONDS, MOST_PAUSE_SECONDS, PAUSE_SHARE = 0.005, 0.3, 0.1

Result = TypeVar("Result")
Check = Callable[[], Result | None]


class WaitTimeout(AssertionError):
    """What a test waited for did not happen."""


def wait_until(
    check: Check[Result],
    goal: str = "",
    process: "subprocess.Popen[Any] | None" = None,
    seconds: float = DEADLINE_SECONDS,
    details: Callable[[], object] = str,
) -> Result:
    """The first true result of `check`. Raises WaitTimeout at the deadline, or when `process` has ended before."""
    began = time.monotonic()
    while not (result := check()):
        if process is not None and process.poll() is not None:
            raise WaitTimeout(f"a process ended while the test waited for {goal or _source(check)}\n{details()}")
        time.sleep(_pause(began, seconds, lambda: f"{goal or _source(check)}; last result: {result!r}\n{details()}"))
    return result


async def wait_until_async(check: Check[object], goal: str = "", seconds: float = DEADLINE_SECONDS) -> None:
    """As `wait_until`, while this event loop's other tasks run."""
    began = time.monotonic()
    while not check():  # noqa: ASYNC110 (a condition has no event)
        await asyncio.sleep(_pause(began, seconds, lambda: goal or _source(check)))


def _pause(began: float, seconds: float, goal: Callable[[], str]) -> float:
    if (waited := time.monotonic() - began) > seconds:
        raise WaitTimeout(f"waited {seconds:.0f} s for {goal()}")
    return min(max(LEAST_PAUSE_SECONDS, waited * PAUSE_SHARE), MOST_PAUSE_SECONDS)


def _source(check: Callable[[], object]) -> str:
    """The condition as the test writes it, so that most waits need no other description."""
    try:
        return inspect.getsource(check).strip()
    except (OSError, TypeError):
        return repr(check)
