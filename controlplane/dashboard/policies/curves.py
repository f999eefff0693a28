"""The forecast hit rate for other TTLs, as a curve and sentences; without a curve if too little is known. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controlplane.dashboard.frame.charts import Chart, Mark, Series, bytes_text
from controlplane.dashboard.frame.words import counted, duration
from controlplane.dashboard.policies.effect_words import percent_text
from engine_agent.contracts.policy_fields import LABELS

WORTH_SAYING = 1.0  # points


@dataclass(frozen=True, slots=True)
class Curve:
    title: str
    basis: str
    facts: tuple[str, ...] = ()
    chart: Chart | None = None


def curve(forecast: Mapping[str, Any], problem: str = "") -> Curve:
    """Return the curve for what_if(), where `then` is the form's value. `problem`: the form's error."""
    if problem:
        return Curve("What another time to live would bring", problem)
    if not forecast["is_enough"]:
        return Curve("Too little traffic to foretell another time to live", f"{forecast['why']}.")
    now, then, points = forecast["now"], forecast["then"], forecast["curve"]
    title = _title(now, then, points)
    return Curve(
        title, _basis(forecast), tuple(_facts(now, then, forecast["agents"])), _chart(title, now, then, points)
    )


def _title(now: Mapping[str, Any], then: Mapping[str, Any], points: list[Mapping[str, Any]]) -> str:
    hits = f"{percent_text(now['hit_ratio'])} of prompt tokens"
    if _differs(now, then):
        gain = 100 * (then["hit_ratio"] - now["hit_ratio"])
        proposed_ttl = f"{duration(then['ttl_seconds'])}{_mode(now, then)}"
        return f"{proposed_ttl} would hit {percent_text(then['hit_ratio'])}, {_points(gain)}"
    best = max(points, key=lambda point: point["hit_ratio"], default=None)
    gain = 0.0 if best is None else 100 * (best["hit_ratio"] - now["hit_ratio"])
    if best is None or gain < WORTH_SAYING:
        return f"{duration(now['ttl_seconds'])} hits {hits}; no other time to live would hit a point more"
    shortest = next(point for point in points if 100 * (best["hit_ratio"] - point["hit_ratio"]) < WORTH_SAYING)
    gain = 100 * (shortest["hit_ratio"] - now["hit_ratio"])
    return f"{duration(now['ttl_seconds'])} hits {hits}; {duration(shortest['ttl_seconds'])} would hit {_points(gain)}"


def _differs(now: Mapping[str, Any], then: Mapping[str, Any]) -> bool:
    return any(now[name] != then[name] for name in ("ttl_seconds", "ttl_mode", "limit_share"))


def _mode(now: Mapping[str, Any], then: Mapping[str, Any]) -> str:
    return "" if now["ttl_mode"] == then["ttl_mode"] else f", {then['ttl_mode']},"


def _points(gain: float) -> str:
    size = f"{abs(gain):.1f}"
    if size == "0.0":
        return "as many as now"
    return f"{size} {'point' if size == '1.0' else 'points'} {'more' if gain > 0 else 'fewer'}"


def _facts(now: Mapping[str, Any], then: Mapping[str, Any], agents: int) -> list[str]:
    where = f"together on {counted(agents, 'engine')}" if agents > 1 else "on its engine"
    current_memory = f"Blocks hold {bytes_text(now['resident_bytes'])} {where}"
    if not _differs(now, then):
        return [f"{current_memory}."]
    extra = then["hit_tokens_per_day"] - now["hit_tokens_per_day"]
    return [
        f"{current_memory}; they would hold {bytes_text(then['resident_bytes'])}.",
        f"{abs(extra):,} {'more' if extra >= 0 else 'fewer'} prompt tokens a day would be served from cache.",
    ]


def _basis(forecast: Mapping[str, Any]) -> str:
    measured = forecast["measured_hit_ratio"]
    counted_words = (
        ""
        if measured is None
        else f" Counted over the last {duration(_minutes(forecast['covered_seconds']))}: {percent_text(measured)}."
    )
    error = 100 * forecast["then"]["hit_ratio_error"]
    return (
        f"Foretold from this namespace’s own reuse, {forecast['prompt_tokens']:,} prompt tokens seen by "
        f"{counted(forecast['agents'], 'engine')}; it may be off by {error:.1f} points.{counted_words}"
    )


def _minutes(seconds: int) -> int:
    return seconds - seconds % 60 if seconds >= 60 else seconds


def _chart(title: str, now: Mapping[str, Any], then: Mapping[str, Any], points: list[Mapping[str, Any]]) -> Chart:
    hit_rates = {float(point["ttl_seconds"]): 100 * point["hit_ratio"] for point in points}
    hit_rates[float(then["ttl_seconds"])] = 100 * then["hit_ratio"]
    xs = tuple(sorted(hit_rates))
    marks = [_mark("now", now), *([_mark("drafted", then)] if _differs(now, then) else [])]
    line = Series("Hit rate, foretold", tuple(round(hit_rates[ttl_seconds], 2) for ttl_seconds in xs), "served")
    return Chart(
        "what-if-curve",
        title,
        "percent",
        xs,
        (line,),
        tuple(marks),
        across="durations",
        across_label=LABELS["ttl_seconds"],
    )


def _mark(label: str, values: Mapping[str, Any]) -> Mark:
    words = f"{duration(values['ttl_seconds'])} {values['ttl_mode']}: {percent_text(values['hit_ratio'])}"
    return Mark(values["ttl_seconds"], label, words)
