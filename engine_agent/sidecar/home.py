"""Lock a sidecar's home folder."""

import fcntl
from pathlib import Path
from typing import TextIO

from engine_agent.sidecar.errors import BadHome


def home_lock(home: Path) -> TextIO:
    """Lock the folder until the file is closed or the process ends. Raise BadHome if another process has the lock."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = (home / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise BadHome(f"{home}: another sidecar has this folder: give this one another with --home") from None
    return lock
