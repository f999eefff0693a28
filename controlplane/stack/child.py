"""One process of the stack: start it, watch it, log its output, restart it when it dies."""

import asyncio
import contextlib
import logging.handlers
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from controlplane.stack.errors import ChildFailed

LOG_BYTES = 5_000_000
POLL_SECONDS = 0.1
WATCH_SECONDS = 5.0
STEADY_SECONDS = 30.0
LAST_WORDS_SECONDS = 1.0
LAST_LINES = 12
LONGEST_LINE = 1024 * 1024
HOPELESS_STARTS = 3
COULD_NOT_START = 127


@dataclass(frozen=True, slots=True)
class Service:
    """A process to run, and the check that shows whether it works."""

    name: str
    command: tuple[str, ...]
    check: Callable[[], None] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    port: int | None = None
    needs: tuple[str, ...] = ()
    is_job: bool = False  # it ends by itself; ready when it ended with success
    is_quiet: bool = False  # its output goes only to its log file
    is_awaited: bool = True  # whether the stack waits for it before it is ready
    stop_signal: int = signal.SIGTERM
    identity: Mapping[str, Any] = field(default_factory=dict)
    cwd: Path | None = None
    start_seconds: float = 60.0


def backoff_seconds(failures: int) -> float:
    """Return the delay before the next start: none after the first failure, then doubling up to half a minute."""
    return 0.0 if failures <= 1 else min(30.0, 0.5 * 2 ** (failures - 2))


class Child:
    def __init__(
        self, service: Service, *, logs: Path, say: Callable[[str, str], None], changed: Callable[[], None]
    ) -> None:
        self.service = service
        self.state = "waiting"
        self.since = datetime.now(UTC)
        self.process: asyncio.subprocess.Process | None = None
        self.ready = asyncio.Event()
        self.log_file = logs / f"{service.name}.log"
        self._say, self._changed = say, changed
        self._stop_asked = asyncio.Event()
        self._was_ready = False
        self._last_lines: list[str] = []

    @property
    def _stopping(self) -> bool:
        return self._stop_asked.is_set()

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process and self.process.returncode is None else None

    async def run(self) -> None:
        """Keep the process alive until stop() is called. A job runs once."""
        failures = 0
        while not self._stopping:
            started = time.monotonic()
            code = await self._run_once()
            if self.service.is_job or self._stopping:
                self._finish_job(code)
                return
            failures = 1 if time.monotonic() - started > STEADY_SECONDS else failures + 1
            if failures == HOPELESS_STARTS and not self._was_ready:
                self._give_up()
                return
            wait = backoff_seconds(failures)
            self._say(self.service.name, f"ended with {describe_exit(code)}; starting again in {wait:.1f} s")
            self._become("restarting")
            self.ready.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop_asked.wait(), wait)

    async def wait_ready(self) -> None:
        """Return once the process works, or raise ChildFailed with the reason and the path of its log."""
        try:
            await asyncio.wait_for(self.ready.wait(), self.service.start_seconds)
        except TimeoutError:
            raise self._failed(f"was not ready within {self.service.start_seconds:.0f} s") from None
        if self.state == "failed":
            raise self._failed("could not start")

    def stop(self) -> None:
        self._stop_asked.set()
        if self.pid:
            self._become("stopping")
            self._signal(self.service.stop_signal)
        else:
            self._become("stopped")

    def kill(self) -> None:
        self._stop_asked.set()
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        """Send the signal to the whole process group, so that descendants end, even if the child has already ended."""
        if self.process:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)

    async def _run_once(self) -> int:
        """Start the process, wait for its end and return its exit status."""
        self._become("starting")
        # Our own pipe: asyncio's would count a process as running as long as a grandchild has its output open.
        reading, writing = os.pipe()
        try:
            self.process = await self._spawn(writing)
        except OSError as error:
            os.close(reading)
            self._hear(f"{self.service.command[0]}: {error.strerror or error}", None)
            return COULD_NOT_START
        finally:
            os.close(writing)
        helpers = [asyncio.create_task(self._pump(reading))]
        if self.service.check:
            helpers.append(asyncio.create_task(self._watch()))
        try:
            if self._stopping:
                self._signal(self.service.stop_signal)  # stop() was called before there was a process to signal
            self._changed()
            code = await self.process.wait()
            self._signal(signal.SIGKILL)
            await asyncio.wait(helpers[:1], timeout=LAST_WORDS_SECONDS)
            return code
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            if self._stopping:
                self._become("stopped")

    async def _spawn(self, output: int) -> asyncio.subprocess.Process:
        service = self.service
        return await asyncio.create_subprocess_exec(
            *service.command,
            env={**os.environ, **service.env},
            cwd=service.cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches only the supervisor, which then stops everything in order
            **service.identity,
        )

    async def _pump(self, reading: int) -> None:
        """Copy every line to the terminal and the log until all writers have closed the pipe."""
        lines = asyncio.StreamReader(limit=LONGEST_LINE)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(reading, "rb")
        )
        log = _open_log(self.log_file)
        try:
            while raw := await _next_line(lines):
                self._hear(raw.decode(errors="replace").rstrip(), log)
        finally:
            log.close()
            transport.close()

    def _hear(self, line: str, log: logging.Handler | None) -> None:
        self._last_lines = [*self._last_lines[1 - LAST_LINES :], line]
        if log:
            log.emit(logging.makeLogRecord({"msg": "%s", "args": (line,)}))
        if not self.service.is_quiet:
            self._say(self.service.name, line)

    async def _watch(self) -> None:
        """Poll the health check often until it passes, then occasionally while the process lives."""
        while self.service.check:
            problem = await asyncio.to_thread(_problem_of, self.service.check)
            if self._stopping:
                return
            if problem is None:
                self._become("ready")
                self._was_ready = True
                self.ready.set()
            elif self.ready.is_set():
                self._become("unhealthy")
            await asyncio.sleep(WATCH_SECONDS if self.ready.is_set() else POLL_SECONDS)

    def _finish_job(self, code: int) -> None:
        if self._stopping:
            return
        self._become("done" if code == 0 else "failed")
        self.ready.set()

    def _give_up(self) -> None:
        """Report the service as failed instead of restarting it for ever: it has never worked."""
        self._become("failed")
        self.ready.set()

    def _become(self, state: str) -> None:
        if state != self.state:
            self.state, self.since = state, datetime.now(UTC)
            self._changed()

    def _failed(self, reason: str) -> ChildFailed:
        last_line = f": {self._last_lines[-1]}" if self._last_lines else ""
        return ChildFailed(self.service.name, f"{reason}{last_line}", str(self.log_file))


def describe_exit(code: int) -> str:
    if code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"status {code}"


async def _next_line(lines: asyncio.StreamReader) -> bytes:
    while True:
        try:
            return await lines.readline()
        except ValueError:
            continue  # drop a line beyond the limit and continue


def _problem_of(check: Callable[[], None]) -> Exception | None:
    """Return what the check raised, or None. Any exception means "not ready": a broken answer counts as none."""
    try:
        check()
    except Exception as error:
        return error
    return None


def _open_log(file: Path) -> logging.Handler:
    try:
        handler = logging.handlers.RotatingFileHandler(file, maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8")
        file.chmod(0o600)
    except OSError:
        return logging.NullHandler()  # the disk is full or read-only: the process matters more than its log
    handler.handleError = lambda record: None  # type: ignore[method-assign]
    return handler
