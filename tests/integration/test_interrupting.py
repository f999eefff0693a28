"""SIGINT or SIGTERM to pytest's main process ends the run and all that it started: real runs, without a terminal."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests.suite.outliving import AGAIN_SECONDS, MARK, is_alive, marked

CHECKOUT = Path(__file__).parents[2]
SECONDS = 120.0  # for a machine that has other work; a run that nothing ends takes longer
STARTING = """
import ctypes, os, subprocess, sys, tempfile, time
from pathlib import Path
import psutil, pytest

DEAF = (
    "import signal, time; [signal.signal(number, signal.SIG_IGN) for number in (2, 15)]; print(flush=True); "
    "time.sleep(900)"
)

def started(*pids):
    lines = [os.environ["TESTS_STARTED_BY"], tempfile.gettempdir(), *map(str, [os.getpid(), *pids])]
    written = Path(os.environ["STARTED"], f"{os.getpid()}.part")
    written.write_text("\\n".join(lines))
    written.rename(written.with_suffix(".started"))

def deaf_child():
    child = subprocess.Popen([sys.executable, "-c", DEAF], start_new_session=True, stdout=subprocess.PIPE)
    child.stdout.readline()
    return child
"""
DEAF_CHILD = """
from starting import deaf_child, psutil, pytest, started, tempfile, time

@pytest.fixture(scope="session")
def child():
    child = deaf_child()
    tempfile.mkdtemp()
    yield child
    child.wait()  # which nobody but the helper ends

def test_sleeps(SERVERS child):
    started(*(process.pid for process in psutil.Process().children(recursive=True)))
    time.sleep(900)
"""
C_CALL = """
import multiprocessing
from starting import ctypes, deaf_child, started, time

def test_hangs_in_c():
    lock, mutex = ctypes.PyDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(64)
    lock(mutex)
    forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(900,))
    forked.start()
    forked.terminate()
    forked.join()
    assert forked.exitcode == -15
    child = deaf_child()
    try:
        started(child.pid)
    finally:  # also where the signal comes before this
        lock(mutex)  # for good, and with Python's own lock
"""
SUITES = {
    "test_child.py": DEAF_CHILD.replace("SERVERS ", ""),
    "test_server.py": DEAF_CHILD.replace("SERVERS ", "postgres_server, "),
    "test_c_call.py": C_CALL,
}


@dataclass(slots=True)
class Run:
    process: "subprocess.Popen[str]"
    folder: Path
    files: tuple[str, ...]
    processes: list[psutil.Process] = field(default_factory=list)
    output: str = ""

    @property
    def started(self) -> list[list[str]]:
        """Of each process that runs tests: its mark, its folder, itself and what it has started."""
        return [file.read_text().splitlines() for file in self.folder.glob("*.started")]

    def wait_started(self) -> None:
        deadline = time.monotonic() + SECONDS
        while len(self.started) < len(self.files):
            if time.monotonic() > deadline:
                self.process.send_signal(signal.SIGTERM)
            assert self.process.poll() is None, f"the tests did not start: {self.wait_ended()}\n{self.output}"
            time.sleep(0.05)
        self.processes = [psutil.Process(int(pid)) for _, _, *pids in self.started for pid in pids]

    def wait_ended(self) -> int:
        """Its status. Its output ends when the last process that has it ends: the helper."""
        self.output, _ = self.process.communicate(timeout=SECONDS)
        return self.process.returncode


@contextmanager
def pytest_running(folder: Path, *files: str, workers: int, ignored: bool, last_seconds: float) -> Iterator[Run]:
    """`ignored`: with SIGINT ignored from the beginning, as `nohup` and `&` in a script start a process."""
    folder.mkdir()
    (folder / "starting.py").write_text(STARTING)
    for name in files:
        (folder / name).write_text(SUITES[name])
    options = ["-n", str(workers), "--dist", "load"] if workers else []
    command = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", "-p", "no:cacheprovider", *options]
    with subprocess.Popen(
        [*command, *(str(folder / name) for name in files)],
        cwd=CHECKOUT,
        env=os.environ | {"STARTED": str(folder), "PYTHONPATH": str(folder), "TESTS_LAST_SECONDS": str(last_seconds)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=_ignore_interrupts if ignored else None,
    ) as process:
        try:
            yield Run(process, folder, files)
        finally:
            process.kill()


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    """All at once, since each of them waits most of the time."""
    folder = tmp_path_factory.mktemp("runs")
    with ExitStack() as stack:

        def start(
            name: str, *files: str, workers: int = 0, ignored: bool = False, last_seconds: float = SECONDS
        ) -> Run:
            run = pytest_running(folder / name, *files, workers=workers, ignored=ignored, last_seconds=last_seconds)
            return stack.enter_context(run)

        runs = {
            "terminated": start("terminated", "test_server.py", "test_c_call.py", workers=2),
            "interrupted": start("interrupted", "test_child.py", "test_c_call.py", workers=2, ignored=True),
            "alone": start("alone", "test_server.py", ignored=True),
            "hanging": start("hanging", "test_c_call.py", last_seconds=1),
            "twice": start("twice", "test_c_call.py"),
        }
        for run in runs.values():
            run.wait_started()
        for name, run in runs.items():
            run.process.send_signal(signal.SIGTERM if name in ("terminated", "hanging") else signal.SIGINT)
        while runs["twice"].process.poll() is None:  # a busy helper may hear two of them as one
            time.sleep(AGAIN_SECONDS)
            runs["twice"].process.send_signal(signal.SIGINT)
        yield runs


def assert_nothing_is_left(run: Run) -> None:
    assert len(run.processes) > len(run.files)
    assert [process for process in run.processes if is_alive(process)] == []
    for mark, folder, *_ in run.started:
        of_run = mark.rpartition("/")[0] if len(run.files) > 1 else mark  # workers have marks below the run's
        assert marked(of_run) == []
        assert not Path(folder).exists()


@pytest.mark.parametrize(
    ("name", "number", "tests"),
    [
        ("terminated", "SIGTERM", {"test_sleeps", "test_hangs_in_c"}),
        ("interrupted", "SIGINT", {"test_sleeps", "test_hangs_in_c"}),
        ("alone", "SIGINT", {"test_sleeps"}),
    ],
)
def test_signal_ends_run_with_summary(runs: dict[str, Run], name: str, number: str, tests: set[str]) -> None:
    status = runs[name].wait_ended()
    assert status == pytest.ExitCode.INTERRUPTED, runs[name].output
    assert f"KeyboardInterrupt: interrupted by {number}" in runs[name].output
    summary = runs[name].output.partition(f" interrupted by {number} =")[2].partition(" slowest ")[0]
    assert set(re.findall(r"::(\w+)$", summary, re.MULTILINE)) == tests
    assert_nothing_is_left(runs[name])


@pytest.mark.parametrize(("name", "reason"), [("hanging", "did not end"), ("twice", "was interrupted twice")])
def test_run_in_c_call_is_killed(runs: dict[str, Run], name: str, reason: str) -> None:
    assert runs[name].wait_ended() == -signal.SIGKILL, runs[name].output
    (line,) = (line for line in runs[name].output.splitlines() if line.startswith("interrupted: "))
    assert reason in line
    assert line.endswith("::test_hangs_in_c")
    assert_nothing_is_left(runs[name])


def test_marks_name_the_run() -> None:
    """The tests above look for processes by this mark, which this process has put into its environment."""
    assert os.environ[MARK].rpartition("/")[2].startswith(f"{os.getpid()}-")
