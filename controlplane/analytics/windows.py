"""The time that numbers cover, and the stored sums that add up to it. Pure; times are UTC, zones are for display.

A window reaches from the start of a minute to now, including the open minute. Readers cover it with spans: the largest
pieces that are rolled up, smaller ones where those are missing, and rows of minutes elsewhere.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from engine_agent.contracts.usage import MINUTE_SECONDS
from tenants.errors import FieldProblem, InvalidFields

MINUTES: Final = 0  # the level of rows of minutes
LEVELS: Final = (86_400, 3_600, 300)  # of pieces, largest first
FLEET_LEVELS: Final = (*LEVELS, MINUTE_SECONDS)
MOST_POINTS: Final = 2_000
DAY_SECONDS: Final = 86_400
UNITS: Final = {"m": 60, "h": 3_600, "d": DAY_SECONDS}
WindowName = Literal["1h", "24h", "7d", "30d"]
_STEP = re.compile(r"([1-9][0-9]{0,4})([mhd])")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Named:
    """A named window. Data as old as its start may exist only in pieces of `grain` seconds, so it starts with one."""

    seconds: int
    grain: int
    grain_before: int
    step_seconds: int  # the default step of a series


NAMED: Final[dict[str, Named]] = {
    "1h": Named(3_600, 60, 60, 60),
    "24h": Named(DAY_SECONDS, 60, 60, 300),
    "7d": Named(7 * DAY_SECONDS, 300, 3_600, 3_600),
    "30d": Named(30 * DAY_SECONDS, 3_600, DAY_SECONDS, 21_600),
}


@dataclass(frozen=True, slots=True)
class Window:
    """The time from `start` to `end`: including `end` while it `is_open`, and excluding it otherwise."""

    name: str
    start: datetime
    end: datetime
    is_open: bool = True

    @property
    def seconds(self) -> int:
        """The length that its name says. It may reach back further, by less than its grain."""
        return NAMED[self.name].seconds

    @property
    def until(self) -> datetime:
        """The start of the first minute that is not in the window."""
        return floored(self.end, MINUTE_SECONDS) + timedelta(minutes=1) if self.is_open else self.end


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Consecutive pieces of `level` seconds, from `start` to before `end`."""

    level: int
    start: datetime
    end: datetime


def window_of(name: str, now: datetime) -> Window:
    named_window = NAMED[name]
    return Window(name, floored(now - timedelta(seconds=named_window.seconds), named_window.grain), now)


def window_before(window: Window) -> Window:
    """Return the window of the same length that ends where this one starts. It starts at a grain that is still kept."""
    named_window = NAMED[window.name]
    start = floored(window.start - timedelta(seconds=named_window.seconds), named_window.grain_before)
    return Window(window.name, start, window.start, is_open=False)


def levels_of(*, is_fleet: bool, step_seconds: int | None = None) -> tuple[int, ...]:
    """Return the levels, largest first. For a series, only levels with pieces that always lie within one step."""
    levels = FLEET_LEVELS if is_fleet else LEVELS
    return tuple(level for level in levels if step_seconds is None or step_seconds % level == 0)


def cover(window: Window, rolled: Collection[Span], *, is_fleet: bool, step_seconds: int | None = None) -> list[Span]:
    """Return spans without gap or overlap, in order. `rolled`: runs of consecutive pieces of one level."""
    spans: list[Span] = []
    gaps = [(window.start, window.until)]
    for level in levels_of(is_fleet=is_fleet, step_seconds=step_seconds):
        runs = sorted(span for span in rolled if span.level == level)
        covered = [span for gap in gaps for span in _inside(gap, runs)]
        gaps = [remaining for gap in gaps for remaining in _without(gap, covered)]
        spans += covered
    spans += (Span(MINUTES, start, end) for start, end in gaps)
    return sorted(spans, key=lambda span: span.start)


def _inside(gap: tuple[datetime, datetime], runs: Iterable[Span]) -> list[Span]:
    """Return the whole pieces of these runs that lie in the gap. The runs are in order."""
    at, end = gap
    spans: list[Span] = []
    for run in runs:
        first, last = ceiled(max(at, run.start), run.level), floored(min(end, run.end), run.level)
        if first < last:
            spans.append(Span(run.level, first, last))
            at = last
    return spans


def _without(gap: tuple[datetime, datetime], covered: Iterable[Span]) -> list[tuple[datetime, datetime]]:
    """Return what is left of the gap. Spans of `covered` are in order, and lie inside the gap or elsewhere."""
    at, end = gap
    remaining: list[tuple[datetime, datetime]] = []
    for span in covered:
        if at <= span.start < end:
            remaining.append((at, span.start))
            at = span.end
    return [(first, last) for first, last in (*remaining, (at, end)) if first < last]


def step_read(text: str | None, window: Window) -> int:
    """Return the seconds of `5m`, `1h` or `1d`; of None, the window's default."""
    named_window = NAMED[window.name]
    if text is None:
        return named_window.step_seconds
    match = _STEP.fullmatch(text)
    if match is None:
        raise _bad_step(f"{text[:40]!r} is no step such as 5m, 1h or 1d")
    seconds = int(match[1]) * UNITS[match[2]]
    step_check(seconds, window)
    return seconds


def step_check(seconds: int, window: Window) -> None:
    grain = NAMED[window.name].grain
    if seconds < MINUTE_SECONDS or seconds % grain:
        raise _bad_step(f"must be a multiple of {grain // 60} min in a window of {window.name}")
    points = len(step_starts(window, seconds))
    if points > MOST_POINTS:
        raise _bad_step(f"makes {points} points of {window.name}; {MOST_POINTS} are the most")


def step_starts(window: Window, step_seconds: int) -> list[datetime]:
    """Return where a series' points begin: at whole steps in UTC, but the first where the window begins."""
    first = floored(window.start, step_seconds)
    count = -((first - window.until) // timedelta(seconds=step_seconds))
    return [max(window.start, first + timedelta(seconds=number * step_seconds)) for number in range(count)]


def floored(moment: datetime, seconds: int) -> datetime:
    return moment - (moment - _EPOCH) % timedelta(seconds=seconds)


def ceiled(moment: datetime, seconds: int) -> datetime:
    return moment + (_EPOCH - moment) % timedelta(seconds=seconds)


def _bad_step(message: str) -> InvalidFields:
    return InvalidFields([FieldProblem("step", message)])
