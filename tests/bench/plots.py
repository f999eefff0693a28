"""A picture of each row: every sample, the middle half, the median and the target."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from engine_agent.tools.plots import BAD, MUTED, OK, OURS, SETTINGS, THEIRS, new_figure, tidy, write_figures
from engine_agent.tools.report import format_number
from tests.bench.figures import Figure, Series, Target
from tests.bench.results import RowResult, Run
from tests.bench.table import headline
from tests.bench.words import target_text, verdict, with_unit


@dataclass(frozen=True, slots=True)
class Panel:
    """One axis: its title states the fact, its series share a unit."""

    title: str
    axis: str
    series: tuple[Series, ...]
    target: Target | None
    is_met: bool | None


def panels(result: RowResult) -> list[Panel]:
    return [panel for figure in result.figures for panel in _figure_panels(figure)]


def _figure_panels(figure: Figure) -> list[Panel]:
    judged = figure.judged
    fact = f"{figure.name}: {'' if figure.ratio is None else 'ours ÷ theirs '}{_median_text(judged)}"
    if figure.target:
        fact += f"   {verdict(figure)} · target {target_text(figure.target, judged.unit)}"
    last = Panel(fact, _axis(figure, judged), (judged,), figure.target, figure.is_met)
    if figure.theirs is None:
        return [last]
    sides = (figure.ours, figure.theirs)
    fact = f"{figure.name}: {', '.join(f'{side.name} {_median_text(side)}' for side in sides)}"
    return [Panel(fact, _axis(figure, figure.ours), sides, None, None), last]


def _median_text(series: Series) -> str:
    return with_unit(format_number(series.statistics.median), series.unit)


def _axis(figure: Figure, series: Series) -> str:
    name = figure.name if series.name != "ratio" else f"{figure.name}, ours ÷ theirs per pair"
    return f"{name} [{series.unit}]" if series.unit else name


def write_plots(run: Run, out: Path) -> dict[str, str]:
    """An SVG and a PNG for each row with figures; the PNG's name by row key. Raises ToolError, OSError."""
    footer = " · ".join(headline(run)[:2])
    names = {result.key: f"{run.stem}-{result.key}" for result in run.results if result.figures}
    drawings = {
        names[result.key]: partial(_draw, result, footer=footer) for result in run.results if result.key in names
    }
    write_figures(out, drawings, {**SETTINGS, "axes.titlesize": 10, "axes.titleweight": "normal"})
    return {key: f"{name}.png" for key, name in names.items()}


def _draw(result: RowResult, *, footer: str) -> Any:
    shown = panels(result)
    heights = [0.55 + 0.4 * len(panel.series) for panel in shown]
    drawn = new_figure(9, sum(heights) + 0.75 * len(shown) + 0.8)
    drawn.get_layout_engine().set(h_pad=0.08, w_pad=0.12, hspace=0.05)
    drawn.suptitle(f"{result.key} · {result.title}", x=0.01, ha="left", fontsize=13, fontweight="bold")
    axes = drawn.subplots(len(shown), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    for axis, panel in zip(axes, shown, strict=True):
        _draw_panel(axis, panel)
    drawn.supxlabel(footer, fontsize=7, color=MUTED, x=0.01, ha="left")
    return drawn


def _draw_panel(axis: Any, panel: Panel) -> None:
    colours = (OURS, THEIRS)
    for height, (series, colour) in enumerate(zip(panel.series, colours, strict=False)):
        _draw_series(axis, height, series, colour)
    axis.set_yticks(
        range(len(panel.series)),
        [f"{s.name if len(panel.series) > 1 else ''}\nn = {len(s.samples)}" for s in panel.series],
    )
    axis.set_ylim(len(panel.series) - 0.4, -0.6)  # ours on top
    axis.use_sticky_edges = False  # a bar that begins at the edge would otherwise cut its dots in half
    axis.set_title(panel.title, loc="left")
    axis.set_xlabel(panel.axis + _scale(axis, panel), loc="left")
    tidy(axis, grid="x")
    axis.spines["left"].set_visible(False)
    axis.tick_params(axis="y", length=0)
    if panel.target:
        _draw_target(axis, panel, panel.target)


def _draw_series(axis: Any, height: int, series: Series, colour: str) -> None:
    """Every sample as a dot, p25 to p75 as a bar behind them, the median as a line with its value."""
    found, n = series.statistics, len(series.samples)
    axis.barh(height, found.p75 - found.p25, left=found.p25, height=0.56, color=colour, alpha=0.18)
    # Spread by a fixed pattern rather than by chance: the same run draws the same picture.
    offsets = [height + 0.36 * ((k * 0.618034) % 1 - 0.5) for k in range(n)]
    axis.scatter(
        series.samples, offsets, s=14 if n <= 200 else 4, color=colour, alpha=0.7 if n <= 200 else 0.3, linewidths=0
    )
    axis.plot([found.median] * 2, [height - 0.34, height + 0.34], color=colour, linewidth=2.2)


def _scale(axis: Any, panel: Panel) -> str:
    """From zero, so that a spread of 1 % looks like one; logarithmic when the sides are far apart."""
    values = [value for series in panel.series for value in series.samples]
    shown = [*values, *([panel.target.bound] if panel.target and is_in_reach(panel, panel.target) else [])]
    if min(values) > 0 and max(values) / min(values) > 20:
        axis.set_xscale("log")
        axis.xaxis.get_major_locator().set_params(subs=(1, 2, 5))
        axis.xaxis.set_major_formatter(lambda value, _: format_number(value))
        axis.xaxis.set_minor_formatter(lambda value, _: "")
        return ", logarithmic"
    if min(shown) >= 0:
        high = max(shown) or 1.0
        axis.set_xlim(-0.012 * high, 1.03 * high)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.9g}")
    return ""


def is_in_reach(panel: Panel, target: Target) -> bool:
    """Whether drawing the target leaves the samples room; otherwise the title alone names it."""
    (judged,) = panel.series
    return abs(target.bound) <= 8 * abs(judged.statistics.p95) or target.bound == 0


def _draw_target(axis: Any, panel: Panel, target: Target) -> None:
    """The target's line, and the value it judges where that is not the median."""
    (judged,) = panel.series
    if target.of != "median":
        value = getattr(judged.statistics, target.of)
        axis.axvline(value, color=OURS, linewidth=1.2, linestyle=(0, (1, 2)))
        _label(axis, value, target.of, OURS, "bottom")
    if not is_in_reach(panel, target):
        return
    colour = OK if panel.is_met else BAD
    axis.axvline(target.bound, color=colour, linewidth=1.4, linestyle=(0, (5, 3)))
    _label(axis, target.bound, "target", colour, "top")
    if target.tolerance:
        axis.axvspan(target.bound - target.tolerance, target.bound + target.tolerance, color=OK, alpha=0.1, linewidth=0)


def _label(axis: Any, value: float, text: str, colour: str, edge: Literal["top", "bottom"]) -> None:
    """Beside a line, on the side with more room."""
    place = axis.transAxes.inverted().transform(axis.transData.transform((value, 0)))[0]
    axis.text(
        value,
        0.99 if edge == "top" else 0.01,
        f" {text} ",
        color=colour,
        fontsize=8,
        transform=axis.get_xaxis_transform(),
        ha="right" if place > 0.5 else "left",
        va=edge,
    )
