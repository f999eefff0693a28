"""One stack at a time from one home; what a killed one left running is recognised and ended before the next starts."""

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
    """Hold the home's lock. The kernel lets go of it when we die, however we die, so it is never stale."""
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
    """The process that runs this home's stack now, if any does."""
    if not lock_file.exists():
        return None
    with lock_file.open("a+") as lock:
        if _take(lock, fcntl.LOCK_SH):  # shared: those who only ask do not look like one who runs
            return None
        return _holder(lock)


def end_leftovers(status_file: Path) -> list[str]:
    """End processes of an earlier stack that was killed; their names."""
    found = {str(row["name"]): process_of(row) for row in read_status(status_file)}
    ours = {name: process for name, process in found.items() if process is not None}
    families = [member for process in ours.values() for member in _family(process)]
    for member in families:
        with contextlib.suppress(psutil.Error):
            member.terminate()
    for member in _still_alive(families, seconds=END_SECONDS):
        with contextlib.suppress(psutil.Error):
            member.kill()
    status_file.unlink(missing_ok=True)
    return list(ours)


def _family(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [*process.children(recursive=True), process]
    except psutil.NoSuchProcess:
        return []


def is_alive(pid: int) -> bool:
    """Whether it runs. An orphan that has ended stays listed as a zombie where process 1 does not collect its dead."""
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
    """When a process began: with its number, this tells it from every other, also after the number is used again."""
    try:
        return psutil.Process(pid).create_time() if pid else None
    except psutil.NoSuchProcess:
        return None


def process_of(row: dict[str, Any]) -> psutil.Process | None:
    """The process that a row of the status is about, while it runs."""
    pid = row.get("pid")
    born = birth_of(pid) if isinstance(pid, int) else None
    recorded = row.get("born")
    if born is None or not isinstance(recorded, (int, float)):
        return None
    # Births are told by the wall clock, which may have been set meanwhile; a number comes round again only much later.
    return psutil.Process(pid) if abs(born - recorded) < CLOCK_STEP_SECONDS else None


def _take_patiently(lock: IO[str]) -> bool:
    """Somebody who asks for the status holds the lock for an instant; that is no reason to give up."""
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
