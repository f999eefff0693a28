"""Which rows there are. A row of NUMBERS.md is a function in a module of `tests/bench/rows/`; being there is enough:

@row("C1", title="Cache bookkeeping, new prompt", target="≤ 0.5 ×", beside="vLLM 0.32")
def new_prompt(bench: Bench) -> None:
    bench.compare("bookkeeping", unit="µs", ours=timed(ours, unit="µs"), theirs=their_process.sample,
                  theirs_name="vLLM 0.32", target=Target("<=", 0.5), parameters={"tokens": 4096, "block": 16})
"""

import importlib
import pkgutil
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.bench.measuring import Bench
from tests.bench.results import RowResult, error_of


class UnknownRow(Exception):
    """A row was asked for that no module registered."""


@dataclass(frozen=True, slots=True)
class Row:
    key: str
    title: str
    target: str
    beside: str | None
    run: Callable[[Bench], None]


class Registry:
    """The rows by key, in the order given, then by key. Importing the row modules fills `REGISTRY`."""

    def __init__(self, order: Sequence[str] = ()) -> None:
        self._rows: dict[str, Row] = {}
        self._order = {key: place for place, key in enumerate(order)}

    def row(
        self, key: str, *, title: str, target: str = "", beside: str | None = None
    ) -> Callable[[Callable[[Bench], None]], Callable[[Bench], None]]:
        def register(run: Callable[[Bench], None]) -> Callable[[Bench], None]:
            if key in self._rows:
                raise ValueError(f"row {key} is registered twice")
            self._rows[key] = Row(key, title, target, beside, run)
            return run

        return register

    def rows(self) -> list[Row]:
        keys = sorted(self._rows, key=lambda key: (self._order.get(key, len(self._order)), natural(key)))
        return [self._rows[key] for key in keys]

    def select(self, keys: Sequence[str]) -> list[Row]:
        """The rows asked for, in the order asked; all of them when none is named. Raises UnknownRow."""
        if not keys:
            return self.rows()
        by_folded = {key.casefold(): row for key, row in self._rows.items()}
        if unknown := [key for key in keys if key.casefold() not in by_folded]:
            known = ", ".join(row.key for row in self.rows()) or "none"
            raise UnknownRow(f"unknown row {', '.join(unknown)}; known: {known}")
        return [by_folded[key] for key in dict.fromkeys(key.casefold() for key in keys)]


REGISTRY = Registry()
row = REGISTRY.row


def natural(key: str) -> list[tuple[int, str]]:
    """C2 before C10."""
    return [(int(part or 0), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", key)]


def discover(package: str) -> list[RowResult]:
    """Import every module of `package`, so that its rows register. What cannot be imported comes back as failed."""
    try:
        path = importlib.import_module(package).__path__
    except ModuleNotFoundError as missing:
        if f"{package}.".startswith(f"{missing.name}."):
            return []
        raise
    broken = []
    for module in sorted(info.name for info in pkgutil.iter_modules(path)):
        try:
            importlib.import_module(f"{package}.{module}")
        except Exception as problem:
            broken.append(RowResult(f"{module}.py", "could not be imported", error=error_of(problem)))
    return broken
