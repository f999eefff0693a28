"""A plot of a run: bytes per token against quality loss, plain and with outliers."""

from pathlib import Path
from typing import Any

from engine_agent.tools.plots import BAD, MUTED, OK, SETTINGS, WARN, new_figure, tidy, write_figures
from engine_agent.tools.quality.artefact import Artefact, Figures, Measurement
from engine_agent.tools.quality.gates import GATES
from kernels.formats import BASELINE, CONTROL, EXACT, FLOOR

COLOURS = {"passed": OK, "failed": BAD, "unresolved": WARN}
LEAST = 1e-8  # smaller values cannot be distinguished from rounding
AXES = ("plain", "outliers")
Box = tuple[float, float, float, float]  # left, low, right, high
PIXELS = 100 / 72  # per point, in the layout of a figure
LETTER, POINT = 5.6 * PIXELS, 5 * PIXELS  # widths
OFFSETS = ((8, 0), (-8, 0), (0, 11), (0, -11), (8, 9), (-8, 9), (8, -9), (-8, -9))  # of a name, in points


def write_plots(artefact: Artefact, folder: Path) -> list[Path]:
    """Write the plot and return the paths. Raises ToolError, OSError."""
    return write_figures(folder, {"quality": lambda: _drawn(artefact)}, {**SETTINGS, "axes.titlesize": 11})


def fact(artefact: Artefact) -> str:
    """Return the plot's main result, in a sentence."""
    passed = [
        measurement
        for measurement in artefact.measurements
        if measurement.verdict == "passed" and measurement.kv_format in GATES
    ]
    leanest = min(passed, key=lambda measurement: measurement.token_bytes, default=None)
    baseline = next(measurement for measurement in artefact.measurements if measurement.kv_format == BASELINE)
    if leanest is None or leanest.kv_format in FLOOR:
        return "No format below bf16 passes"
    times = baseline.token_bytes / leanest.token_bytes
    return f"{leanest.kv_format} holds {times:.2f} times the tokens of bf16 and passes"


def _drawn(artefact: Artefact) -> Any:
    figure = new_figure(11, 5.6)
    axes = figure.subplots(1, 2, sharey=True)
    titles = (fact(artefact), "With outlier channels in every key (colours: verdicts without)")
    for axis, name, title in zip(axes, AXES, titles, strict=True):
        _panel(axis, artefact, name)
        axis.set_title(title, loc="left", pad=10)
    axes[0].set_ylabel("mean KL against bf16 (bf16 against fp32) [nats per token]")
    handles = [_mark(axes[0], *mark) for mark in _legend()]
    figure.legend(handles=handles, loc="outside lower left", ncols=5, frameon=False, fontsize=8)
    figure.canvas.draw()  # afterwards the positions of points are known
    for axis, name in zip(axes, AXES, strict=True):
        _named(axis, artefact, name)
    return figure


def _panel(axis: Any, artefact: Artefact, name: str) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("bytes per token, keys and values of all layers, logarithmic", loc="left")
    tidy(axis, grid="both")
    plotted = [
        measurement
        for measurement in artefact.measurements
        if measurement.kv_format != EXACT and name in measurement.axes
    ]
    for measurement in plotted:
        _point(axis, measurement, measurement.axes[name])
    sizes: list[int] = []
    for size in sorted({measurement.token_bytes for measurement in plotted}):
        sizes += [size] if not sizes or size > 1.1 * sizes[-1] else []  # closer ones would overlap
    axis.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=45, ha="right")
    axis.set_xticks([], minor=True)
    axis.set_xlim(sizes[0] / 1.25, sizes[-1] * 1.5)


def _point(axis: Any, measurement: Measurement, figures: Figures) -> None:
    value = max(figures.divergence, LEAST)
    low, high = value - max(figures.divergence_low, LEAST), figures.divergence_high - value
    axis.errorbar(
        measurement.token_bytes,
        value,
        yerr=[[max(0.0, low)], [max(0.0, high)]],
        marker="D" if measurement.is_calibrated else "o",
        markersize=7,
        markerfacecolor="white" if measurement.is_calibrated else COLOURS[measurement.verdict],
        color=COLOURS[measurement.verdict],
        linewidth=1.2,
    )


def _named(axis: Any, artefact: Artefact, name: str) -> None:
    """Write each format's name next to the upper one of its points, where it covers nothing. Needs final limits."""
    plotted = [
        measurement
        for measurement in artefact.measurements
        if measurement.kv_format != EXACT and name in measurement.axes
    ]
    points = {
        id(measurement): axis.transData.transform((measurement.token_bytes, _height(measurement, name)))
        for measurement in plotted
    }
    occupied = [(x - POINT, y - POINT, x + POINT, y + POINT) for x, y in points.values()]
    upper = {
        measurement.kv_format: measurement
        for measurement in sorted(plotted, key=lambda measurement: _height(measurement, name))
    }
    for measurement in upper.values():
        text = f"{measurement.kv_format} (control)" if measurement.kv_format == CONTROL else measurement.kv_format
        x, y = points[id(measurement)]
        boxes = [(_box(x, y, text, offset), offset) for offset in OFFSETS]
        box, (right, up) = next((free for free in boxes if not _is_hidden(free[0], occupied)), boxes[0])
        side = "left" if right > 0 else "right" if right < 0 else "center"
        axis.annotate(
            text,
            (measurement.token_bytes, _height(measurement, name)),
            (right, up),
            textcoords="offset points",
            va="center",
            ha=side,
        )
        occupied.append(box)


def _height(measurement: Measurement, name: str) -> float:
    return max(measurement.axes[name].divergence, LEAST)


def _box(x: float, y: float, text: str, offset: tuple[int, int]) -> Box:
    """Return the approximate box of a text, in pixels."""
    width, (right, up) = LETTER * len(text), offset
    left = x + right * PIXELS if right > 0 else x + right * PIXELS - width if right < 0 else x - width / 2
    middle = y + up * PIXELS
    return left, middle - 0.7 * LETTER, left + width, middle + 0.7 * LETTER


def _is_hidden(box: Box, occupied: list[Box]) -> bool:
    return any(
        box[0] < occupied_box[2] and box[2] > occupied_box[0] and box[1] < occupied_box[3] and box[3] > occupied_box[1]
        for occupied_box in occupied
    )


def _legend() -> list[tuple[str, str, bool]]:
    marks = [(verdict, colour, True) for verdict, colour in COLOURS.items()]
    return [*marks, ("neutral scales", MUTED, True), ("calibrated", MUTED, False)]


def _mark(axis: Any, text: str, colour: str, is_filled: bool) -> Any:
    (handle,) = axis.plot(
        [], [], marker="o" if is_filled else "D", color=colour, markerfacecolor=colour if is_filled else "white",
        linestyle="none", label=text,
    )  # fmt: skip
    return handle
