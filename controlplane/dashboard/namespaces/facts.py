"""Sentences, numbers and the chart for the front page of a namespace, from its statistics. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.dashboard.frame.charts import Bar, Chart, Mark, Series, bytes_text, share_text
from controlplane.dashboard.frame.states import Stat
from controlplane.dashboard.frame.tiles import LEAST_POINTS, LEAST_REQUESTS, measured, noun, rate
from controlplane.dashboard.frame.words import counted, duration
from controlplane.dashboard.namespaces.reasons import token_bar
from controlplane.dashboard.policies.fields import value_words, what_words
from tenants.policy import Change

MOST_MARKS = 8


@dataclass(frozen=True, slots=True)
class Revised:
    """A revision that changed the policy in force in the namespace."""

    at: datetime
    number: int
    origin: str  # empty for the namespace's own revision
    changes: tuple[Change, ...]
    note: str


def headline(stats: Mapping[str, Any], *, slug: str, window: str) -> str:
    requests = stats["requests"]
    if not requests:
        if not stats["covered_seconds"]:
            return f"Nothing has been measured in {slug} yet"
        return f"Nothing was asked of {slug} in the last {window}"
    if requests < LEAST_REQUESTS or not stats["prompt_tokens"]:
        return f"{requests:,} {noun(requests)} in {slug}: too few for a hit rate"
    return f"Hit rate {rate(stats['cached_tokens'], stats['prompt_tokens'])} %{_change(stats)}"


def _change(stats: Mapping[str, Any]) -> str:
    """Return the change of the hit rate, only if the previous window was counted completely."""
    before = stats["before"]
    if before["hit_ratio"] is None or before["covered_seconds"] < stats["window_seconds"]:
        return ""
    points = (stats["hit_ratio"] - before["hit_ratio"]) * 100
    if abs(points) < LEAST_POINTS:
        return ", as in the window before"
    return f", {'up' if points > 0 else 'down'} {abs(points):.1f} points"


def stats_row(stats: Mapping[str, Any]) -> list[Stat]:
    basis = measured(stats["covered_seconds"], stats["window_seconds"])
    return [
        Stat(
            "Served from cache",
            f"{stats['cached_tokens']:,} tokens",
            f"of {stats['prompt_tokens']:,} prompt tokens in {counted(stats['requests'], 'request')}, {basis}",
        ),
        _first_token(stats["ttft_ms"], basis),
        _saved(stats["saved"], basis),
        _resident(stats["resident_bytes"]),
    ]


def _first_token(ttft: Mapping[str, Any], basis: str) -> Stat:
    label = "First token, hit against miss"
    if ttft["hit_p50"] is None or ttft["miss_p50"] is None:
        return Stat(label, "too few to compare", "wants 20 hits and 20 misses of prompts of like length")
    value = f"{ttft['hit_p50']:,.0f} against {ttft['miss_p50']:,.0f} ms"
    return Stat(label, value, f"medians, prompts of like length, {basis}")


def _saved(saved: Mapping[str, Any], basis: str) -> Stat:
    money = saved["money"]
    waited = "" if saved["seconds"] is None else f"about {saved['seconds']:,.1f} s of waiting, "
    if money is None:
        value = f"{saved['tokens']:,} tokens"
        return Stat("Saved", value, f"{waited}{basis}; no price is set")
    prices = "at example prices" if money["is_example"] else "at your prices"
    return Stat("Saved", f"{money['currency']} {money['rounded']}", f"{prices}; {waited}{basis}")


def _resident(resident: int | None) -> Stat:
    if not resident:
        return Stat("In the cache now", "nothing", "as agents last told")
    return Stat("In the cache now", bytes_text(resident), "on all its agents, as they last told")


def origin_bar(stats: Mapping[str, Any]) -> Bar | None:
    if not stats["prompt_tokens"]:
        return None
    share = share_text(stats["cached_tokens"], stats["prompt_tokens"])
    return token_bar(
        f"{share} of prompt tokens came from the cache", stats["cached_tokens"], stats["missed_tokens_by_reason"]
    )


def rate_chart(series: Mapping[str, Any], revised: Sequence[Revised], *, window: str) -> Chart | None:
    """Return the chart, or None without a point to draw."""
    points = series["points"]
    if all(point["hit_ratio"] is None for point in points):
        return None
    title = _rate_title(points, duration(series["step_seconds"]), window)
    values = tuple(None if point["hit_ratio"] is None else 100 * point["hit_ratio"] for point in points)
    return Chart(
        id="hit-rate",
        title=title,
        unit="percent",
        xs=tuple(point["at"].timestamp() for point in points),
        series=(Series("Hit rate", values, tone="served"),),
        marks=tuple(_mark(revision) for revision in revised[:MOST_MARKS]),
    )


def _rate_title(points: Sequence[Mapping[str, Any]], step: str, window: str) -> str:
    counted_points = [point for point in points if point["hit_ratio"] is not None]
    rates = [(point["hit_ratio"], rate(point["cached_tokens"], point["prompt_tokens"])) for point in counted_points]
    (_, lowest), (_, highest) = min(rates), max(rates)
    if lowest == highest:
        return f"{highest} % in {'the only' if len(rates) == 1 else 'all'} {step} with requests, {window}"
    return f"Between {lowest} % and {highest} % in each {step} with requests, {window}"


def _mark(revision: Revised) -> Mark:
    changes_text = "; ".join(_changed(change) for change in revision.changes) or "nothing in force changed"
    origin_text = f"of {revision.origin}: " if revision.origin else ""
    note = f" “{revision.note}”" if revision.note else ""
    return Mark(revision.at.timestamp(), f"rev {revision.number}", f"{origin_text}{changes_text}.{note}", revision.at)


def _changed(change: Change) -> str:
    name = what_words(change.field, change.model)
    return f"{name}: {value_words(change.field, change.before)} → {value_words(change.field, change.after)}"


def in_force(values: Mapping[str, Any], rollout_note: str = "") -> str:
    """Return the policy in one line. `rollout_note`: on how many engines during a rollout."""
    if not values["prefix_caching"]:
        return f"Prefix caching is off{rollout_note}: nothing is kept and nothing matches."
    maximum_age = values["max_age_seconds"]
    age = f", at most {duration(maximum_age)}" if values["ttl_mode"] == "sliding" and maximum_age is not None else ""
    after = "after last use" if values["ttl_mode"] == "sliding" else "after creation"
    share = f"up to {100 * values['limit_share']:g} % of each pool"
    guarantee = f", {100 * values['reserved_share']:g} % guaranteed" if values["reserved_share"] else ""
    return (
        f"Blocks live {duration(values['ttl_seconds'])} {after}{age} · {values['kv_dtype']} · "
        f"{share}{guarantee}{rollout_note}."
    )


def held_most_first(residences: Sequence[tuple[str, int, datetime]]) -> list[tuple[str, int, datetime]]:
    """Return the agents that cache its blocks: id, bytes, and time of the report."""
    return sorted(
        (residence for residence in residences if residence[1]), key=lambda residence: (-residence[1], residence[0])
    )


def held_title(agents: int) -> str:
    if not agents:
        return "No agent holds anything of it now"
    return f"{counted(agents, 'agent')} {'holds' if agents == 1 else 'hold'} blocks of it"
