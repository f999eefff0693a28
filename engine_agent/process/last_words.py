"""Why an engine could not start, or could not go on: one line in its state folder, for whoever looks after it.

A file and not a pipe, because an engine outlives a sidecar that is killed. Standard library only.
"""

import signal
from contextlib import suppress
from pathlib import Path

FILE = "last-words"
MOST_CHARACTERS = 220  # a heartbeat has room for them and for what the sidecar says


def last_words_leave(folder: Path, why: str) -> None:
    """Nothing where it cannot be written: the log has it too."""
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / FILE).write_text(one_line(why), encoding="utf-8")


def last_words_take(folder: Path) -> str:
    """Nobody reads them twice; empty: it left none."""
    try:
        said = (folder / FILE).read_text(encoding="utf-8", errors="replace")
        (folder / FILE).unlink()
    except OSError:
        return ""
    return one_line(said)


def one_line(why: str) -> str:
    said = " ".join(why.split())
    return said if len(said) <= MOST_CHARACTERS else f"{said[: MOST_CHARACTERS - 1]}…"


def ended_by(status: int) -> str:
    """Of a process' exit status, in words."""
    if status >= 0:
        return f"ended with status {status}"
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    memory = ", as the system does where memory runs out" if status == -signal.SIGKILL else ""
    return f"was ended by {name}{memory}"
