"""The pytest plugin that records where a run spends its time: `make durations` and `make coverage` load it.

Each process measures its own collection, files and fixtures; the controller adds them up. Under coverage.py it names
the file of tests as the context of every line, so that `make mutations` knows which tests run a line.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest
from coverage import Coverage

from tests.suite.files import file_of
from tests.suite.times import Times, count, write

OUTPUT = "luminet_times"
RAN = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Recorder(config), "luminet-recorder")


@dataclass(eq=False, slots=True)  # plugins are hashed
class Recorder:
    config: pytest.Config
    times: Times = field(default_factory=Times)
    began: float = field(default_factory=time.perf_counter)
    file: str = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Iterator[None]:
        began = time.process_time()
        try:
            return (yield)
        finally:
            self.times.collection += time.process_time() - began

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        file = file_of(item.nodeid)
        if file != self.file:
            self.file = file
            _name_context(file)
        began = time.perf_counter()
        try:
            return (yield)
        finally:
            count(self.times.files, file, time.perf_counter() - began)
            self.times.tests += 1

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        began = time.perf_counter()
        try:
            return (yield)
        finally:
            count(self.times.fixtures, f"{fixturedef.argname} ({fixturedef.scope})", time.perf_counter() - began)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        if not error:
            self.times.add(Times(**node.workeroutput[OUTPUT]))

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput[OUTPUT] = asdict(self.times)
        elif exitstatus in RAN and not _is_under_coverage():  # which makes all of them longer
            self.times.seconds = time.perf_counter() - self.began
            write(self.times)


def _is_under_coverage() -> bool:
    return Coverage.current() is not None


def _name_context(file: str) -> None:
    if (measuring := Coverage.current()) is not None:
        measuring.switch_context(file)
