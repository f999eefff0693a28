"""A helper process beside each test run ends all that the run started, however the run ends.

Fixtures end the servers, stacks and browsers they started. A killed run cannot, and an interrupted one may hang. So the
helper watches the run. When the run is gone, or has not ended some seconds after SIGINT or SIGTERM, the helper ends
every process that carries the run's mark, an environment variable that processes inherit, or that the run named, and
all that descends from those. tests/suite/interrupting.py connects a run of pytest to it.
"""

import atexit
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

MARK = "TESTS_STARTED_BY"
HELPER = "helper"  # the mark of the helpers themselves, which nobody is to end
# An interrupted run has 15 seconds: these for fixtures to end what they started, GRACE_SECONDS for that to end when the
# helper asks it to, LAST_SECONDS for pytest's summary. What then remains is killed.
ORDERLY_SECONDS = 5.0
GRACE_SECONDS = 3.0
LAST_SECONDS = float(os.environ.get("TESTS_LAST_SECONDS", "5"))  # tests of this wait longer: a machine may be busy
AGAIN_SECONDS = 1.0  # a signal this much later was sent a second time; `timeout` sends the first one twice
POLL_SECONDS = 0.1
# A process that is asked to end ends its own children. PostgreSQL, asked by SIGTERM alone, waits for its clients, and
# killed it leaves shared memory behind: so it is asked by SIGINT, also where the process above it does not answer.
ASKING = (signal.SIGTERM, signal.SIGINT)
INTERRUPTING = (signal.SIGINT, signal.SIGTERM)


def outlived_by_nothing(*, folder: Path | None = None, errors: int = subprocess.DEVNULL) -> None:
    """Have all that this process starts from now on ended with it, and `folder` deleted. `errors` is for messages."""
    mark = "/".join(filter(None, [os.environ.get(MARK), f"{os.getpid()}-{time.time_ns()}"]))
    signals, _signals[:] = _pipe()
    helper = subprocess.Popen(
        [sys.executable, "-m", "tests.suite.outliving", str(os.getpid()), str(signals), str(folder or ""), mark],
        cwd=Path(__file__).parents[2],
        env={**os.environ, MARK: HELPER},
        stdin=subprocess.PIPE,
        bufsize=0,  # no lock, which another thread may hold when this process is forked
        stdout=subprocess.DEVNULL,
        stderr=errors,
        pass_fds=[signals],
        start_new_session=True,  # Ctrl-C is for the run
    )
    os.close(signals)
    os.environ[MARK] = mark
    _helpers.append(helper)
    atexit.register(_leave, helper)


_helpers: list["subprocess.Popen[bytes]"] = []  # the pipe to it is open for as long as this process lives
_signals: list[int] = []


def _pipe() -> tuple[int, list[int]]:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)  # as signal.set_wakeup_fd requires
    return reading, [writing]


def signals_to_helper() -> int:
    """The pipe to which each signal's number is to be written as one byte: for `signal.set_wakeup_fd`."""
    return _signals[0]


def _leave(helper: "subprocess.Popen[bytes]") -> None:
    """A run that ends as it should has left nothing, or waits until that is ended too."""
    assert helper.stdin is not None
    with suppress(BrokenPipeError):
        helper.stdin.close()
    helper.wait()


def name(pid: int) -> None:
    """Name a process that hides its variables behind its title, as Redis and PostgreSQL do."""
    _report(f"process {pid}")


def name_forked_child() -> None:
    """To be called in it: it runs no program of its own, so its variables are those with which its parent started."""
    name(os.getpid())
    for helper in _helpers:
        assert helper.stdin is not None
        helper.stdin.close()
    _helpers.clear()


def report_test(nodeid: str) -> None:
    """Say which test starts. A signal before that was handled by the test before, and did not interrupt the run."""
    _report(f"test {nodeid}")


def report_interrupted() -> None:
    _report("interrupted")


def _report(line: str) -> None:
    for helper in _helpers:
        assert helper.stdin is not None
        with suppress(BrokenPipeError):  # a helper that was killed must not fail the tests
            helper.stdin.write(f"{line}\n".encode())


def marked(mark: str) -> list[psutil.Process]:
    """All that carry it, or the mark of a run below it, whoever their parents are by now."""
    return [process for process in psutil.process_iter() if f"{mark_of(process)}/".startswith(f"{mark}/")]


def mark_of(process: psutil.Process) -> str | None:
    with suppress(psutil.Error, OSError):  # others' processes are not ours to look into
        return process.environ().get(MARK)
    return None


def end(mark: str, named: Sequence[psutil.Process] = (), *, grace_seconds: float = GRACE_SECONDS) -> None:
    """Ask those to end that no other of them has started, then all; kill those that are left after that."""
    known = set(named)
    for asking in ASKING if grace_seconds else ():
        left = _left(mark, known)
        for process in _roots(left) if asking == signal.SIGTERM else left:
            with suppress(psutil.Error):
                process.send_signal(asking)
        if _is_over(mark, known, grace_seconds / len(ASKING)):
            return
    for process in _left(mark, known):
        with suppress(psutil.Error):
            process.kill()


def _left(mark: str, known: set[psutil.Process]) -> list[psutil.Process]:
    """All that are alive. `known` remembers them: a process whose parent has ended shows no more whose it is."""
    known.update(marked(mark))
    known.update(_descendants(known))
    return [process for process in known if is_alive(process)]


def _descendants(processes: set[psutil.Process]) -> Iterator[psutil.Process]:
    pids = {process.pid for process in processes}
    for process in sorted(psutil.process_iter(), key=_age):  # parents first
        if _parent_of(process) in pids and mark_of(process) != HELPER:
            pids.add(process.pid)
            yield process


def _age(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        return process.create_time()
    return 0.0


def is_alive(process: psutil.Process) -> bool:
    """And the same as when it was named: numbers of processes are given again."""
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _roots(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    pids = {process.pid for process in processes}
    return [process for process in processes if _parent_of(process) not in pids]


def _parent_of(process: psutil.Process) -> int | None:
    with suppress(psutil.Error):
        return process.ppid()
    return None


def _is_over(mark: str, known: set[psutil.Process], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while _left(mark, known):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


@dataclass(slots=True)
class Reports:
    """What the run has reported, and when it was interrupted. Knows no clock and no process."""

    pids: list[int] = field(default_factory=list)
    test: str = ""
    interrupted_at: float | None = None
    is_urgent: bool = False
    _rest: bytes = b""

    def read_signals(self, numbers: bytes, now: float) -> None:
        for number in numbers:
            if number not in INTERRUPTING:
                continue
            if self.interrupted_at is None:
                self.interrupted_at = now
            elif now - self.interrupted_at >= AGAIN_SECONDS:
                self.is_urgent = True

    def read_lines(self, data: bytes, now: float) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            kind, _, value = line.decode(errors="replace").partition(" ")
            if kind == "process":
                self.pids.append(int(value))
            elif kind == "test":
                self.test, self.interrupted_at, self.is_urgent = value, None, False
            elif self.interrupted_at is None:
                self.interrupted_at = now


def _watch(run: int, signals: int, mark: str) -> tuple[list[psutil.Process], float]:
    """Return when the run is gone or has been killed: the processes it named, and how long those that are left have."""
    reports, named, lines = Reports(), list[psutil.Process](), sys.stdin.fileno()
    while True:
        ready, _, _ = select.select([lines, signals], [], [], POLL_SECONDS * 5)
        if signals in ready:
            reports.read_signals(os.read(signals, 4096), time.monotonic())
        if lines in ready:
            if not (data := os.read(lines, 65536)):
                break
            reports.read_lines(data, time.monotonic())
            while reports.pids:
                with suppress(psutil.Error):
                    named.append(psutil.Process(reports.pids.pop()))
        elif os.getppid() != run:  # something that was forked from it has the pipe open
            break
        if reports.is_urgent or _is_due(reports):
            _end_run(run, mark, named, reports)
            return named, 0
    return named, GRACE_SECONDS


def _is_due(reports: Reports) -> bool:
    return reports.interrupted_at is not None and time.monotonic() - reports.interrupted_at > ORDERLY_SECONDS


def _end_run(run: int, mark: str, named: list[psutil.Process], reports: Reports) -> None:
    """End what the run waits for, which lets it end by itself, unless it hangs or was signalled twice."""
    end(mark, named, grace_seconds=0 if reports.is_urgent else GRACE_SECONDS)
    if reports.is_urgent or not _lets_go(run, LAST_SECONDS):
        with suppress(ProcessLookupError):
            os.kill(run, signal.SIGKILL)
        reason = "was interrupted twice" if reports.is_urgent else "did not end"
        print(f"\ninterrupted: pytest {reason}, so it was killed; running: {reports.test}", file=sys.stderr)


def _lets_go(run: int, seconds: float) -> bool:
    """Whether it ends by itself. As its last deed it closes its pipe to us and waits for us."""
    deadline = time.monotonic() + seconds
    while os.getppid() == run and time.monotonic() < deadline:
        if select.select([sys.stdin], [], [], POLL_SECONDS)[0] and not os.read(sys.stdin.fileno(), 65536):
            return True
    return os.getppid() != run


def main(pid: str, signals: str, folder: str, mark: str) -> None:
    named, grace_seconds = _watch(int(pid), int(signals), mark)
    end(mark, named, grace_seconds=grace_seconds)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
