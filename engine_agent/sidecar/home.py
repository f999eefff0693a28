"""A sidecar's folder, which one process has at a time."""

import fcntl
from pathlib import Path
from typing import TextIO

from engine_agent.sidecar.errors import BadHome


def home_lock(home: Path) -> TextIO:
    """Held until it is closed, or the process ends. Raises BadHome where another has it."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = (home / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise BadHome(f"{home}: another sidecar has this folder: give this one another with --home") from None
    return lock
