"""Read the statistics of one scope and window in one snapshot. `facts` formats them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from controlplane.analytics import selectors
from controlplane.analytics.selectors import Scope
from controlplane.analytics.stats import HEADLINE, hit_ratio, series_answer, stats_answer
from controlplane.analytics.windows import floored, window_before, window_of
from tenants.consistent_reads import consistent_read


@dataclass(frozen=True, slots=True)
class Read:
    """The statistics, for the fleet without its organisations. `before`: the previous window in percent, by point."""

    stats: Mapping[str, Any]
    series: Mapping[str, Any]
    before: Sequence[float | None]


def read(scope: Scope, window: str) -> Read:
    with consistent_read():
        now = selectors.database_now()
        stats = stats_answer(scope, window, now=now, by_owner=not scope.is_fleet)
        series = series_answer(scope, window, None, now=now, covered=stats["covered_seconds"])
        earlier = window_before(window_of(window, now))
        step = series["step_seconds"]
        points = selectors.series(scope, earlier, step, columns=HEADLINE) if stats["before"]["requests"] else ()
        ratios = {floored(point.start, step): hit_ratio(point.counts) for point in points}
        shift = timedelta(seconds=earlier.seconds)
        previous_ratios = [ratios.get(floored(point["at"], step) - shift) for point in series["points"]]
        return Read(stats, series, [None if ratio is None else round(100 * ratio, 2) for ratio in previous_ratios])
