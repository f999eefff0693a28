"""Charts as data: static/luminet/series.js draws them, and a table shows the same numbers. Pure.

Chart and table share their values, so they always agree. A stacked bar is drawn by the server alone.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from controlplane.dashboard.frame.words import duration

Unit = Literal["percent", "count", "milliseconds", "bytes", "seconds"]
WHOLE = 1000  # width of a full bar, in units of the drawing


@dataclass(frozen=True, slots=True)
class Series:
    label: str
    values: tuple[float | None, ...]  # None: no value is known, so the line has a gap
    tone: Literal["served", "first", "second", "third", "fourth"] = "first"
    is_dashed: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """An event, or a value in force, marked on the x axis."""

    at: float
    label: str
    words: str = ""
    moment: datetime | None = None  # set where the list of marks shows a time, in the viewer's zone


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart. `across` is the x axis: Unix seconds, or durations on a logarithmic scale."""

    id: str
    title: str  # states the chart's main fact
    unit: Unit
    xs: tuple[float, ...]
    series: tuple[Series, ...]
    marks: tuple[Mark, ...] = ()
    across: Literal["time", "durations"] = "time"
    across_label: str = "Time (UTC)"

    @property
    def data(self) -> dict[str, Any]:
        return {
            "unit": self.unit,
            "across": self.across,
            "xs": self.xs,
            "series": [
                {"label": line.label, "values": line.values, "tone": line.tone, "dashed": line.is_dashed}
                for line in self.series
            ],
            "marks": [{"at": mark.at, "label": mark.label} for mark in self.marks],
        }

    @property
    def told(self) -> str:
        """Return `data` as JSON for an HTML attribute: HTMX strips scripts, including data, from swapped parts."""
        return json.dumps(self.data)

    @property
    def rows(self) -> list[tuple[str, list[str]]]:
        """Return the table behind the chart, newest first for a chart over time."""
        columns = [line.values for line in self.series]
        rows = [
            (self._place(at), [value_text(self.unit, values[number]) for values in columns])
            for number, at in enumerate(self.xs)
        ]
        return rows[::-1] if self.across == "time" else rows

    def _place(self, at: float) -> str:
        if self.across == "durations":
            return duration(round(at))
        return datetime.fromtimestamp(at, UTC).strftime("%d %b %H:%M")


def value_text(unit: Unit, value: float | None) -> str:
    """Format a number with its unit; a dash for None."""
    if value is None:
        return "–"
    match unit:
        case "percent":
            return f"{value:.1f} %"
        case "milliseconds":
            return f"{value:,.0f} ms"
        case "bytes":
            return bytes_text(value)
        case "seconds":
            return f"{value:,.1f} s"
    return f"{value:,.0f}"


def bytes_text(value: float) -> str:
    """Format a size in the largest unit in which it is at least 1, as "3.1 GiB"."""
    size, names = float(value), ("B", "KiB", "MiB", "GiB", "TiB")
    for name in names:
        if abs(size) < 1024 or name == names[-1]:
            break
        size /= 1024
    return f"{size:,.0f} {name}" if name == "B" else f"{size:,.1f} {name}"


# Shares of a whole


@dataclass(frozen=True, slots=True)
class Piece:
    """A segment of a bar. `kind` names a `bar__part` class; the style sheet sets its colour."""

    label: str
    amount: str
    share: str
    kind: str
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Bar:
    """A stacked bar; the rest of the whole stays empty."""

    title: str
    pieces: tuple[Piece, ...]


def bar(
    title: str, parts: Sequence[tuple[str, float, str]], *, unit: Unit = "count", whole: float | None = None
) -> Bar:
    """Build a bar from (label, amount, kind). Pass `whole` if it exceeds the sum."""
    total = sum(amount for _, amount, _ in parts) if whole is None else whole
    return Bar(title, tuple(_pieces(parts, total, unit)))


def _pieces(parts: Sequence[tuple[str, float, str]], total: float, unit: Unit) -> Iterable[Piece]:
    x = 0.0
    for label, amount, kind in parts:
        width = WHOLE * amount / total if total else 0.0
        yield Piece(label, value_text(unit, amount), share_text(amount, total), kind, round(x, 2), round(width, 2))
        x += width


def share_text(amount: float, total: float) -> str:
    """Format a share to a tenth of a percent, rounded down: only a complete share reads 100 %."""
    if not total:
        return "–"
    return f"{int(WHOLE * amount / total + 1e-9) / 10:.1f} %"
