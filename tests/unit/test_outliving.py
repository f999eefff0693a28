"""An interrupted test run leaves nothing running, whichever way it was interrupted."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.suite.outliving import AGAIN_SECONDS, MARK, Reports, end

CHECKOUT = Path(__file__).parents[2]
SECONDS = 60
SLEEP = "import time; time.sleep(600)"
DEAF = f"import signal; [signal.signal(one, signal.SIG_IGN) for one in (2, 15)]; print('deaf', flush=True); {SLEEP}"
RUN = f"""
import signal, subprocess, sys, time
from tests.suite.outliving import outlived_by_nothing
signal.signal(signal.SIGINT, signal.default_int_handler)  # who is started in the background inherits that it is ignored
outlived_by_nothing()
started = subprocess.Popen([sys.executable, "-c", {SLEEP!r}], start_new_session=True)
print(started.pid, flush=True)
time.sleep(600)
"""
SUITE = """
import psutil, time
def test_that_is_interrupted(redis_server):
    (server,) = [one for one in psutil.Process().children() if "redis" in one.name()]
    print("", server.pid, sep="\\n", flush=True)
    time.sleep(600)
"""


@contextmanager
def running(command: Sequence[str], **environment: str) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        command, cwd=CHECKOUT, env=os.environ | environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def told(process: "subprocess.Popen[str]") -> psutil.Process:
    """Whom it has started, as its first line that is a number says."""
    assert process.stdout is not None
    return psutil.Process(next(int(line) for line in process.stdout if line.strip().isdecimal()))


def is_gone(process: psutil.Process) -> bool:
    gone, _ = psutil.wait_procs([process], timeout=SECONDS)
    return gone != []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_what_a_run_started_ends_with_it(number: signal.Signals) -> None:
    with running([sys.executable, "-c", RUN]) as run:
        started = told(run)
        run.send_signal(number)
        assert is_gone(started)


def test_the_servers_of_an_interrupted_suite_end(tmp_path: Path) -> None:
    suite = tmp_path / "test_suite.py"
    suite.write_text(SUITE)
    with running(
        [sys.executable, "-m", "pytest", "-c", "pyproject.toml", "-s", "-p", "no:cacheprovider", str(suite)]
    ) as run:
        server = told(run)
        run.send_signal(signal.SIGTERM)
        assert is_gone(server)


def test_who_does_not_listen_is_killed_and_who_is_not_marked_is_left_alone() -> None:
    mark = f"{os.getpid()}-deaf"
    with running([sys.executable, "-c", DEAF], **{MARK: mark}) as deaf, running([sys.executable, "-c", DEAF]) as other:
        for one in (deaf, other):
            assert one.stdout is not None
            assert one.stdout.readline() == "deaf\n"
        end(mark, grace_seconds=0.2)
        assert deaf.wait(SECONDS) == -signal.SIGKILL
        assert other.poll() is None


def test_reports_tell_when_the_run_was_interrupted() -> None:
    reports = Reports()
    reports.read_lines(b"process 12\ntest tests/a.py::te", 1.0)
    reports.read_lines(b"st_b\n", 2.0)
    reports.read_signals(bytes([signal.SIGCHLD]), 3.0)
    assert reports == Reports([12], "tests/a.py::test_b")
    reports.read_signals(bytes([signal.SIGTERM]), 4.0)
    reports.read_lines(b"interrupted\n", 5.0)
    assert reports == Reports([12], "tests/a.py::test_b", interrupted_at=4.0)


def test_second_signal_is_urgent_unless_sent_twice_at_once() -> None:
    reports = Reports()
    reports.read_signals(bytes([signal.SIGTERM, signal.SIGTERM]), 1.0)
    reports.read_signals(bytes([signal.SIGTERM]), 1.0 + AGAIN_SECONDS / 2)
    assert not reports.is_urgent
    reports.read_signals(bytes([signal.SIGINT]), 1.0 + AGAIN_SECONDS)
    assert reports.is_urgent


def test_signal_that_a_test_handles_is_no_interruption() -> None:
    reports = Reports()
    reports.read_signals(bytes([signal.SIGINT]), 1.0)
    reports.read_lines(b"test tests/a.py::test_after\n", 2.0)
    assert reports.interrupted_at is None
