"""Allow one stack for each home, and end the processes that a killed stack left before the next one starts."""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import psutil

from controlplane.stack.errors import AlreadyRunning

END_SECONDS = 5
PATIENT_TRIES = 10
CLOCK_STEP_SECONDS = 60


@contextlib.contextmanager
def sole_stack(lock_file: Path) -> Iterator[None]:
    """Hold the home's lock. The kernel releases it when we die, however we die, so it is never stale."""
    with lock_file.open("a+") as lock:
        if not _take_patiently(lock):
            raise AlreadyRunning(_holder(lock))
        lock.seek(0)
        lock.truncate()
        lock.write(str(os.getpid()))
        lock.flush()
        yield
        lock.seek(0)
        lock.truncate()


def holder(lock_file: Path) -> int | None:
    """Return the process that runs this home's stack, or None."""
    if not lock_file.exists():
        return None
    with lock_file.open("a+") as lock:
        if _take(lock, fcntl.LOCK_SH):  # shared, so that status queries do not look like a running stack
            return None
        return _holder(lock)


def end_leftovers(status_file: Path) -> list[str]:
    """End the processes of an earlier stack that was killed. Return their names."""
    processes = {str(row["name"]): process_of(row) for row in read_status(status_file)}
    running = {name: process for name, process in processes.items() if process is not None}
    families = [member for process in running.values() for member in _family(process)]
    for member in families:
        with contextlib.suppress(psutil.Error):
            member.terminate()
    for member in _still_alive(families, seconds=END_SECONDS):
        with contextlib.suppress(psutil.Error):
            member.kill()
    status_file.unlink(missing_ok=True)
    return list(running)


def _family(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [*process.children(recursive=True), process]
    except psutil.NoSuchProcess:
        return []


def is_alive(pid: int) -> bool:
    """Return whether the process runs. An ended orphan stays as a zombie if process 1 does not reap it."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _still_alive(processes: list[psutil.Process], *, seconds: float) -> list[psutil.Process]:
    deadline = time.monotonic() + seconds
    while alive := [process for process in processes if is_alive(process.pid)]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return alive


def read_status(status_file: Path) -> list[dict[str, Any]]:
    try:
        rows = json.loads(status_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [row for row in rows if isinstance(row, dict) and "name" in row] if isinstance(rows, list) else []


def birth_of(pid: int | None) -> float | None:
    """Return the process's start time, which with its id identifies it, even after the id is reused."""
    try:
        return psutil.Process(pid).create_time() if pid else None
    except psutil.NoSuchProcess:
        return None


def process_of(row: dict[str, Any]) -> psutil.Process | None:
    """Return the running process that a status row describes, or None."""
    pid = row.get("pid")
    started_at = birth_of(pid) if isinstance(pid, int) else None
    recorded = row.get("born")
    if started_at is None or not isinstance(recorded, (int, float)):
        return None
    # Start times come from the wall clock, which may have been set; an id is reused only much later.
    return psutil.Process(pid) if abs(started_at - recorded) < CLOCK_STEP_SECONDS else None


def _take_patiently(lock: IO[str]) -> bool:
    """Retry for a moment: a status query holds the lock for an instant."""
    for _ in range(PATIENT_TRIES):
        if _take(lock, fcntl.LOCK_EX):
            return True
        time.sleep(0.05)
    return False


def _take(lock: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(lock: IO[str]) -> int | None:
    lock.seek(0)
    text = lock.read().strip()
    return int(text) if text.isdigit() else None
