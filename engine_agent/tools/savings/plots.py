"""A plot of a result: each first token of both sides, and the first tokens within the bound."""

from pathlib import Path
from typing import Any

from engine_agent.tools.plots import MUTED, OURS, THEIRS, new_figure, tidy, write_figures
from engine_agent.tools.savings.plan import SIDES, Side
from engine_agent.tools.savings.result import Result

COLOURS: dict[Side, str] = {"with": OURS, "without": THEIRS}


def write_plots(result: Result, folder: Path) -> list[Path]:
    """Write the plot and return the paths. Raises ToolError, OSError."""
    return write_figures(folder, {"savings": lambda: _drawn(result)})


def fact(result: Result) -> str:
    median = result.times[0]
    return (
        f"Caching a template of {result.plan.template_tokens:,} tokens takes {100 * median.share.value:.0f} % "
        "off the median time to first token"
    )


def _drawn(result: Result) -> Any:
    """Draw first tokens of single requests on the left, and of increasing numbers at once on the right."""
    figure = new_figure(10, 4.5)
    left, right = figure.subplots(1, 2, sharey=True)
    figure.suptitle(fact(result), x=0.01, ha="left", fontweight="bold")
    for axis in (left, right):
        axis.set_yscale("log")
        tidy(axis, grid="both")
    for number, side in enumerate(SIDES):
        measured = result.found.sides[side]
        positions = [
            number + 0.3 * (index / max(1, len(measured.ttft_ms) - 1) - 0.5) for index in range(len(measured.ttft_ms))
        ]
        left.scatter(positions, measured.ttft_ms, s=14, color=COLOURS[side])
        trials = sorted(measured.trials, key=lambda trial: trial.together)
        points = [trial.together for trial in trials], [trial.ttft_ms for trial in trials]
        right.plot(*points, color=COLOURS[side], marker="o", markersize=4, label=f"{side} caching")
    left.set_xticks(range(len(SIDES)), [f"{side} caching" for side in SIDES])
    left.set_xlim(-0.5, len(SIDES) - 0.5)
    left.set_ylabel("time to first token [ms]")
    left.set_title("one at a time", loc="left", fontsize=10)
    right.axhline(result.found.bound_ms, color=MUTED, linestyle="dashed", linewidth=1, label="bound")
    right.set_xlabel("requests at once")
    right.set_title("95 % of first tokens come within", loc="left", fontsize=10)
    right.legend(frameon=False, fontsize=8)
    return figure
