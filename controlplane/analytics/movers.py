"""The organisations with the largest changes of hit rate: the last 24 hours compared with the 24 before.

A constant number of queries adds up all that is stored of two days, for pages that are open all day. So each process
queries once a minute, and the page shows the time of the numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from time import monotonic
from typing import Final

from controlplane.analytics import selectors
from controlplane.analytics.selectors import Counts
from controlplane.analytics.stats import HEADLINE, LIVE_WINDOW, covered_seconds
from controlplane.analytics.sums import Scope
from controlplane.analytics.windows import window_before, window_of
from tenants.consistent_reads import consistent_read

LEAST_REQUESTS: Final = 20  # in each window: fewer say nothing about a rate
MOST: Final = 8
REMEMBERED_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Moved:
    """The two windows of one organisation."""

    slug: str
    now: Counts
    before: Counts

    @property
    def points(self) -> float:
        return _points(self.now, self.before)


@dataclass(frozen=True, slots=True)
class Movement:
    """The largest changes: `rows`, out of `compared` organisations. Empty until the older window is covered whole."""

    as_of: datetime
    covered_seconds: int
    window_seconds: int
    compared: int
    rows: tuple[Moved, ...]


def movement(*, now: datetime | None = None) -> Movement:
    fleet = Scope(None)
    with consistent_read():
        window = window_of(LIVE_WINDOW, now or selectors.database_now())
        earlier = window_before(window)
        covered = covered_seconds(earlier, selectors.first_minute(fleet, now=window.end))
        if covered < earlier.seconds:
            return Movement(window.end, covered, earlier.seconds, 0, ())
        counts = selectors.totals_by(fleet, window, by="organisation", columns=HEADLINE)
        before = selectors.totals_by(fleet, earlier, by="organisation", columns=HEADLINE)
        compared = [
            organisation
            for organisation in counts
            if organisation in before and _is_enough(counts[organisation]) and _is_enough(before[organisation])
        ]
        compared.sort(
            key=lambda organisation: (
                -abs(_points(counts[organisation], before[organisation])),
                -counts[organisation]["prompt_tokens"],
                organisation,
            )
        )
        names = selectors.names_of("organisation", compared[:MOST])
        existing = [
            organisation
            for organisation in compared[:MOST]
            if organisation in names and not names[organisation].is_deleted
        ]
        rows = tuple(
            Moved(names[organisation].slug, counts[organisation], before[organisation]) for organisation in existing
        )
        return Movement(window.end, covered, earlier.seconds, len(compared), rows)


class Remembered:
    """A cache of the newest movement, for a minute. Callers wait while it is computed again, and do not query too."""

    def __init__(self) -> None:
        self._asking = Lock()
        self._found: tuple[float, Movement] | None = None

    def movement(self) -> Movement:
        with self._asking:
            if self._found is None or monotonic() - self._found[0] >= REMEMBERED_SECONDS:
                self._found = (monotonic(), movement())
            return self._found[1]

    def forget(self) -> None:
        self._found = None


recent: Final = Remembered()


def _is_enough(counts: Counts) -> bool:
    return counts["requests"] >= LEAST_REQUESTS and counts["prompt_tokens"] > 0


def _points(now: Mapping[str, int], before: Mapping[str, int]) -> float:
    return 100 * (now["cached_tokens"] / now["prompt_tokens"] - before["cached_tokens"] / before["prompt_tokens"])
