"""How a figure is measured: rows, samples, statistics. The machine is in machine.py, how it all looks in report.py.

A row of NUMBERS.md is a function in a module of `tests/bench/rows/`; being there is enough to be run:

    @row("C1", title="Cache bookkeeping, new prompt", target="≤ 0.5 ×", beside="vLLM 0.32")
    def new_prompt(bench: Bench) -> None:
        bench.compare("bookkeeping", unit="µs", ours=timed(ours, unit="µs"), theirs=their_process.sample,
                      theirs_name="vLLM 0.32", target=Target("<=", 0.5), parameters={"tokens": 4096, "block": 16})
"""

import importlib
import math
import pkgutil
import re
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn

Sample = Callable[[], float]
Parameters = Mapping[str, str | int | float | bool | None]
OnStep = Callable[[str, str, int, int], None]  # row, figure, repetition k (0: warming up), of n
Judged = Literal["median", "min", "max", "p5", "p25", "p75", "p95", "p99"]

REPETITIONS = 10  # even, so that each side of a comparison goes first equally often
UNITS_PER_SECOND = {"s": 1.0, "ms": 1e3, "µs": 1e6, "ns": 1e9}
METHODS = {
    "quantiles": "linear interpolation between closest ranks (Hyndman & Fan type 7, numpy's default)",
    "spread_percent": "(p75 - p25) / |median| * 100; null for one sample or a median of 0",
    "ratio": "ours / theirs of each pair, then the statistics of those ratios; the target judges them",
    "order": "the sides alternate: ours goes first in pairs 1, 3, 5, ... and theirs in pairs 2, 4, 6, ...",
    "seconds": "wall time since the row's previous figure ended, preparation and warm-up included",
}


class UnknownRow(Exception):
    """A row was asked for that no module registered."""


class SilentRow(Exception):
    """A row returned without a figure and without saying why."""


class SkipRow(Exception):
    """Raised by `Bench.skip`; its text is the reason."""


# --- statistics -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Statistics:
    n: int
    median: float
    min: float
    p5: float
    p25: float
    p75: float
    p95: float
    p99: float
    max: float
    spread_percent: float | None


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of the sorted samples lie; see METHODS["quantiles"]."""
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def statistics_of(samples: Sequence[float]) -> Statistics:
    ordered = sorted(samples)
    p5, p25, median, p75, p95, p99 = (quantile(ordered, share) for share in (0.05, 0.25, 0.5, 0.75, 0.95, 0.99))
    # One sample has no spread, and calling it 0 % would praise the least careful measurement.
    spread = (p75 - p25) / abs(median) * 100 if len(ordered) > 1 and median else None
    return Statistics(len(ordered), median, ordered[0], p5, p25, p75, p95, p99, ordered[-1], spread)


# --- figures ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """What one statistic of a figure should reach: `Target("<=", 2.0)`, `Target("==", 37.4, tolerance=0.5)`."""

    comparison: Literal["<=", "<", ">=", ">", "=="]
    bound: float
    of: Judged = "median"
    tolerance: float = 0.0  # only "==" has one

    def __post_init__(self) -> None:
        if self.comparison not in ("<=", "<", ">=", ">", "=="):
            raise ValueError(f"comparison is one of <= < >= > ==, found {self.comparison!r}")
        if self.tolerance and self.comparison != "==":
            raise ValueError(f"tolerance goes with ==, found {self.comparison!r}")

    def is_met(self, value: float) -> bool:
        match self.comparison:
            case "<=":
                return value <= self.bound
            case "<":
                return value < self.bound
            case ">=":
                return value >= self.bound
            case ">":
                return value > self.bound
            case "==":
                return abs(value - self.bound) <= self.tolerance

    def shortfall(self, value: float) -> float:
        """How far `value` is on the wrong side, in the figure's unit; 0 when met."""
        return 0.0 if self.is_met(value) else abs(value - self.bound) - self.tolerance


@dataclass(frozen=True, slots=True)
class Series:
    """The samples of one side of a figure."""

    name: str
    unit: str
    samples: tuple[float, ...]

    @property
    def statistics(self) -> Statistics:
        return statistics_of(self.samples)


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    kind: Literal["measure", "compare", "record"]
    ours: Series
    seconds: float
    parameters: Parameters
    target: Target | None = None
    theirs: Series | None = None
    ratio: Series | None = None

    @property
    def judged(self) -> Series:
        """What the target speaks of: the ratio of a comparison, otherwise our own samples."""
        return self.ratio or self.ours

    @property
    def judged_value(self) -> float:
        of: Judged = self.target.of if self.target else "median"
        return float(getattr(self.judged.statistics, of))

    @property
    def is_met(self) -> bool | None:
        return self.target.is_met(self.judged_value) if self.target else None


def timed(work: Callable[[], object], *, unit: str = "s", calls: int = 1) -> Sample:
    """A sample that runs `work` `calls` times and returns the wall time of one call, in `unit`."""
    factor = UNITS_PER_SECOND[unit] / calls

    def sample() -> float:
        began = time.perf_counter()
        for _ in range(calls):
            work()
        return (time.perf_counter() - began) * factor

    return sample


def _silent(row: str, figure: str, k: int, n: int) -> None:
    """The progress of a run nobody watches."""


class Bench:
    """What a row measures with. `repetitions` (the command's --repetitions) overrules every figure's own number."""

    def __init__(self, row: str, *, repetitions: int | None = None, on_step: OnStep = _silent) -> None:
        self.figures: list[Figure] = []
        self.notes: list[str] = []
        self._row, self._repetitions, self._on_step = row, repetitions, on_step
        self._mark = time.perf_counter()

    def repetitions(self, default: int = REPETITIONS) -> int:
        """How often to repeat; for rows that loop themselves and then `record`."""
        return default if self._repetitions is None else self._repetitions

    def measure(
        self,
        name: str,
        *,
        unit: str,
        sample: Sample,
        repetitions: int = REPETITIONS,
        warmup: int = 1,
        target: Target | None = None,
        parameters: Parameters | None = None,
    ) -> Figure:
        """Take samples of one side; `sample` returns the value, in `unit`."""
        samples: list[float] = []
        for _ in self._rounds(name, repetitions, warmup):
            samples.append(sample())
        return self._add(name, "measure", _series(name, unit, samples[warmup:]), parameters, target)

    def compare(
        self,
        name: str,
        *,
        unit: str,
        ours: Sample,
        theirs: Sample,
        theirs_name: str,
        repetitions: int = REPETITIONS,
        warmup: int = 1,
        target: Target | None = None,
        parameters: Parameters | None = None,
    ) -> Figure:
        """Take samples of both sides alternating; the target judges ours / theirs."""
        our_samples: list[float] = []
        their_samples: list[float] = []
        sides = [(our_samples, ours), (their_samples, theirs)]
        for k in self._rounds(name, repetitions, warmup):
            # Whoever always goes second meets the warmer caches and the hotter CPU, so the order flips every pair.
            for samples, sample in sides if k % 2 else reversed(sides):
                samples.append(sample())
        left = _series("ours", unit, our_samples[warmup:])
        right = _series(theirs_name, unit, their_samples[warmup:])
        return self._add(name, "compare", left, parameters, target, right, _ratio(name, left, right))

    def record(
        self,
        name: str,
        *,
        unit: str,
        values: Iterable[float],
        target: Target | None = None,
        parameters: Parameters | None = None,
    ) -> Figure:
        """Keep values obtained elsewhere: counts, or what a load generator reported."""
        return self._add(name, "record", _series(name, unit, list(values)), parameters, target)

    def note(self, text: str) -> None:
        """Say what a reader must know: why a figure falls short, what could not be measured here."""
        self.notes.append(text)

    def skip(self, reason: str) -> NoReturn:
        """End the row here as not measured. Figures taken before stay, and the reason is shown."""
        raise SkipRow(reason)

    def _rounds(self, name: str, default: int, warmup: int) -> Iterator[int]:
        """1..warmup, whose samples the caller drops, then 1..n."""
        n = self.repetitions(default)
        if n < 1:
            raise ValueError(f"{name}: repetitions is at least 1, found {n}")
        self._on_step(self._row, name, 0, n)
        yield from range(1, warmup + 1)
        for k in range(1, n + 1):
            self._on_step(self._row, name, k, n)
            yield k

    def _add(
        self,
        name: str,
        kind: Literal["measure", "compare", "record"],
        ours: Series,
        parameters: Parameters | None,
        target: Target | None,
        theirs: Series | None = None,
        ratio: Series | None = None,
    ) -> Figure:
        if any(figure.name == name for figure in self.figures):
            raise ValueError(f"{self._row} already has a figure named {name!r}")
        now = time.perf_counter()
        figure = Figure(name, kind, ours, now - self._mark, dict(parameters or {}), target, theirs, ratio)
        self._mark = now
        self.figures.append(figure)
        return figure


def _series(name: str, unit: str, samples: Iterable[float]) -> Series:
    values = tuple(float(sample) for sample in samples)
    if not values:
        raise ValueError(f"{name}: no values")
    for value in values:
        if not math.isfinite(value):
            raise ValueError(f"{name}: a sample is {value}")
    return Series(name, unit, values)


def _ratio(name: str, ours: Series, theirs: Series) -> Series:
    if 0.0 in theirs.samples:
        raise ValueError(f"{name}: {theirs.name} measured 0 {theirs.unit}, so there is no ratio")
    return _series("ratio", "×", (a / b for a, b in zip(ours.samples, theirs.samples, strict=True)))


# --- rows -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    key: str
    title: str
    target: str
    beside: str | None
    run: Callable[[Bench], None]


@dataclass(frozen=True, slots=True)
class RowError:
    message: str
    traceback: str


@dataclass(frozen=True, slots=True)
class RowResult:
    key: str
    title: str
    target: str = ""
    beside: str | None = None
    figures: tuple[Figure, ...] = ()
    notes: tuple[str, ...] = ()
    skipped: str | None = None
    error: RowError | None = None
    seconds: float = 0.0

    @property
    def status(self) -> Literal["failed", "not measured", "measured"]:
        return "failed" if self.error else "not measured" if self.skipped is not None else "measured"


class Registry:
    """The rows by key. There is one, `REGISTRY`, filled by importing the row modules; tests make their own."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}

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
        return [self._rows[key] for key in sorted(self._rows, key=_natural)]

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


def _natural(key: str) -> list[tuple[int, str]]:
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
            broken.append(RowResult(f"{module}.py", "could not be imported", error=_error(problem)))
    return broken


def run_row(row: Row, *, repetitions: int | None = None, on_step: OnStep = _silent) -> RowResult:
    """Run one row. Whatever it raises becomes part of its result, beside the figures it had taken."""
    bench = Bench(row.key, repetitions=repetitions, on_step=on_step)
    began = time.perf_counter()
    skipped, error = None, None
    try:
        row.run(bench)
        if not bench.figures:
            raise SilentRow("the row took no figure and gave no reason; use bench.skip(reason)")
    except SkipRow as skip:
        skipped = str(skip)
    except (Exception, SystemExit, KeyboardInterrupt) as problem:
        error = _error(problem)
    figures, notes = tuple(bench.figures), tuple(bench.notes)
    seconds = time.perf_counter() - began
    return RowResult(row.key, row.title, row.target, row.beside, figures, notes, skipped, error, seconds)


def run_rows(rows: Iterable[Row], *, repetitions: int | None = None, on_step: OnStep = _silent) -> Iterator[RowResult]:
    """Run rows one after the other. After Ctrl-C the rest is reported as not measured, and what was taken is kept."""
    was_interrupted = False
    for row in rows:
        if was_interrupted:
            yield RowResult(row.key, row.title, row.target, row.beside, skipped="interrupted before its turn")
            continue
        result = run_row(row, repetitions=repetitions, on_step=on_step)
        was_interrupted = result.error is not None and result.error.message == "KeyboardInterrupt"
        yield result


def _error(problem: BaseException) -> RowError:
    message = " ".join("".join(traceback.format_exception_only(problem)).split())  # one line, for the table
    return RowError(message, "".join(traceback.format_exception(problem)))
