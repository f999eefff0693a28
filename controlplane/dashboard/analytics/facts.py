"""The statistics of a window: hit rate over time, sources of prompt tokens, and parts. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.dashboard.frame.charts import Bar, Chart, Mark, Series, share_text
from controlplane.dashboard.frame.tiles import LEAST_POINTS, LEAST_REQUESTS, measured, noun, rate
from controlplane.dashboard.frame.words import counted, duration
from controlplane.dashboard.namespaces.reasons import misses_headline, token_bar

WINDOWS = {"1h": "1 h", "24h": "24 h", "7d": "7 d", "30d": "30 d"}
USUAL = "24h"
MOST_ROWS = 50


@dataclass(frozen=True, slots=True)
class Rows:
    """Namespaces, models or keys, each with its name; the name is empty if unknown."""

    title: str
    rows: Sequence[tuple[str, Mapping[str, Any]]]
    unshown: int


@dataclass(frozen=True, slots=True)
class Rate:
    """The hit rate over a window; there is no chart before anything is counted."""

    title: str
    note: str
    chart: Chart | None


def window_asked(window: str | None) -> str:
    return window if window in WINDOWS else USUAL


def basis_of(stats: Mapping[str, Any]) -> str:
    return measured(stats["covered_seconds"], stats["window_seconds"])


# The curve


def rate_of(
    stats: Mapping[str, Any],
    series: Mapping[str, Any],
    before: Sequence[float | None],
    marks: Sequence[Mark],
    *,
    window: str,
) -> Rate:
    """Return the hit rate over time. `before` is the previous window in percent, point by point."""
    points = series["points"]
    values = tuple(None if point["hit_ratio"] is None else round(100 * point["hit_ratio"], 2) for point in points)
    note = f"every {duration(series['step_seconds'])}, cached over prompt tokens"
    known_ratios = [ratio for ratio in values if ratio is not None]
    title = rate_title(stats, known_ratios, window=window)
    if not known_ratios:
        return Rate(title, note, None)
    lines = [Series(f"Last {WINDOWS[window]}", values, tone="served")]
    if any(ratio is not None for ratio in before):
        lines.append(Series(f"The {WINDOWS[window]} before", tuple(before), tone="first", is_dashed=True))
    chart = Chart(
        id="hit-rate",
        title=title,
        unit="percent",
        xs=tuple(point["at"].timestamp() for point in points),
        series=tuple(lines),
        marks=tuple(marks),
    )
    return Rate(title, note, chart)


def rate_title(stats: Mapping[str, Any], known_ratios: Sequence[float], *, window: str) -> str:
    """Return the chart's title: for 24 h the range, because the live rate is shown beside it."""
    requests, basis = stats["requests"], basis_of(stats)
    if not requests:
        return f"Nothing was asked in the last {WINDOWS[window]}"
    if requests < LEAST_REQUESTS or not stats["prompt_tokens"]:
        return f"{requests:,} {noun(requests)}: too few to say a hit rate of {WINDOWS[window]}"
    if window == USUAL:
        return f"Between {min(known_ratios):.1f} and {max(known_ratios):.1f} % in {basis}{_change(stats, window)}"
    return f"{rate(stats['cached_tokens'], stats['prompt_tokens'])} % from the cache in {basis}{_change(stats, window)}"


def _change(stats: Mapping[str, Any], window: str) -> str:
    """Return the change of the hit rate, only if the previous window was counted completely."""
    before = stats["before"]
    if before["hit_ratio"] is None or before["covered_seconds"] < stats["window_seconds"]:
        return ""
    points = (stats["hit_ratio"] - before["hit_ratio"]) * 100
    if abs(points) < LEAST_POINTS:
        return f", as in the {WINDOWS[window]} before"
    return f", {abs(points):.1f} points {'more' if points > 0 else 'less'} than in the {WINDOWS[window]} before"


# Sources of prompt tokens


def tokens_title(stats: Mapping[str, Any], *, window: str) -> str:
    return misses_headline(stats["missed_tokens_by_reason"], stats["prompt_tokens"], window=WINDOWS[window])


def fleet_tokens_title(stats: Mapping[str, Any], *, window: str) -> str:
    """Return the title for operators, without causes: one customer's own traffic is another's pressure."""
    if not stats["prompt_tokens"]:
        return f"Nothing was asked in the last {WINDOWS[window]}"
    missed_tokens = sum(stats["missed_tokens_by_reason"].values())
    return (
        f"{share_text(missed_tokens, stats['prompt_tokens'])} of prompt tokens had to be computed in {basis_of(stats)}"
    )


def tokens_bar(stats: Mapping[str, Any], title: str) -> Bar | None:
    if not stats["prompt_tokens"]:
        return None
    return token_bar(title, stats["cached_tokens"], stats["missed_tokens_by_reason"])


# By namespace, model and key


def rows_of(parts: Sequence[Mapping[str, Any]], kind: str, *, nothing: str, title: str | None = None) -> Rows:
    """Return the largest parts, sorted by name so that rows do not move; deleted ones last."""
    largest = sorted(parts[:MOST_ROWS], key=lambda part: (part.get("is_deleted", False), part[kind] or ""))
    rows = [(part[kind] or "", part) for part in largest]
    return Rows(title or _rows_title(parts, kind, nothing), rows, len(parts) - len(largest))


def _rows_title(parts: Sequence[Mapping[str, Any]], kind: str, nothing: str) -> str:
    """Return a title that names the part with most tokens."""
    total = sum(part["prompt_tokens"] for part in parts)
    if not total:
        return nothing
    largest = max(parts, key=lambda part: part["prompt_tokens"])
    if len(parts) == 1:
        return f"All prompt tokens are of {largest[kind] or 'one that is gone'}"
    share = 100 * largest["prompt_tokens"] // total
    return f"{largest[kind] or 'One that is gone'} has {share} % of the prompt tokens of {counted(len(parts), kind)}"
