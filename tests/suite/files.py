"""Which files of tests there are, how long each takes, and which process gets which. Nothing is run here."""

import heapq
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
RECORDED = Path(__file__).with_name("durations.json")
# A file nobody has recorded yet: more than most, so that it does not begin last.
UNKNOWN_SECONDS = 5.0
# Files of tests that use one fixture which is dear to start: they go to one process, so that it starts once.
TOGETHER: Mapping[str, tuple[str, ...]] = {
    "stack": (
        "tests/e2e/test_customer_journey.py",
        "tests/e2e/test_docs.py",
        "tests/e2e/test_doctor.py",
        "tests/e2e/test_ended_sessions.py",
        "tests/e2e/test_every_page.py",
        "tests/e2e/test_five_minutes.py",
        "tests/e2e/test_fleet.py",
        "tests/e2e/test_journeys.py",
        "tests/e2e/test_links.py",
        "tests/e2e/test_operator_journey.py",
        "tests/e2e/test_secrecy.py",
        "tests/e2e/test_tiles.py",
    ),
    "busy_stack": (
        "tests/e2e/test_monitoring.py",
        "tests/e2e/test_demo_traffic.py",
    ),
}
_GROUP_OF = {file: name for name, files in TOGETHER.items() for file in files}


def file_of(nodeid: str) -> str:
    return nodeid.split("::", 1)[0]


def files_below(arguments: Iterable[str], root: Path = CHECKOUT) -> list[str]:
    """The files of tests that pytest collects for these arguments, each once; those of the checkout relative to it."""
    found: dict[str, None] = {}
    for argument in arguments:
        path = root / file_of(argument)
        if not path.exists():
            raise FileNotFoundError(f"there is no {file_of(argument)} to run tests of")
        files = [path] if path.is_file() else sorted(path.rglob("test_*.py"))
        found |= dict.fromkeys(_name(file.resolve(), root) for file in files)
    return list(found)


def _name(file: Path, root: Path) -> str:
    return str(file.relative_to(root) if file.is_relative_to(root) else file)


@cache
def recorded_seconds() -> Mapping[str, float]:
    """By file, in the run that `make durations` recorded last."""
    seconds: dict[str, float] = json.loads(RECORDED.read_text())["files"]
    return seconds


def shares(files: Sequence[str], processes: int, seconds: Mapping[str, float]) -> list[list[str]]:
    """The files of each process: the longest unit goes first, to whoever has least to do."""
    units = sorted(_units(files), key=lambda unit: (-_cost(unit, seconds), unit))
    least: list[tuple[float, int]] = [(0.0, place) for place in range(processes)]
    shared: list[list[str]] = [[] for _ in range(processes)]
    for unit in units:
        load, place = heapq.heappop(least)
        shared[place].extend(unit)
        heapq.heappush(least, (load + _cost(unit, seconds), place))
    return shared


def is_quick(file: str, seconds: Mapping[str, float]) -> bool:
    """Whether `make quick` runs it: unit tests, contracts, and the faster half of the integration tests."""
    if file.startswith(("tests/unit/", "tests/contract/")):
        return True
    return file in faster_half(files_below(["tests/integration"]), seconds)


def faster_half(files: Sequence[str], seconds: Mapping[str, float]) -> set[str]:
    by_time = sorted(files, key=lambda file: (seconds.get(file, UNKNOWN_SECONDS), file))
    return set(by_time[: len(by_time) // 2])


def _units(files: Sequence[str]) -> list[tuple[str, ...]]:
    units: dict[str, list[str]] = {}
    for file in files:
        units.setdefault(_GROUP_OF.get(file, file), []).append(file)
    return [tuple(unit) for unit in units.values()]


def _cost(unit: tuple[str, ...], seconds: Mapping[str, float]) -> float:
    return sum(seconds.get(file, UNKNOWN_SECONDS) for file in unit)
