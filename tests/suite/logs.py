"""The pytest plugin that keeps the logs of servers whose tests failed; they lie in folders that end with the tests."""

import os
import shutil
from pathlib import Path

import pytest

from tests.suite.files import CHECKOUT
from tests.suite.outliving import MARK

KEPT = CHECKOUT / ".luminet" / "tests" / "logs"
IS_STARTED_BY_TESTS = MARK in os.environ
_failed: list[str] = []


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput") and not IS_STARTED_BY_TESTS:
        shutil.rmtree(KEPT, ignore_errors=True)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed.append(report.nodeid)


def keep_logs(folder: Path) -> None:
    """Copy what servers wrote below this folder, which is about to be deleted, if a test of this process failed."""
    for log in folder.rglob("*.log") if _failed else ():
        target = KEPT / folder.name / log.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(log, target)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if KEPT.is_dir():
        terminalreporter.write_line(f"The servers' logs: {KEPT.relative_to(CHECKOUT)}")
