"""A row in a process of its own: what it takes, leaves running or dies of is nothing to the rows after it.

`python -m tests.bench.apart MODULE KEY FILE [--repetitions N]` runs one row and writes what it found into the file.
"""

import argparse
import importlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil

from controlplane.settings.env import CHECKOUT
from engine_agent.tools.report import write_atomically
from tests.bench.files import row_json
from tests.bench.measuring import OnStep
from tests.bench.progress import Progress
from tests.bench.reading import row_of
from tests.bench.registry import REGISTRY, Row
from tests.bench.results import RowError, RowResult
from tests.bench.running import INTERRUPTED, run_row
from tests.suite.outliving import outlived_by_nothing

MOST_SECONDS = 45 * 60.0  # the longest row takes a third of that; one that hangs must not cost the rest
STOP_SECONDS = 60.0  # for an interrupted row to stop servers that it started
WATCHER = "tests.suite.outliving"


def run_apart(row: Row, repetitions: int | None, on_step: OnStep, *, most_seconds: float = MOST_SECONDS) -> RowResult:
    """The row's result, whatever becomes of its process; nothing that it started is left. It shows its steps itself."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="luminet-bench-") as folder:
        file = Path(folder) / "row.json"
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, row.run.__module__, row.key, str(file), *_options(repetitions)],
            cwd=CHECKOUT,
            start_new_session=True,  # Ctrl-C comes to us, and we tell the row
        )
        problem = _waited(process, most_seconds)
        _until_swept(process.pid)
        if file.exists():
            result = row_of(json.loads(file.read_bytes()))
            return replace(result, error=RowError(problem, problem)) if problem else result
    problem = problem or f"its process ended with status {process.returncode} and left no result"
    seconds = time.perf_counter() - began
    return RowResult(row.key, row.title, row.target, row.beside, error=RowError(problem, problem), seconds=seconds)


def _options(repetitions: int | None) -> list[str]:
    return [] if repetitions is None else ["--repetitions", str(repetitions)]


def _waited(process: "subprocess.Popen[bytes]", most_seconds: float) -> str | None:
    """Until it has ended; why it had to be ended."""
    try:
        _ended(process, most_seconds)
        return None
    except subprocess.TimeoutExpired:
        _interrupted(process)
        return f"did not end within {most_seconds:,.0f} s"
    except KeyboardInterrupt:
        _interrupted(process)
        return INTERRUPTED


def _ended(process: "subprocess.Popen[bytes]", within_seconds: float) -> None:
    process.wait(within_seconds)


def _interrupted(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _until_swept(pid: int) -> None:
    """A row's process that dies is outlived by one that ends what is left of it (tests/suite/outliving.py)."""
    watchers = [one for one in psutil.process_iter() if _watches(one, pid)]
    psutil.wait_procs(watchers, timeout=STOP_SECONDS)


def _watches(process: psutil.Process, pid: int) -> bool:
    with suppress(psutil.Error):
        command = process.cmdline()
        return WATCHER in command and command[-1].rpartition("/")[2].startswith(f"{pid}-")
    return False


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.apart", description="Measure one row.")
    parser.add_argument("module")
    parser.add_argument("key")
    parser.add_argument("file", type=Path)
    parser.add_argument("--repetitions", type=int)
    options = parser.parse_args()
    importlib.import_module(options.module)
    (row,) = REGISTRY.select([options.key])
    outlived_by_nothing()
    result = run_row(row, options.repetitions, Progress(sys.stderr).step)
    content = json.dumps(row_json(result), ensure_ascii=False, allow_nan=False)
    write_atomically(options.file, content.encode())


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # an ASCII terminal shows "?" for "≤"
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main()
