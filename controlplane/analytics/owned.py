"""The last 24 hours by organisation or by namespace, all at one moment, for lists of any length."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from controlplane.analytics import selectors
from controlplane.analytics.selectors import NOTHING, Counts
from controlplane.analytics.stats import HEADLINE, LIVE_WINDOW, covered_seconds
from controlplane.analytics.sums import Scope
from controlplane.analytics.windows import window_of
from tenants.consistent_reads import consistent_read

HEADLINE_NOTHING: Final[Counts] = {name: NOTHING[name] for name in HEADLINE}


@dataclass(frozen=True, slots=True)
class Owned:
    """Counts by the owner's id; a missing owner has none. `resident`: bytes in the cache now."""

    as_of: datetime
    window_seconds: int
    covered_seconds: int
    counts: Mapping[int, Counts]
    resident: Mapping[int, int]

    def of(self, owner: int) -> Counts:
        return self.counts.get(owner, HEADLINE_NOTHING)

    @property
    def total(self) -> Counts:
        return {name: sum(counts[name] for counts in self.counts.values()) for name in HEADLINE}


def by_organisation(only: Collection[int] | None = None, *, now: datetime | None = None) -> Owned:
    """Return the counts of all organisations or of some, in a constant number of queries."""
    scope = Scope(None, organisations=None if only is None else frozenset(only))
    with consistent_read():
        window = window_of(LIVE_WINDOW, now or selectors.database_now())
        counts = selectors.totals_by(scope, window, by="organisation", columns=HEADLINE)
        first = selectors.first_minute(Scope(None), now=window.end)
        return Owned(window.end, window.seconds, covered_seconds(window, first), counts, {})


def by_namespace(organisation: int, *, now: datetime | None = None) -> Owned:
    """Return the counts of one organisation's namespaces, also deleted ones: together they are the organisation's."""
    scope = Scope(organisation)
    with consistent_read():
        window = window_of(LIVE_WINDOW, now or selectors.database_now())
        counts = selectors.totals_by(scope, window, by="namespace", columns=HEADLINE)
        first = selectors.first_minute(scope, now=window.end)
        resident = selectors.residence_by(scope, by="namespace")
        return Owned(window.end, window.seconds, covered_seconds(window, first), counts, resident)
