"""The pytest plugin by which several processes share out the files of tests, and `--quick` leaves most of them out.

The controller decides who runs which files, by the durations that `make durations` recorded, and each process collects
its own files only: it imports nothing that it will not run.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from xdist.scheduler import EachScheduling

from tests.suite.files import file_of, files_below, is_quick, recorded_seconds, shares

SHARE = "luminet_share"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick",
        action="store_true",
        help="run unit tests, contracts and the faster half of the integration tests alone",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if (worker := getattr(config, "workerinput", None)) is not None:
        config.args = worker.get(SHARE, config.args)
        return
    try:
        files = files_below(config.args)
    except FileNotFoundError as error:  # xdist's own workers would say nothing
        raise pytest.UsageError(str(error)) from None
    if config.getoption("quick"):
        config.args = [file for file in files if is_quick(file, recorded_seconds())]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Runs in the controller, before a process starts: tell it which files are its own."""
    if _is_shared(node.config):
        given = node.config.args
        shared = shares(files_below(given), node.workerinput["workercount"], recorded_seconds())
        place = int(node.workerinput["workerid"].removeprefix("gw"))
        node.workerinput[SHARE] = arguments_of(shared[place % len(shared)], given)


def arguments_of(files: Sequence[str], given: Sequence[str]) -> list[str]:
    """These files, or of a file those tests alone that were named."""
    named = [one for one in given if "::" in one]
    return [one for file in files for one in [name for name in named if file_of(name) == file] or [file]]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep each file's tests together, so that its fixtures live once: pytest-django sorts by use of the database."""
    if hasattr(config, "workerinput"):
        place_of = {file: place for place, file in enumerate(map(file_of, config.args))}
        items.sort(key=lambda item: place_of.get(file_of(item.nodeid), len(place_of)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return Shares(config, log) if _is_shared(config) else None


def _is_shared(config: pytest.Config) -> bool:
    return bool(config.getoption("dist", "no") == "loadfile")


class Shares(EachScheduling):  # type: ignore[misc]  # xdist has no types
    """Each process runs all that it has collected. One that crashes ends the run: nobody else has its files."""

    def schedule(self) -> None:
        collected = [one for items in self.node2collection.values() for one in items]
        for name in self.config.args:
            if "::" in name and not any(one.startswith(name) for one in collected):
                pytest.exit(f"there is no test {name}", returncode=pytest.ExitCode.USAGE_ERROR)
        # xdist counts those of the last process alone, and the progress shown is a share of that.
        self.config.pluginmanager.getplugin("dsession")._session.testscollected = len(collected)
        super().schedule()
