"""A temporary engine for a measurement: `luminet engine` in its own process, always stopped at the end."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from engine_agent.tools.errors import ToolError

READY_SECONDS = 120.0
STOP_SECONDS = 20.0
POLL_SECONDS = 0.05
LAST_CHARACTERS = 1_000
_SERVED = re.compile(r"is served at (https?://\S+/v1)\b")


@dataclass(frozen=True, slots=True)
class Engine:
    url: str
    key: str = field(repr=False)
    pid: int


@contextmanager
def engine_running(model: Path, options: Sequence[str] = ()) -> Iterator[Engine]:
    """Run a standalone engine on a free port, with a temporary state directory. Raises ToolError with its output."""
    with tempfile.TemporaryDirectory(prefix="luminet-savings-") as folder:
        state, log = Path(folder) / "state", Path(folder) / "log"
        arguments = ["--model", str(model), "--port", "0", "--state", str(state), *options]
        code = "import sys; from engine_agent.server.command import main; sys.exit(main(sys.argv[1:]))"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", code, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches only us, and we stop it
            )
        try:
            url = _address(process, log)
            yield Engine(url, (state / "api-key").read_text(encoding="utf-8").strip(), process.pid)
        finally:
            _stop(process)


def _address(process: "subprocess.Popen[bytes]", log: Path) -> str:
    """Wait for the engine's address in its output."""
    deadline = time.monotonic() + READY_SECONDS
    while not (served := _SERVED.search(output := log.read_text(encoding="utf-8", errors="replace"))):
        if process.poll() is not None or time.monotonic() > deadline:
            reason = "ended" if process.poll() is not None else f"does not serve after {READY_SECONDS:.0f} s"
            raise ToolError(f"the engine {reason}: {' '.join(output.split())[-LAST_CHARACTERS:]}")
        time.sleep(POLL_SECONDS)
    return served[1]


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def cpu_seconds_of(pid: int) -> float | None:
    """Return a process's CPU time so far, or None where the system does not provide it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
