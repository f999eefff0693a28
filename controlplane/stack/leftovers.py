"""One stack at a time from one home; what a killed one left running is recognised and ended before the next starts."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import psutil

from controlplane.stack.errors import AlreadyRunning

END_SECONDS = 5


@contextlib.contextmanager
def sole_stack(lock_file: Path) -> Iterator[None]:
    """Hold the home's lock. The kernel lets go of it when we die, however we die, so it is never stale."""
    with lock_file.open("a+") as lock:
        if not _take(lock):
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
        if _take(lock):
            return None
        return _holder(lock)


def end_leftovers(status_file: Path, home: Path) -> list[str]:
    """End processes of an earlier stack that was killed; their names. Numbers may have been given to others since, so
    a process is ours only when it carries this home in its environment."""
    ended = []
    for row in read_status(status_file):
        process = _ours(row.get("pid"), home)
        if process is None:
            continue
        family = [*process.children(recursive=True), process]
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.terminate()
        _, alive = psutil.wait_procs(family, timeout=END_SECONDS)
        for member in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        ended.append(str(row["name"]))
    status_file.unlink(missing_ok=True)
    return ended


def read_status(status_file: Path) -> list[dict[str, Any]]:
    try:
        rows = json.loads(status_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return rows if isinstance(rows, list) else []


def _ours(pid: object, home: Path) -> psutil.Process | None:
    if not isinstance(pid, int):
        return None
    try:
        process = psutil.Process(pid)
        return process if process.environ().get("LUMINET_HOME") == str(home) else None
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None


def _take(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(lock: IO[str]) -> int | None:
    lock.seek(0)
    text = lock.read().strip()
    return int(text) if text.isdigit() else None
