"""Statistics of one scope over one window, as the API returns them and as sockets send them."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

from controlplane.analytics import selectors
from controlplane.analytics.by_key import parts_by_key
from controlplane.analytics.columns import BLOCK_COLUMNS, MISSED_COLUMN
from controlplane.analytics.money import saved_money
from controlplane.analytics.percentiles import Spread, like_for_like, saved_seconds
from controlplane.analytics.prices import prices_now
from controlplane.analytics.selectors import NOTHING, Counts
from controlplane.analytics.sums import Scope
from controlplane.analytics.windows import Span, Window, floored, step_read, window_before, window_of
from engine_agent.contracts.usage import Metric
from tenants.consistent_reads import consistent_read

HEADLINE: Final = ("requests", "prompt_tokens", "cached_tokens", "generated_tokens")
OUTCOMES: Final = ("failed", "cancelled", "cut_off", "retried")
SHARES: Final = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
LIVE_WINDOW: Final = "24h"
Owner = Literal["namespace", "organisation"]


def stats_answer(
    scope: Scope, window_name: str, *, now: datetime | None = None, by_owner: bool = True, by_key: bool = True
) -> dict[str, Any]:
    """Return the statistics at one moment: the database's now, unless `now` is given.

    `by_owner`: include the parts by owner; the fleet has one for each organisation. `by_key`: include the parts by key,
    which the fleet never has.
    """
    with consistent_read():
        window = window_of(window_name, now or selectors.database_now())
        spans = selectors.spans_of(window, is_fleet=scope.is_fleet)
        days = selectors.window_by_day_and_model(scope, spans)
        total = selectors.added(days.values())
        cached = {key: counts["cached_tokens"] for key, counts in days.items() if counts["cached_tokens"]}
        spread = Spread(selectors.window_times(scope, spans))
        compared = spread.compared()
        hit_p50, miss_p50 = like_for_like(compared)
        first = selectors.first_minute(scope, now=window.end)
        return {
            **_times_of(window),
            "as_of": window.end,
            "covered_seconds": covered_seconds(window, first),
            **headline(total),
            "outcomes": {name: total[name] for name in OUTCOMES},
            "ttft_ms": {**_percentiles(spread, "ttft"), "hit_p50": hit_p50, "miss_p50": miss_p50},
            "duration_ms": _percentiles(spread, "duration"),
            "ttft_by_length": [comparison.document() for comparison in compared],
            "saved": {
                "tokens": total["cached_tokens"],
                "seconds": saved_seconds(compared),
                "money": saved_money(cached, prices_now()),
            },
            "missed_tokens_by_reason": {reason: total[column] for reason, column in MISSED_COLUMN.items()},
            "blocks_left": {name.removesuffix("_blocks"): total[name] for name in BLOCK_COLUMNS},
            **(_by_owner(scope, window, spans) if by_owner else {}),
            "by_model": _by_model(days),
            **({"by_key": _by_key(scope, spans, total)} if by_key and not scope.is_fleet else {}),
            "before": _before(scope, window_before(window), first),
        }


def series_answer(
    scope: Scope, window_name: str, step: str | None, *, now: datetime | None = None, covered: int | None = None
) -> dict[str, Any]:
    """Return a series. Its points add up to `stats` of the same window and moment.

    `covered`: the seconds covered according to `stats`, if the caller has them.
    """
    with consistent_read():
        window = window_of(window_name, now or selectors.database_now())
        step_seconds = step_read(step, window)
        points = selectors.series(scope, window, step_seconds, columns=HEADLINE)
        return {
            **_times_of(window),
            "as_of": window.end,
            "covered_seconds": _covered(scope, window) if covered is None else covered,
            "step_seconds": step_seconds,
            "points": [{"at": floored(point.start, step_seconds), **headline(point.counts)} for point in points],
        }


def live_message(group: str, *, now: datetime | None = None) -> dict[str, Any]:
    """Return the message for sockets of `fleet` or `org/<id>`: a page's headline numbers, ready for JSON."""
    scope = scope_of_group(group)
    with consistent_read():
        window = window_of(LIVE_WINDOW, now or selectors.database_now())
        counts = selectors.totals_counts(scope, window, columns=HEADLINE)
        earlier = window_before(window)
        before = selectors.totals_counts(scope, earlier, columns=HEADLINE)
        first = selectors.first_minute(scope, now=window.end)
        return _told(
            window.end,
            window.seconds,
            counts,
            covered=(covered_seconds(window, first), covered_seconds(earlier, first)),
            ratio_before=hit_ratio(before),
        )


def live_message_of(stats: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same message from `stats_answer` of the live window, without another query."""
    before = stats["before"]
    return _told(
        stats["as_of"],
        stats["window_seconds"],
        stats,
        covered=(stats["covered_seconds"], before["covered_seconds"]),
        ratio_before=before["hit_ratio"],
    )


def _told(
    as_of: datetime,
    window_seconds: int,
    counts: Mapping[str, Any],
    *,
    covered: tuple[int, int],
    ratio_before: float | None,
) -> dict[str, Any]:
    """Return the message. `covered`: the seconds covered of the window, and of the one before it."""
    return {
        "type": "stats",
        "seq": int(as_of.timestamp() * 1_000),
        "as_of": as_of.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "window_seconds": window_seconds,
        "covered_seconds": covered[0],
        "covered_seconds_before": covered[1],
        "requests": counts["requests"],
        "prompt_tokens": counts["prompt_tokens"],
        "cached_tokens": counts["cached_tokens"],
        "hit_ratio": hit_ratio(counts),
        "hit_ratio_before": ratio_before,
        "saved_tokens": counts["cached_tokens"],
    }


def scope_of_group(group: str) -> Scope:
    kind, _, organisation = group.partition("/")
    return Scope(None) if kind == "fleet" else Scope(int(organisation))


def hit_ratio(counts: Counts) -> float | None:
    return counts["cached_tokens"] / counts["prompt_tokens"] if counts["prompt_tokens"] else None


def headline(counts: Counts) -> dict[str, Any]:
    return {**{name: counts[name] for name in HEADLINE}, "hit_ratio": hit_ratio(counts)}


def _covered(scope: Scope, window: Window) -> int:
    return covered_seconds(window, selectors.first_minute(scope, now=window.end))


def covered_seconds(window: Window, first: datetime | None) -> int:
    """Return how much of the window can have numbers: the time since the first number."""
    if first is None:
        return 0
    return max(0, min(window.seconds, int((window.end - first).total_seconds())))


def _times_of(window: Window) -> dict[str, Any]:
    return {"window_seconds": window.seconds, "from": window.start, "to": window.end}


def _before(scope: Scope, window: Window, first: datetime | None) -> dict[str, Any]:
    """Return the earlier window and how much of it is covered.

    It is comparable only if all of it is: the first minutes of a service say little about its days.
    """
    counts = selectors.totals_counts(scope, window, columns=HEADLINE)
    covered = covered_seconds(window, first)
    return {"from": window.start, "to": window.end, "covered_seconds": covered, **headline(counts)}


def _percentiles(spread: Spread, metric: Metric) -> dict[str, float | None]:
    return {name: spread.percentile(share, metric=metric) for name, share in SHARES.items()}


def _by_owner(scope: Scope, window: Window, spans: Sequence[Span]) -> dict[str, Any]:
    """Return the fleet by organisation, or an organisation by namespace, and what each has in the cache now."""
    by: Owner = "organisation" if scope.is_fleet else "namespace"
    owner_spans = None if scope.is_fleet else spans
    counted = selectors.totals_by(scope, window, by=by, columns=HEADLINE, spans=owner_spans)
    resident = selectors.residence_by(scope, by=by) if scope.model is None else None
    ids = {owner for owner, counts in counted.items() if any(counts.values())} | {*(resident or ())}
    names = selectors.names_of(by, ids)
    rows = [
        {
            by: names[owner].slug if owner in names else None,
            "is_deleted": owner not in names or names[owner].is_deleted,
            **headline(counted.get(owner, NOTHING)),
            "resident_bytes": None if resident is None else resident.get(owner, 0),
        }
        for owner in ids
    ]
    total = None if resident is None else sum(resident.values())
    return {"resident_bytes": total, f"by_{by}": _largest_first(rows, by)}


def _by_key(scope: Scope, spans: Sequence[Span], whole: Counts) -> list[dict[str, Any]]:
    """Return the parts by key, which together are the whole. A last part without id has what is left over."""
    return [
        {
            "id": key,
            "name": api_key and api_key.name,
            "prefix": api_key and api_key.prefix,
            "is_revoked": api_key is not None and api_key.is_revoked,
            **headline(counts),
        }
        for key, api_key, counts in parts_by_key(scope, spans, whole)
    ]


def _by_model(days: Mapping[tuple[Any, str], Counts]) -> list[dict[str, Any]]:
    models: dict[str, dict[str, int]] = {}
    for (_, model), counts in days.items():
        added = models.setdefault(model, dict.fromkeys(HEADLINE, 0))
        for name in HEADLINE:
            added[name] += counts[name]
    rows = [{"model": model, **headline(counts)} for model, counts in models.items() if any(counts.values())]
    return _largest_first(rows, "model")


def _largest_first(rows: Iterable[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (-row["prompt_tokens"], row[name] or ""))
