"""What a dashboard is made of, and the few shapes that its queries have. Pure.

Time series are rates over `$__rate_interval`, which Grafana makes of how often Prometheus asks and how far apart the
points of a picture are; a single number is of the time that is looked at, `$__range`, or of now.
"""

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["timeseries", "stat"]
GREEN, RED = "green", "red"
COLUMNS: Final = 24

# What people chose at the top of the page, as selectors of the three kinds of metrics that know of it.
ENGINE: Final = 'model=~"$model",instance=~"$engine"'
TENANT: Final = f'{ENGINE},organisation=~"$organisation"'
GATEWAY: Final = 'instance=~"$gateway"'


@dataclass(frozen=True, slots=True)
class Query:
    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """`unit` as Grafana names it. `bad_from`: where a number is no longer as it should be, and then red."""

    title: str
    about: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: Kind = "timeseries"
    least: float | None = 0
    most: float | None = None
    width: int = 8
    height: int = 8
    is_stacked: bool = False
    bad_from: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


def series(expression: str, legend: str = "", *more: str) -> tuple[Query, ...]:
    """Expressions with their legends, in turns."""
    words = (expression, legend, *more)
    return tuple(Query(*pair) for pair in zip(words[::2], words[1::2], strict=True))


def stat(title: str, about: str, expression: str, unit: str = "short", *, bad_from: float | None = None) -> Panel:
    """One number, six of which make a line."""
    return Panel(title, about, series(expression), unit, "stat", width=4, height=4, bad_from=bad_from)


def rate(metric: str, selector: str, *by: str) -> str:
    """A second, added up; by these labels, or over all."""
    return f"sum{_by(by)} (rate({metric}{{{selector}}}[$__rate_interval]))"


def ratio(part: str, whole: str, selector: str, *by: str) -> str:
    return f"{rate(part, selector, *by)} / {rate(whole, selector, *by)}"


def quantile(share: float, histogram: str, selector: str, *by: str) -> str:
    return f"histogram_quantile({share:g}, {rate(f'{histogram}_bucket', selector, 'le', *by)})"


def quantiles(histogram: str, selector: str, *by: str) -> tuple[Query, ...]:
    """The median and the 95th percentile."""
    of = "".join(f"{{{{{label}}}}} " for label in by)
    return tuple(Query(quantile(share, histogram, selector, *by), f"{of}p{share * 100:.0f}") for share in (0.5, 0.95))


def _by(labels: tuple[str, ...]) -> str:
    return f" by ({', '.join(labels)})" if labels else ""
