"""How a figure is measured: samples of one side, or of two alternating; and the clock that takes them."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NoReturn

from tests.bench.figures import Figure, Parameters, Series, Target, ratio_of, series_of

Sample = Callable[[], float]
OnStep = Callable[[str, str, int, int], None]  # row, figure, repetition k (0: warming up), of n

REPETITIONS = 10  # even, so that each side of a comparison goes first equally often
UNITS_PER_SECOND = {"s": 1.0, "ms": 1e3, "µs": 1e6, "ns": 1e9}
METHODS = {
    "quantiles": "linear interpolation between closest ranks (Hyndman & Fan type 7, numpy's default)",
    "spread_percent": "(p75 - p25) / |median| * 100; null for one sample or a median of 0",
    "ratio": "ours / theirs of each pair, then the statistics of those ratios; the target judges them",
    "order": "the sides alternate: ours goes first in pairs 1, 3, 5, ... and theirs in pairs 2, 4, 6, ...",
    "seconds": "wall time since the row's previous figure ended, preparation and warm-up included",
}


class SkipRow(Exception):
    """Raised by `Bench.skip`; its text is the reason."""


def timed(work: Callable[[], object], *, unit: str = "s", calls: int = 1) -> Sample:
    """A sample that runs `work` `calls` times and returns the wall time of one call, in `unit`."""
    factor = UNITS_PER_SECOND[unit] / calls

    def sample() -> float:
        began = time.perf_counter()
        for _ in range(calls):
            work()
        return (time.perf_counter() - began) * factor

    return sample


def silent(row: str, figure: str, k: int, n: int) -> None:
    """The progress of a run nobody watches."""


class Bench:
    """What a row measures with. `repetitions` (the command's --repetitions) overrules every figure's own number."""

    def __init__(self, row: str, *, repetitions: int | None = None, on_step: OnStep = silent) -> None:
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
        return self._add(name, "measure", series_of(name, unit, samples[warmup:]), parameters, target)

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
        left = series_of("ours", unit, our_samples[warmup:])
        right = series_of(theirs_name, unit, their_samples[warmup:])
        return self._add(name, "compare", left, parameters, target, right, ratio_of(name, left, right))

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
        return self._add(name, "record", series_of(name, unit, list(values)), parameters, target)

    def step(self, name: str, k: int, n: int) -> None:
        """Say where a row is that loops itself and then `record`s: at repetition k of n, 0 while warming up."""
        self._on_step(self._row, name, k, n)

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
        self.step(name, 0, n)
        yield from range(1, warmup + 1)
        for k in range(1, n + 1):
            self.step(name, k, n)
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
