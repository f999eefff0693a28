"""Whatever a test run has started ends when the run does, however that ends: also by a signal that nobody can hear.

Servers, stacks and browsers of tests are ended by the fixtures that started them; an interrupted run has no time for
that. So beside each run waits one process that does nothing until the run is gone, and then ends what is the run's:
what is marked by a variable that every process inherits from who started it, and what was named.
"""

import atexit
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

MARK = "TESTS_STARTED_BY"
GRACE_SECONDS = 15.0
POLL_SECONDS = 0.1
# Whoever is asked to end ends what it started; PostgreSQL, asked by SIGTERM alone, waits for those connected to it.
ASKING = (signal.SIGTERM, signal.SIGINT)


def outlived_by_nothing() -> None:
    """From now on, of this process. What it started before is not meant, nor is it ended by that."""
    mark = f"{os.getpid()}-{time.time_ns()}"
    waiting = subprocess.Popen(
        [sys.executable, "-m", "tests.outliving", mark],
        cwd=Path(__file__).parents[1],
        env=_without_mark(os.environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the run
    )
    os.environ[MARK] = mark
    _waiting.append(waiting)
    atexit.register(_leave, waiting)


def _leave(waiting: "subprocess.Popen[bytes]") -> None:
    """A run that ends as it should has left nothing, or waits until that is ended too."""
    assert waiting.stdin is not None
    waiting.stdin.close()
    waiting.wait()


def name(pid: int) -> None:
    """A process that hides its variables behind its title, as Redis and PostgreSQL do."""
    for one in _waiting:
        assert one.stdin is not None
        one.stdin.write(f"{pid}\n".encode())
        one.stdin.flush()


_waiting: list["subprocess.Popen[bytes]"] = []  # the pipe to it is open for as long as this process lives


def _without_mark(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name != MARK}


def marked(mark: str) -> list[psutil.Process]:
    """All that carry it, whoever their parents are by now."""
    return [one for one in psutil.process_iter() if _mark_of(one) == mark]


def _mark_of(process: psutil.Process) -> str | None:
    with suppress(psutil.Error, OSError):  # others' processes are not ours to look into
        return process.environ().get(MARK)
    return None


def end(mark: str, named: Sequence[psutil.Process] = (), *, grace_seconds: float = GRACE_SECONDS) -> None:
    """Asked first, those that no other of them has started; whoever is left after that is killed."""
    for asking in ASKING:
        for one in _roots(_left(mark, named)):
            with suppress(psutil.Error):
                one.send_signal(asking)
        if _is_over(mark, named, grace_seconds / len(ASKING)):
            return
    for one in _left(mark, named):
        with suppress(psutil.Error):
            one.kill()


def _left(mark: str, named: Sequence[psutil.Process]) -> list[psutil.Process]:
    return [*marked(mark), *(one for one in named if _is_alive(one))]


def _is_alive(process: psutil.Process) -> bool:
    """And the same as when it was named: numbers of processes are given again."""
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _roots(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    pids = {one.pid for one in processes}
    return [one for one in processes if _parent_of(one) not in pids]


def _parent_of(process: psutil.Process) -> int | None:
    with suppress(psutil.Error):
        return process.ppid()
    return None


def _is_over(mark: str, named: Sequence[psutil.Process], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while _left(mark, named):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _wait() -> list[psutil.Process]:
    """Until whoever writes to us is gone: whom it named meanwhile."""
    named: list[psutil.Process] = []
    for line in sys.stdin:
        with suppress(psutil.Error):
            named.append(psutil.Process(int(line)))
    return named


if __name__ == "__main__":
    end(sys.argv[1], _wait())
