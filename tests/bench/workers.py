"""Processes that rows ask: a line of JSON there, a line of JSON back, until they are told to end.

For what is measured inside a process of its own, such as the two sides of a comparison. `tests.bench.answers` is the
other end. What such a process says besides goes into a log, which is shown when it fails.
"""

import json
import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any

from controlplane.settings.env import CHECKOUT
from tests.bench.processes import LAST_CHARACTERS, NOT_INHERITED, NotStarted

READY_SECONDS = 120.0  # importing vLLM takes 8 s when nothing else runs
ANSWER_SECONDS = 120.0
STOP_SECONDS = 5.0


class NoAnswer(Exception):
    """A worker that was ready ended, or took too long; with the last that it said."""


class Worker:
    """One process. `facts` is what it said when it was ready."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: IO[bytes]) -> None:
        self._process, self._log, self._read = process, log, b""
        try:
            self.facts: dict[str, Any] = self._answer(READY_SECONDS)
        except NoAnswer as problem:
            raise NotStarted(str(problem)) from None

    def ask(self, **question: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it ended: that is told with its last words, below
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        return self._answer(ANSWER_SECONDS)

    def _answer(self, within_seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        deadline = time.monotonic() + within_seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._read:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise NoAnswer(self._told(f"did not answer within {within_seconds:.0f} s"))
                more = os.read(self._process.stdout.fileno(), 65536)
                if not more:
                    raise NoAnswer(self._told(f"ended with status {self._process.wait(STOP_SECONDS)}"))
                self._read += more
        line, _, self._read = self._read.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def _told(self, what: str) -> str:
        size = os.fstat(self._log.fileno()).st_size
        said = os.pread(self._log.fileno(), LAST_CHARACTERS, max(0, size - LAST_CHARACTERS)).decode(errors="replace")
        return f"{self._process.args!r} {what}:\n{said}"


@contextmanager
def worker_running(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[Worker]:
    """The command, running in the checkout and ready to be asked; ended at the end, whatever happened."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            cwd=CHECKOUT,
            env={**kept, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for the bench, which then stops what it started
        )
        try:
            yield Worker(process, log)
        finally:
            _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Nothing more to answer ends it; what does not end is terminated, then killed."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
    for insist in (process.terminate, process.kill):
        try:
            process.wait(STOP_SECONDS)
            break
        except subprocess.TimeoutExpired:
            insist()
    process.wait()
    process.stdout.close()
