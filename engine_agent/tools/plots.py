"""Plotting that all tools share: colours, axes, and files as SVG and PNG.

matplotlib comes with the extra `bench` and is imported only for a plot. pyplot is not used: it keeps every figure in
memory and picks a window system.
"""

import importlib
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from engine_agent.tools.errors import ToolError
from engine_agent.tools.report import write_atomically

SERIES = ("#0d78f2", "#8b3b18", "#1da585", "#7e257e", "#8a5a00", "#556172")  # the dashboard's, then its muted ones
OURS, THEIRS = SERIES[:2]
OK, BAD, WARN, MUTED, GRID = "#1b7a43", "#b3261e", "#8a5a00", "#556172", "#dddddd"
KINDS = ("svg", "png")
SETTINGS = {"svg.hashsalt": "luminet", "font.size": 9, "axes.titlesize": 12, "axes.titleweight": "bold"}


def plotting_checked() -> None:
    """Check for matplotlib, before minutes are spent on a measurement. Raises ToolError."""
    try:
        importlib.import_module("matplotlib")
    except ImportError as problem:
        advice = "pip install -c constraints.txt -e '.[bench]'"
        raise ToolError(f"plots need matplotlib, which is not installed here: {advice}") from problem


def new_figure(width: float, height: float) -> Any:
    return importlib.import_module("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")


def tidy(axis: Any, *, grid: Literal["x", "both"] | None = None) -> None:
    """Remove the frame except for the two axes, and draw the grid, if any, behind the data."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_axisbelow(True)
    if grid:
        axis.grid(axis=grid, color=GRID, linewidth=0.6)


def write_figures(
    folder: Path, drawings: Mapping[str, Callable[[], Any]], settings: Mapping[str, Any] = SETTINGS
) -> list[Path]:
    """Write each figure under its name, as SVG and PNG, and return the paths. Raises ToolError, OSError."""
    plotting_checked()
    written = []
    with importlib.import_module("matplotlib").rc_context(dict(settings)):
        for name, draw in drawings.items():
            figure = draw()
            for kind in KINDS:
                content = io.BytesIO()
                figure.savefig(content, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
                written.append(folder / f"{name}.{kind}")
                write_atomically(written[-1], content.getvalue())
    return written
