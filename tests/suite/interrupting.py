"""SIGINT or SIGTERM to pytest's main process ends the run and every process it started, within 15 seconds.

The main process stops its tests, or its workers, with KeyboardInterrupt, so that fixtures end what they started. The
helper process of tests/suite/outliving.py hears the signal too, even where Python cannot, as in a call into C. It ends
what does not end by itself. A second signal ends everything at once.
"""

import os
import signal
import tempfile
from pathlib import Path
from types import FrameType

import psutil
import pytest

from tests.suite import outliving
from tests.suite.outliving import INTERRUPTING

ERRORS = os.dup(2)  # before pytest captures it: for the helper's message


class Interrupting:
    def __init__(self, config: pytest.Config) -> None:
        self._plugins = config.pluginmanager
        self._is_worker = hasattr(config, "workerinput")
        self._signal: signal.Signals | None = None
        self._running: dict[str, None] = {}

    def pytest_sessionstart(self) -> None:
        if self._is_worker:
            outliving.outlived_by_nothing()
        else:
            outliving.outlived_by_nothing(folder=_folder_of_run(), errors=ERRORS)
        self._listen()
        os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=self._stop_listening)

    def _listen(self) -> None:
        """Also where SIGINT was ignored when this process started, as `nohup` and `&` in a script have it."""
        for number in INTERRUPTING:
            if signal.getsignal(number) != self._on_signal:
                signal.signal(number, self._on_signal)
        if not self._is_worker:  # workers are the main process's to end
            signal.set_wakeup_fd(outliving.signals_to_helper(), warn_on_full_buffer=False)

    def _stop_listening(self) -> None:
        """A child that was forked without a program of its own is not the run."""
        if not self._is_worker:
            signal.set_wakeup_fd(-1)
        for number in INTERRUPTING:
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        _unblock()
        outliving.name_forked_child()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Interrupt once: further signals must not interrupt what fixtures do. The helper counts them."""
        if self._signal is None:
            self._signal = signal.Signals(number)
            raise KeyboardInterrupt(f"interrupted by {self._signal.name}")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[nodeid] = None
        if self._is_controller:
            return
        if self._signal is not None:  # the test before has caught it
            raise KeyboardInterrupt(f"interrupted by {self._signal.name}")
        self._listen()  # tests may have handlers of their own
        if not self._is_worker:
            outliving.report_test(nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        if excinfo.type is not KeyboardInterrupt or self._is_worker:  # xdist's own is no signal: -x
            return
        if self._is_controller:
            outliving.report_test(", ".join(self._running))
        outliving.report_interrupted()
        for worker in psutil.Process().children() if self._is_controller else ():
            if outliving.mark_of(worker) == os.environ[outliving.MARK]:
                worker.send_signal(signal.SIGINT)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._signal is None:
            return
        terminalreporter.section(f"interrupted by {self._signal.name}")
        for nodeid in self._running or ("no test was running",):
            terminalreporter.line(nodeid)

    @property
    def _is_controller(self) -> bool:
        """Whether workers run the tests."""
        return self._plugins.hasplugin("dsession")


def _block() -> None:
    """A signal to a child that was forked this moment waits until the child has its own handlers."""
    signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTING)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTING)


def _folder_of_run() -> Path:
    """Where the run's temporary folders are made from now on, apart from pytest's, which are looked at afterwards."""
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(prefix="luminet-tests-"))
    folder.chmod(0o1777)  # as root, PostgreSQL runs as nobody
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    return folder
