"""A picture of a result, as SVG and PNG: each first token of both sides, and what came within the bound.

matplotlib comes with the extra `bench` and is loaded only when a plot is asked for.
"""

import importlib
from pathlib import Path
from typing import Any

from engine_agent.tools.savings.errors import CannotPlot
from engine_agent.tools.savings.plan import SIDES, Side
from engine_agent.tools.savings.result import Result

COLOURS: dict[Side, str] = {"with": "#0d78f2", "without": "#8b3b18"}  # the dashboard's
GRID = "#dddddd"
SETTINGS = {"svg.hashsalt": "luminet", "font.size": 9, "axes.titlesize": 12, "axes.titleweight": "bold"}


def plotting_checked() -> None:
    """Before minutes are spent on what cannot be drawn. Raises CannotPlot."""
    try:
        importlib.import_module("matplotlib")
    except ImportError as problem:
        advice = "pip install -c constraints.txt -e '.[bench]'"
        raise CannotPlot(f"plots need matplotlib, which is not installed here: {advice}") from problem


def write_plots(result: Result, folder: Path) -> list[Path]:
    """The paths written. Raises CannotPlot, OSError."""
    plotting_checked()
    matplotlib = importlib.import_module("matplotlib")
    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(SETTINGS):
        drawn = _drawn(result)
        paths = [folder / f"savings.{kind}" for kind in ("svg", "png")]
        for path in paths:
            metadata = {"Date": None} if path.suffix == ".svg" else None
            drawn.savefig(path, format=path.suffix[1:], dpi=150, metadata=metadata)
    return paths


def fact(result: Result) -> str:
    median = result.times[0]
    return (
        f"Caching a template of {result.plan.template_tokens:,} tokens takes {100 * median.share.value:.0f} % "
        "off the median time to first token"
    )


def _drawn(result: Result) -> Any:
    """Left: every first token of one request alone. Right: first tokens as more are asked at once."""
    figure = importlib.import_module("matplotlib.figure").Figure(figsize=(10, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    figure.suptitle(fact(result), x=0.01, ha="left", fontweight="bold")
    for axis in (left, right):
        axis.set_yscale("log")
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(color=GRID, linewidth=0.6)
        axis.set_axisbelow(True)
    for number, side in enumerate(SIDES):
        measured = result.found.sides[side]
        spots = [
            number + 0.3 * (index / max(1, len(measured.ttft_ms) - 1) - 0.5) for index in range(len(measured.ttft_ms))
        ]
        left.scatter(spots, measured.ttft_ms, s=14, color=COLOURS[side])
        trials = sorted(measured.trials, key=lambda trial: trial.together)
        points = [trial.together for trial in trials], [trial.ttft_ms for trial in trials]
        right.plot(*points, color=COLOURS[side], marker="o", markersize=4, label=f"{side} caching")
    left.set_xticks(range(len(SIDES)), [f"{side} caching" for side in SIDES])
    left.set_xlim(-0.5, len(SIDES) - 0.5)
    left.set_ylabel("time to first token [ms]")
    left.set_title("one at a time", loc="left", fontsize=10)
    right.axhline(result.found.bound_ms, color="#556172", linestyle="dashed", linewidth=1, label="bound")
    right.set_xlabel("requests at once")
    right.set_title("95 % of first tokens come within", loc="left", fontsize=10)
    right.legend(frameon=False, fontsize=8)
    return figure
