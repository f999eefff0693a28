"""Processes that rows measure: launched apart from us, timed since before they were, and always stopped again."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from controlplane.settings.env import CHECKOUT

READY_SECONDS = 90.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.01
LAST_CHARACTERS = 2000
NOT_INHERITED = ("LUMINET_", "MAKE", "MFLAGS")

Answer = TypeVar("Answer")


class NotStarted(Exception):
    """The process ended, or was not ready in time; with the last that it said."""


@dataclass(slots=True)
class Launched:
    process: "subprocess.Popen[bytes]"
    log: Path
    began: float

    @property
    def age_seconds(self) -> float:
        return time.perf_counter() - self.began

    def wait_for(
        self, attempt: Callable[[], Answer | None], *, within_seconds: float = READY_SECONDS
    ) -> tuple[Answer, float]:
        """What `attempt` returned as soon as it was not None, and seconds since the launch."""
        while (answer := attempt()) is None:
            status = self.process.poll()
            if status is not None or self.age_seconds > within_seconds:
                state = "is not ready" if status is None else f"ended with status {status}"
                said = self.log.read_text(errors="replace")[-LAST_CHARACTERS:]
                raise NotStarted(f"{self.process.args!r} {state} after {self.age_seconds:.1f} s:\n{said}")
            time.sleep(POLL_SECONDS)
        return answer, self.age_seconds

    def stop(self) -> float:
        """Seconds from SIGTERM until it and everything it had started are gone; what stays is killed."""
        family = self._children()
        began = time.perf_counter()
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        _, alive = psutil.wait_procs(family, timeout=max(0.0, began + STOP_SECONDS - time.perf_counter()))
        seconds = time.perf_counter() - began
        for left in alive:
            with suppress(psutil.NoSuchProcess):
                left.kill()
        return seconds

    def _children(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []


@contextmanager
def launched(command: Sequence[str], environment: Mapping[str, str], *, log: Path) -> Iterator[Launched]:
    """The command, running in the checkout with that environment, its output in `log`; stopped at the end."""
    # The caller's settings could name a database that is somebody's, and its make would have a say in ours.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)}
    with log.open("wb") as output:
        began = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=CHECKOUT,
            env={**kept, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the bench, which then stops what it started, in order
        )
    ours = Launched(process, log, began)
    try:
        yield ours
    finally:
        if process.poll() is None:
            ours.stop()
