"""Two plots of a replay: the hit rate by policy, and memory use over time by policy."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from engine_agent.tools.plots import SERIES, new_figure, tidy, write_figures
from engine_agent.tools.replay.outcome import Outcome
from engine_agent.tools.replay.report import REASONS
from engine_agent.tools.report import format_amount, format_percent

DASHES = ("solid", "dashed", "dotted", "dashdot")
SHADES = {"cold": "#c9d1da", "expired": "#e8b04a", "evicted": "#cf6330", "quota": "#a8498c", "tail": "#e4e8ec"}
OTHER_SHADE = "#9eabba"
LABEL_SHARE = 0.04  # a narrower share has no room for its number
MOST_MOMENTS = 600


def write_plots(outcomes: Sequence[Outcome], folder: Path) -> list[Path]:
    """Write the plots and return the paths. Raises ToolError, OSError."""
    drawings = {"hit-rate": lambda: _hit_rate(outcomes), "resident": lambda: _resident(outcomes)}
    return write_figures(folder, drawings)


def hit_rate_fact(outcomes: Sequence[Outcome]) -> str:
    best = max(outcomes, key=lambda outcome: outcome.total.hit_ratio or 0.0)
    fact = f"{_sentence(best)} serves {format_percent(best.total.hit_ratio)} of prompt tokens from cache"
    if len(outcomes) == 1:
        return fact
    worst = min(outcomes, key=lambda outcome: outcome.total.hit_ratio or 0.0)
    return f"{fact}, {worst.setup.label} {format_percent(worst.total.hit_ratio)}"


def resident_fact(outcomes: Sequence[Outcome]) -> str:
    """Return how much memory the leanest policy with most of the hits saves, compared with the largest."""
    largest = max(outcomes, key=lambda outcome: outcome.peak_resident_tokens)
    peak_tokens, hits = largest.peak_resident_tokens, largest.total.hit_ratio
    if peak_tokens and hits:
        good_outcomes = [outcome for outcome in outcomes if (outcome.total.hit_ratio or 0) >= 0.75 * hits]
        lean = min(good_outcomes, key=lambda outcome: outcome.peak_resident_tokens)
        if lean is not largest:
            hit_percent = 100 * (lean.total.hit_ratio or 0) / hits
            memory = 100 * lean.peak_resident_tokens / peak_tokens
            saving = f"keeps {hit_percent:.0f} % of the hits of {largest.setup.label} with {memory:.0f} % of its memory"
            return f"{_sentence(lean)} {saving}"
    return f"{_sentence(largest)} holds at most {format_amount(peak_tokens)} tokens"


def _sentence(outcome: Outcome) -> str:
    text = outcome.setup.label
    return text[0].upper() + text[1:]


def _figure(height: float, title: str, grid: Literal["both"] | None = None) -> tuple[Any, Any]:
    figure = new_figure(10, height)
    axis = figure.subplots()
    axis.set_title(title, loc="left", pad=12)
    tidy(axis, grid=grid)
    return figure, axis


def _hit_rate(outcomes: Sequence[Outcome]) -> Any:
    """Draw a bar for each policy: hits first, then misses by reason, together 100 %."""
    figure, axis = _figure(1.7 + 0.45 * len(outcomes), hit_rate_fact(outcomes))
    totals = [outcome.total for outcome in outcomes]
    parts = {"from cache": [total.cached_tokens for total in totals]}
    parts |= {f"missed: {reason}": [total.missed_tokens[reason] for total in totals] for reason in REASONS}
    offsets = [0.0] * len(totals)
    for name, tokens in parts.items():
        if not any(tokens):
            continue
        shares = [100 * count / (total.prompt_tokens or 1) for count, total in zip(tokens, totals, strict=True)]
        is_hit = name == "from cache"
        colour = SERIES[0] if is_hit else SHADES.get(name.removeprefix("missed: "), OTHER_SHADE)
        bars = axis.barh(range(len(totals)), shares, left=offsets, height=0.66, color=colour, label=name)
        texts = [f"{share:.1f} %" if share >= 100 * LABEL_SHARE else "" for share in shares]
        axis.bar_label(bars, texts, label_type="center", color="white" if is_hit else "black", fontsize=8)
        offsets = [offset + share for offset, share in zip(offsets, shares, strict=True)]
    axis.set_yticks(range(len(outcomes)), [outcome.setup.label for outcome in outcomes])
    axis.set_ylim(len(outcomes) - 0.5, -0.5)
    axis.set_xlim(0, 100)
    axis.set_xlabel("share of prompt tokens [%]", loc="left")
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    figure.legend(loc="outside lower left", ncols=6, frameon=False, fontsize=8)
    return figure


def _resident(outcomes: Sequence[Outcome]) -> Any:
    figure, axis = _figure(4.8, resident_fact(outcomes), grid="both")
    longest = max((outcome.moments[-1].at_seconds for outcome in outcomes if outcome.moments), default=0.0)
    unit, scale = ("min", 60) if longest < 7200 else ("h", 3600)
    for number, outcome in enumerate(outcomes):
        moments = outcome.thinned(MOST_MOMENTS)
        axis.plot(
            [moment.at_seconds / scale for moment in moments],
            [moment.resident_tokens / 1e6 for moment in moments],
            color=SERIES[number % len(SERIES)],
            linestyle=DASHES[number // len(SERIES) % len(DASHES)],
            linewidth=1.8,
            label=f"{outcome.setup.label}: at most {format_amount(outcome.peak_resident_tokens)}",
        )
    axis.set_xlabel(f"time in the trace [{unit}]", loc="left")
    axis.set_ylabel("resident tokens [M]")
    axis.set_ylim(bottom=0)
    axis.set_xlim(left=0)
    axis.legend(frameon=False, fontsize=8)
    return figure
