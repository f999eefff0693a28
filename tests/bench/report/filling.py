"""Figures in words: [[figure]] in a row's own words, [[C1: figure]] anywhere, [[figure | what]] for another side of it.

So no figure is written down by hand, and none can grow old. `what` is one of: a statistic of what is judged (median,
p5, p95, p99, min, max, n), a side's ("ours", "theirs", or "ours p95"), "pair" for both medians, "inverse" for 1/x, or
"size NAME" for one of the figure's sizes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from engine_agent.tools.report import format_number
from tests.bench.figures import Figure, Series
from tests.bench.results import RowResult
from tests.bench.words import with_unit

NOT_MEASURED = "(not measured)"
_PLACE = re.compile(r"\[\[(?:(?P<key>[A-Z]\d+): )?(?P<figure>[^\]|]+?)(?: \| (?P<what>[^\]]+))?\]\]")
STATISTICS = ("n", "median", "min", "p5", "p25", "p75", "p95", "p99", "max")
SIDES = ("ours", "theirs", "ratio")


class NoSuchFigure(Exception):
    """Words ask for a figure that the run does not have; names row, figure and what there is."""


@dataclass(frozen=True, slots=True)
class Filling:
    """The rows of a run, by key."""

    rows: Mapping[str, RowResult]

    def filled(self, words: str, key: str = "") -> str:
        """`key`: whose words these are, where a place names no row. Links lead on from the page, not from the notes."""
        found = _PLACE.sub(lambda place: self.value(place["key"] or key, place["figure"], place["what"] or ""), words)
        return found.replace("](../../", "](")

    def value(self, key: str, name: str, what: str = "") -> str:
        figure = self.figure(key, name)
        return value_of(figure, what) if figure else NOT_MEASURED

    def figure(self, key: str, name: str) -> Figure | None:
        """None where the row has no figure at all, because it was not measured, or was cut short."""
        row = self.rows.get(key)
        if row is None or row.status != "measured":
            return next((one for one in row.figures if one.name == name), None) if row else None
        for figure in row.figures:
            if figure.name == name:
                return figure
        raise NoSuchFigure(f"{key} has no figure {name!r}; it has {', '.join(one.name for one in row.figures)}")


def value_of(figure: Figure, what: str = "") -> str:
    if what == "pair":
        assert figure.theirs is not None
        sides = [format_number(side.statistics.median) for side in (figure.ours, figure.theirs)]
        return with_unit(" ÷ ".join(sides), figure.ours.unit)
    if what == "inverse":
        return f"1/{format_number(1 / figure.judged.statistics.median)}"
    if what.startswith("size "):
        size = figure.parameters[what.removeprefix("size ")]
        return format_number(size) if isinstance(size, int | float) else str(size)
    side, _, statistic = what.rpartition(" ") if what.partition(" ")[0] in SIDES and " " in what else ("", "", what)
    if what in SIDES:
        side, statistic = what, "median"
    return _statistic(_side(figure, side), statistic or _judged(figure))


def _judged(figure: Figure) -> str:
    return figure.target.of if figure.target else "median"


def _side(figure: Figure, side: str) -> Series:
    if side == "":
        return figure.judged
    found: Series | None = getattr(figure, side)
    if found is None:
        raise NoSuchFigure(f"{figure.name!r} has no side {side!r}")
    return found


def _statistic(series: Series, name: str) -> str:
    if name not in STATISTICS:
        raise NoSuchFigure(f"a figure has {', '.join(STATISTICS)}, found {name!r}")
    number = format_number(float(getattr(series.statistics, name)))
    return number if name == "n" else with_unit(number, series.unit)
