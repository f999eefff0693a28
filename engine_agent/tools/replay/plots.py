"""Two pictures of a replay, as SVG and PNG: the hit rate by policy, and the memory that policy holds over time.

matplotlib comes with the extra `bench` and is loaded only when a plot is asked for.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine_agent.tools.replay.errors import CannotPlot
from engine_agent.tools.replay.outcome import Outcome
from engine_agent.tools.replay.report import REASONS
from engine_agent.tools.replay.words import amount, percent

COLOURS = ("#0d78f2", "#8b3b18", "#1da585", "#7e257e", "#8a5a00", "#556172")  # the dashboard's, then its quieter ones
DASHES = ("solid", "dashed", "dotted", "dashdot")
SHADES = {"cold": "#c9d1da", "expired": "#e8b04a", "evicted": "#cf6330", "quota": "#a8498c", "tail": "#e4e8ec"}
OTHER_SHADE, GRID = "#9eabba", "#dddddd"
LABEL_SHARE = 0.04  # a share narrower than this has no room for its number
MOST_MOMENTS = 600
SETTINGS = {"svg.hashsalt": "luminet", "font.size": 9, "axes.titlesize": 12, "axes.titleweight": "bold"}


def plotting_checked() -> None:
    """Before minutes are spent on what cannot be drawn. Raises CannotPlot."""
    try:
        importlib.import_module("matplotlib")
    except ImportError as problem:
        advice = "pip install -c constraints.txt -e '.[bench]'"
        raise CannotPlot(f"plots need matplotlib, which is not installed here: {advice}") from problem


def write_plots(outcomes: Sequence[Outcome], folder: Path) -> list[Path]:
    """The paths written. Raises CannotPlot, OSError."""
    plotting_checked()
    matplotlib = importlib.import_module("matplotlib")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with matplotlib.rc_context(SETTINGS):
        for name, drawn in (("hit-rate", _hit_rate(outcomes)), ("resident", _resident(outcomes))):
            for kind in ("svg", "png"):
                path = folder / f"{name}.{kind}"
                drawn.savefig(path, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
                written.append(path)
    return written


def hit_rate_fact(outcomes: Sequence[Outcome]) -> str:
    best = max(outcomes, key=lambda one: one.total.hit_ratio or 0.0)
    fact = f"{_sentence(best)} serves {percent(best.total.hit_ratio)} of prompt tokens from cache"
    if len(outcomes) == 1:
        return fact
    least = min(outcomes, key=lambda one: one.total.hit_ratio or 0.0)
    return f"{fact}, {least.setup.label} {percent(least.total.hit_ratio)}"


def resident_fact(outcomes: Sequence[Outcome]) -> str:
    """What the cheapest policy that keeps most of the hits saves, beside the one that holds the most."""
    most = max(outcomes, key=lambda one: one.peak_resident_tokens)
    held, hits = most.peak_resident_tokens, most.total.hit_ratio
    if held and hits:
        good = [one for one in outcomes if (one.total.hit_ratio or 0) >= 0.75 * hits]
        lean = min(good, key=lambda one: one.peak_resident_tokens)
        if lean is not most:
            kept = 100 * (lean.total.hit_ratio or 0) / hits
            memory = 100 * lean.peak_resident_tokens / held
            saved = f"keeps {kept:.0f} % of the hits of {most.setup.label} with {memory:.0f} % of its memory"
            return f"{_sentence(lean)} {saved}"
    return f"{_sentence(most)} holds at most {amount(held)} tokens"


def _sentence(outcome: Outcome) -> str:
    text = outcome.setup.label
    return text[0].upper() + text[1:]


def _figure(height: float, title: str) -> tuple[Any, Any]:
    # No pyplot: it keeps every figure alive and picks a window system.
    drawn = importlib.import_module("matplotlib.figure").Figure(figsize=(10, height), layout="constrained")
    axis = drawn.subplots()
    axis.set_title(title, loc="left", pad=12)
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_axisbelow(True)
    return drawn, axis


def _hit_rate(outcomes: Sequence[Outcome]) -> Any:
    """A bar for each policy: hits first, then what was missed and why, together 100 %."""
    drawn, axis = _figure(1.7 + 0.45 * len(outcomes), hit_rate_fact(outcomes))
    totals = [outcome.total for outcome in outcomes]
    parts = {"from cache": [total.cached_tokens for total in totals]}
    parts |= {f"missed: {one}": [total.missed_tokens[one] for total in totals] for one in REASONS}
    left = [0.0] * len(totals)
    for name, tokens in parts.items():
        if not any(tokens):
            continue
        shares = [100 * one / (total.prompt_tokens or 1) for one, total in zip(tokens, totals, strict=True)]
        is_hit = name == "from cache"
        colour = COLOURS[0] if is_hit else SHADES.get(name.removeprefix("missed: "), OTHER_SHADE)
        bars = axis.barh(range(len(totals)), shares, left=left, height=0.66, color=colour, label=name)
        texts = [f"{share:.1f} %" if share >= 100 * LABEL_SHARE else "" for share in shares]
        axis.bar_label(bars, texts, label_type="center", color="white" if is_hit else "black", fontsize=8)
        left = [one + share for one, share in zip(left, shares, strict=True)]
    axis.set_yticks(range(len(outcomes)), [outcome.setup.label for outcome in outcomes])
    axis.set_ylim(len(outcomes) - 0.5, -0.5)
    axis.set_xlim(0, 100)
    axis.set_xlabel("share of prompt tokens [%]", loc="left")
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    drawn.legend(loc="outside lower left", ncols=6, frameon=False, fontsize=8)
    return drawn


def _resident(outcomes: Sequence[Outcome]) -> Any:
    drawn, axis = _figure(4.8, resident_fact(outcomes))
    longest = max((outcome.moments[-1].at_seconds for outcome in outcomes if outcome.moments), default=0.0)
    unit, scale = ("min", 60) if longest < 7200 else ("h", 3600)
    for number, outcome in enumerate(outcomes):
        moments = outcome.thinned(MOST_MOMENTS)
        axis.plot(
            [moment.at_seconds / scale for moment in moments],
            [moment.resident_tokens / 1e6 for moment in moments],
            color=COLOURS[number % len(COLOURS)],
            linestyle=DASHES[number // len(COLOURS) % len(DASHES)],
            linewidth=1.8,
            label=f"{outcome.setup.label}: at most {amount(outcome.peak_resident_tokens)}",
        )
    axis.set_xlabel(f"time in the trace [{unit}]", loc="left")
    axis.set_ylabel("resident tokens [M]")
    axis.set_ylim(bottom=0)
    axis.set_xlim(left=0)
    axis.grid(color=GRID, linewidth=0.6)
    axis.legend(frameon=False, fontsize=8)
    return drawn
