"""Charts of an agent's hits, requests and pool over the last hour or day. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from controlplane.analytics.agents import Hits, Step
from controlplane.dashboard.frame.charts import Chart, Series
from controlplane.dashboard.frame.tiles import rate

PoolMinutes = Sequence[tuple[datetime, int, int]]  # minute, capacity, used


@dataclass(frozen=True, slots=True)
class Window:
    name: str
    words: str
    lasts: timedelta
    step: timedelta
    step_words: str


WINDOWS = {
    "1h": Window("1h", "1 h", timedelta(hours=1), timedelta(minutes=2), "2 min"),
    "24h": Window("24h", "24 h", timedelta(hours=24), timedelta(minutes=30), "30 min"),
}


def window_asked(name: str) -> Window:
    return WINDOWS.get(name, WINDOWS["1h"])


def charts(steps: Sequence[Step], pool: PoolMinutes, window: Window, *, now: datetime) -> list[Chart]:
    """Return the charts for which data is stored."""
    starts = _starts(window, now)
    drawn_charts = list[Chart]()
    if steps:
        drawn_charts += _asked(steps, starts, window)
    if pool:
        drawn_charts.append(_pool(pool, starts, window))
    return drawn_charts


def _starts(window: Window, now: datetime) -> list[datetime]:
    size = window.step.total_seconds()
    first_start = (now - window.lasts).timestamp() // size * size
    count = int((now.timestamp() - first_start) // size) + 1
    return [datetime.fromtimestamp(first_start + size * number, now.tzinfo) for number in range(count)]


def _asked(steps: Sequence[Step], starts: Sequence[datetime], window: Window) -> list[Chart]:
    by_start = {step.start: step.hits for step in steps}
    hits = [by_start.get(at, Hits()) for at in starts]
    total = Hits(
        *(
            sum(values)
            for values in zip(
                *((step_hits.requests, step_hits.prompt_tokens, step_hits.cached_tokens) for step_hits in hits),
                strict=True,
            )
        )
    )
    xs = tuple(at.timestamp() for at in starts)
    ratios = tuple(None if step_hits.ratio is None else 100 * step_hits.ratio for step_hits in hits)
    share = f"{rate(total.cached_tokens, total.prompt_tokens)} %" if total.prompt_tokens else "not known"
    title = f"Hit rate {share} over {window.words}, by steps of {window.step_words}"
    answered = f"{total.requests:,} request{'' if total.requests == 1 else 's'}"
    requests_title = f"{answered} answered over {window.words}, by steps of {window.step_words}"
    return [
        Chart("agent-hits", title, "percent", xs, (Series("Hit rate", ratios, "served"),)),
        Chart(
            "agent-requests",
            requests_title,
            "count",
            xs,
            (Series("Requests", tuple(float(step_hits.requests) for step_hits in hits)),),
        ),
    ]


def _pool(pool: PoolMinutes, starts: Sequence[datetime], window: Window) -> Chart:
    """Return the chart of the highest pool use in each step."""
    size, first_start = window.step.total_seconds(), starts[0].timestamp()
    peak_percents: list[float | None] = [None] * len(starts)
    for at, capacity, used in pool:
        number = int((at.timestamp() - first_start) // size)
        if capacity and 0 <= number < len(peak_percents):
            peak_percents[number] = max(peak_percents[number] or 0.0, 100 * used / capacity)
    peak = max((percent for percent in peak_percents if percent is not None), default=0.0)
    title = f"The pool was at most {peak:.0f} % full over {window.words}, by steps of {window.step_words}"
    xs = tuple(at.timestamp() for at in starts)
    return Chart("agent-pool", title, "percent", xs, (Series("Pool used, at most", tuple(peak_percents)),))
