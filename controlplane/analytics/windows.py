"""Which time numbers are of, and which stored sums add up to it. Pure; times are UTC here and zones are for display.

A window reaches from the start of a minute to now, the open minute included. Whoever reads it covers it with spans:
the largest pieces that are rolled, what is below those where they are not, and rows of minutes where nothing is.
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
    """`grain`: what is as old as its start may be kept in pieces of so many seconds alone; so it starts at one."""

    seconds: int
    grain: int
    grain_before: int
    step_seconds: int  # of a series that does not say


NAMED: Final[dict[str, Named]] = {
    "1h": Named(3_600, 60, 60, 60),
    "24h": Named(DAY_SECONDS, 60, 60, 300),
    "7d": Named(7 * DAY_SECONDS, 300, 3_600, 3_600),
    "30d": Named(30 * DAY_SECONDS, 3_600, DAY_SECONDS, 21_600),
}


@dataclass(frozen=True, slots=True)
class Window:
    """What began at `start` or later and, while it `is_open`, by `end`; else before that."""

    name: str
    start: datetime
    end: datetime
    is_open: bool = True

    @property
    def seconds(self) -> int:
        """As it is called: what it reaches back beyond that is less than its grain."""
        return NAMED[self.name].seconds

    @property
    def until(self) -> datetime:
        """Where the first minute begins that is not in it."""
        return floored(self.end, MINUTE_SECONDS) + timedelta(minutes=1) if self.is_open else self.end


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """From `start` to before `end`, in pieces of `level` seconds."""

    level: int
    start: datetime
    end: datetime


def window_of(name: str, now: datetime) -> Window:
    named = NAMED[name]
    return Window(name, floored(now - timedelta(seconds=named.seconds), named.grain), now)


def window_before(window: Window) -> Window:
    """As long, and over where the other begins. Days and months of it begin where there still are pieces."""
    named = NAMED[window.name]
    start = floored(window.start - timedelta(seconds=named.seconds), named.grain_before)
    return Window(window.name, start, window.start, is_open=False)


def levels_of(*, is_fleet: bool, step_seconds: int | None = None) -> tuple[int, ...]:
    """Largest first. Of a series only those that lie in one step, wherever they begin."""
    levels = FLEET_LEVELS if is_fleet else LEVELS
    return tuple(one for one in levels if step_seconds is None or step_seconds % one == 0)


def cover(window: Window, rolled: Collection[Span], *, is_fleet: bool, step_seconds: int | None = None) -> list[Span]:
    """Spans without gap or overlap, in order. `rolled`: runs of pieces, each as far as its level goes on."""
    spans: list[Span] = []
    gaps = [(window.start, window.until)]
    for level in levels_of(is_fleet=is_fleet, step_seconds=step_seconds):
        runs = sorted(one for one in rolled if one.level == level)
        taken = [found for gap in gaps for found in _inside(gap, runs)]
        gaps = [left for gap in gaps for left in _without(gap, taken)]
        spans += taken
    spans += (Span(MINUTES, start, end) for start, end in gaps)
    return sorted(spans, key=lambda one: one.start)


def _inside(gap: tuple[datetime, datetime], runs: Iterable[Span]) -> list[Span]:
    """What whole pieces of these runs, which are in order, cover of a gap."""
    at, end = gap
    found: list[Span] = []
    for run in runs:
        first, last = ceiled(max(at, run.start), run.level), floored(min(end, run.end), run.level)
        if first < last:
            found.append(Span(run.level, first, last))
            at = last
    return found


def _without(gap: tuple[datetime, datetime], taken: Iterable[Span]) -> list[tuple[datetime, datetime]]:
    """What is left of a gap; what is taken is in order, and inside it or elsewhere."""
    at, end = gap
    left: list[tuple[datetime, datetime]] = []
    for one in taken:
        if at <= one.start < end:
            left.append((at, one.start))
            at = one.end
    return [(first, last) for first, last in (*left, (at, end)) if first < last]


def step_read(text: str | None, window: Window) -> int:
    """Seconds of `5m`, `1h` or `1d`; of nothing, what suits the window."""
    named = NAMED[window.name]
    if text is None:
        return named.step_seconds
    found = _STEP.fullmatch(text)
    if found is None:
        raise _bad_step(f"{text[:40]!r} is no step such as 5m, 1h or 1d")
    seconds = int(found[1]) * UNITS[found[2]]
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
    """Where the points of a series begin: at whole steps of UTC, the first where the window does."""
    first = floored(window.start, step_seconds)
    count = -((first - window.until) // timedelta(seconds=step_seconds))
    return [max(window.start, first + timedelta(seconds=number * step_seconds)) for number in range(count)]


def floored(moment: datetime, seconds: int) -> datetime:
    return moment - (moment - _EPOCH) % timedelta(seconds=seconds)


def ceiled(moment: datetime, seconds: int) -> datetime:
    return moment + (_EPOCH - moment) % timedelta(seconds=seconds)


def _bad_step(message: str) -> InvalidFields:
    return InvalidFields([FieldProblem("step", message)])
