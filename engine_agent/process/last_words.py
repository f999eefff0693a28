"""The exit reason of an engine: one line in its state folder for its supervisor.

It is a file and not a pipe, because an engine outlives a killed sidecar. Standard library only.
"""

import signal
from contextlib import suppress
from pathlib import Path

FILE = "last-words"
MOST_CHARACTERS = 220  # a heartbeat has room for them and for the sidecar's words around them


def last_words_leave(folder: Path, reason: str) -> None:
    """Write the exit reason. Ignore a write error, because the log has the reason too."""
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / FILE).write_text(one_line(reason), encoding="utf-8")


def last_words_take(folder: Path) -> str:
    """Read and delete the exit reason, so that it is used once. Return "" if there is none."""
    try:
        text = (folder / FILE).read_text(encoding="utf-8", errors="replace")
        (folder / FILE).unlink()
    except OSError:
        return ""
    return one_line(text)


def one_line(reason: str) -> str:
    line = " ".join(reason.split())
    return line if len(line) <= MOST_CHARACTERS else f"{line[: MOST_CHARACTERS - 1]}…"


def ended_by(status: int) -> str:
    """Describe a process's exit status."""
    if status >= 0:
        return f"ended with status {status}"
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    memory = ", as the system does where memory runs out" if status == -signal.SIGKILL else ""
    return f"was ended by {name}{memory}"
