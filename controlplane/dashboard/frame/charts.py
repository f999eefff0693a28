"""What a chart shows, as data: drawn by static/luminet/series.js, and as a table for whoever does not look. Pure.

The same numbers go both ways, so that the table is what the chart says. A bar of shares is drawn by the server alone.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from controlplane.dashboard.frame.words import duration

Unit = Literal["percent", "count", "milliseconds", "bytes", "seconds"]
WHOLE = 1000  # of a bar, in which its pieces are counted


@dataclass(frozen=True, slots=True)
class Series:
    label: str
    values: tuple[float | None, ...]  # None: nothing is known there, and no line is drawn across
    tone: Literal["served", "first", "second", "third", "fourth"] = "first"
    is_dashed: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened or is in force at that place, with words of its own."""

    at: float
    label: str
    words: str = ""
    moment: datetime | None = None  # where its list says when, in the viewer's zone as the chart does


@dataclass(frozen=True, slots=True)
class Chart:
    """`across`: unix seconds, or lengths of time on a scale of powers."""

    id: str
    title: str  # the fact it shows, as a sentence
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
                {"label": one.label, "values": one.values, "tone": one.tone, "dashed": one.is_dashed}
                for one in self.series
            ],
            "marks": [{"at": one.at, "label": one.label} for one in self.marks],
        }

    @property
    def told(self) -> str:
        """The same in the page: as an attribute, for of what is swapped in HTMX takes out every script, data too."""
        return json.dumps(self.data)

    @property
    def rows(self) -> list[tuple[str, list[str]]]:
        """The table behind it: newest first where it is of time."""
        columns = [one.values for one in self.series]
        found = [
            (self._place(at), [value_text(self.unit, values[number]) for values in columns])
            for number, at in enumerate(self.xs)
        ]
        return found[::-1] if self.across == "time" else found

    def _place(self, at: float) -> str:
        if self.across == "durations":
            return duration(round(at))
        return datetime.fromtimestamp(at, UTC).strftime("%d %b %H:%M")


def value_text(unit: Unit, value: float | None) -> str:
    """A number with its unit; a dash where there is none."""
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
    """ "3.1 GiB": in the unit in which it is at least one."""
    size, names = float(value), ("B", "KiB", "MiB", "GiB", "TiB")
    for name in names:
        if abs(size) < 1024 or name == names[-1]:
            break
        size /= 1024
    return f"{size:,.0f} {name}" if name == "B" else f"{size:,.1f} {name}"


# Shares of a whole


@dataclass(frozen=True, slots=True)
class Piece:
    """`kind` is a class of bar__part: what colour means is the style sheet's."""

    label: str
    amount: str
    share: str
    kind: str
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Bar:
    """All pieces side by side; what is left of the whole stays empty."""

    title: str
    pieces: tuple[Piece, ...]


def bar(
    title: str, parts: Sequence[tuple[str, float, str]], *, unit: Unit = "count", whole: float | None = None
) -> Bar:
    """Of (label, amount, kind); `whole` where that is more than all of them together."""
    total = sum(amount for _, amount, _ in parts) if whole is None else whole
    return Bar(title, tuple(_pieces(parts, total, unit)))


def _pieces(parts: Sequence[tuple[str, float, str]], total: float, unit: Unit) -> Iterable[Piece]:
    x = 0.0
    for label, amount, kind in parts:
        width = WHOLE * amount / total if total else 0.0
        yield Piece(label, value_text(unit, amount), share_text(amount, total), kind, round(x, 2), round(width, 2))
        x += width


def share_text(amount: float, total: float) -> str:
    """To a tenth of a percent, rounded down: 100 is said of all, and not of nearly all."""
    if not total:
        return "–"
    return f"{int(WHOLE * amount / total + 1e-9) / 10:.1f} %"
