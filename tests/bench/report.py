"""How a run is shown and kept: one table (terminal and Markdown), one JSON file, one plot per row. Measures nothing."""

import importlib
import io
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

from tests.bench.harness import METHODS, Figure, RowResult, Series, Target
from tests.bench.machine import Commit, Machine

SCHEMA_VERSION = 1
SIGNS = {"<=": "≤", "<": "<", ">=": "≥", ">": ">", "==": "="}
HEADINGS = ("figure", "n", "median", "spread", "p5 – p95", "target", "verdict")
PIPE = r"\|"
NUMERIC = range(1, 6)  # the columns between figure and verdict are aligned to the right
COLOURS = {"✓": "32", "✗": "31", "!": "31", "heading": "1", "muted": "2"}
OURS, THEIRS, OK, BAD, MUTED = "#0d78f2", "#8b3b18", "#1b7a43", "#b3261e", "#556172"  # the dashboard's tokens


@dataclass(slots=True)
class Run:
    """One `make bench`; `results` grows while it measures."""

    started: datetime
    commit: Commit
    machine: Machine
    versions: dict[str, str]
    repetitions: int | None = None  # --repetitions, which overrules the figures' own
    results: list[RowResult] = field(default_factory=list)
    is_complete: bool = False

    @property
    def stem(self) -> str:
        return f"{self.started:%Y%m%dT%H%M%SZ}-{self.commit.short}"


# --- numbers and words ------------------------------------------------------------------------------------------------


def format_number(value: float) -> str:
    """Three significant digits, all digits of whole numbers, thousands separated: 0.0123, 1.40, 12,031."""
    if value == int(value):
        return f"{value:,.0f}"
    decimals = min(max(0, 2 - math.floor(math.log10(abs(value)))), 9)
    return f"{value:,.{decimals}f}"


def with_unit(number: str, unit: str) -> str:
    return f"{number} {unit}" if unit else number


def target_text(target: Target, unit: str) -> str:
    of = "" if target.of == "median" else f"{target.of} "
    tolerance = f" ± {_chosen(target.tolerance)}" if target.tolerance else ""
    return with_unit(f"{of}{SIGNS[target.comparison]} {_chosen(target.bound)}{tolerance}", unit)


def _chosen(value: float) -> str:
    """A number somebody chose is shown as written, 0.5 and not 0.500."""
    return format_number(value) if value == int(value) else f"{value:.4g}"


def verdict(figure: Figure) -> str:
    if figure.target is None:
        return "– no target"
    words = "✓ met" if figure.is_met else f"✗ short by {_shortfall_text(figure, figure.target)}"
    if figure.target.of == "median":
        return words
    # The table has no column for this statistic, so the value that was judged stands here.
    return f"{words} ({figure.target.of} {with_unit(format_number(figure.judged_value), figure.judged.unit)})"


def _shortfall_text(figure: Figure, target: Target) -> str:
    """A share of the bound; in the figure's unit where a share says nothing (no bound to share, or already in %)."""
    value, unit = figure.judged_value, figure.judged.unit
    shortfall = target.shortfall(value)
    if unit == "%":
        return f"{format_number(shortfall)} points"
    if not target.bound or target.tolerance:
        return with_unit(format_number(shortfall), unit)
    percent = shortfall / abs(target.bound) * 100
    if percent >= 100:  # "250 %" is hard to picture, a value 3.5 times its bound is not
        return f"a factor of {format_number(value / target.bound)}"
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.1f} %" if percent >= 0.1 else "less than 0.1 %"


def parameters_text(figure: Figure) -> str:
    return " · ".join(f"{name} {_parameter_text(value)}" for name, value in figure.parameters.items())


def _parameter_text(value: str | float | None) -> str:
    return str(value) if value is None or isinstance(value, str | bool) else format_number(value)


def cells(figure: Figure) -> list[tuple[str, ...]]:
    """The table lines of a figure: one, or three for a comparison, whose target is on the ratio."""
    if figure.theirs is None or figure.ratio is None:
        return [_line(figure.name, figure.ours, figure)]
    sides = [_line(f"{figure.name} · {side.name}", side) for side in (figure.ours, figure.theirs)]
    return [*sides, _line(f"{figure.name} · ours ÷ theirs", figure.ratio, figure)]


def _line(name: str, series: Series, judged: Figure | None = None) -> tuple[str, ...]:
    found = series.statistics
    spread = "–" if found.spread_percent is None else f"{found.spread_percent:,.1f} %"
    between = with_unit(f"{format_number(found.p5)} – {format_number(found.p95)}", series.unit)
    target = target_text(judged.target, series.unit) if judged and judged.target else ""
    median = with_unit(format_number(found.median), series.unit)
    return (name, str(found.n), median, spread, between, target, verdict(judged) if judged else "")


def headline(run: Run) -> list[str]:
    machine, dirty = run.machine, " with uncommitted changes" if run.commit.is_dirty else ""
    hardware = [machine.cpu, f"{machine.cores} cores", f"{machine.memory_gib} GiB", machine.gpu or "no GPU"]
    system = [machine.os, f"kernel {machine.kernel}", f"Python {machine.python}", f"load {machine.load_1min} at start"]
    return [
        f"commit {run.commit.short}{dirty} · {run.started:%Y-%m-%d %H:%M:%S} UTC",
        " · ".join(hardware),
        " · ".join(system),
        *([f"every figure repeated {run.repetitions} × (--repetitions)"] if run.repetitions else []),
    ]


def versions_text(run: Run) -> str:
    return " · ".join(f"{name} {version}" for name, version in run.versions.items()) or "no packages found"


def tally(run: Run) -> str:
    verdicts = [figure.is_met for result in run.results for figure in result.figures]
    kinds = {"met": True, "short": False, "without target": None}
    judged = ", ".join(f"{verdicts.count(met)} {kind}" for kind, met in kinds.items())
    states: list[str] = [result.status for result in run.results]
    rows = ", ".join(f"{states.count(state)} {state}" for state in ("measured", "not measured", "failed"))
    seconds = sum(result.seconds for result in run.results)
    return f"figures: {len(verdicts)} ({judged}) · rows: {len(states)} ({rows}) · {seconds:,.1f} s"


def remarks(result: RowResult) -> list[tuple[str, str]]:
    """What must be read beside the numbers: sign and text."""
    found = [("!", f"failed: {result.error.message}")] if result.error else []
    found += [("–", f"not measured: {result.skipped}")] if result.skipped is not None else []
    return found + [("·", f"note: {note}") for note in result.notes]


def _aims(result: RowResult) -> str:
    aims = [f"reach {result.target}"] if result.target else []
    return " · ".join(aims + ([f"beside {result.beside}"] if result.beside else []))


# --- terminal and Markdown --------------------------------------------------------------------------------------------


def wants_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR")


def terminal(run: Run, *, colour: bool) -> str:
    figures = [figure for result in run.results for figure in result.figures]
    body = [line for figure in figures for line in cells(figure)]
    widths = [max(len(line[column]) for line in [HEADINGS, *body]) for column in range(len(HEADINGS))]
    lines = [*headline(run), versions_text(run), "", _painted(_aligned(HEADINGS, widths), "muted", colour)]
    for result in run.results:
        lines += ["", *_terminal_row(result, widths, colour)]
    return "\n".join([*lines, "", tally(run)]) + "\n"


def _terminal_row(result: RowResult, widths: Sequence[int], colour: bool) -> list[str]:
    lines = [_painted(f"{result.key}  {result.title}", "heading", colour)]
    if aims := _aims(result):
        lines.append(_painted(f"    {aims}", "muted", colour))
    for figure in result.figures:
        for line in cells(figure):
            # The verdict ends its line, so it can be coloured after the columns are aligned.
            text, words = _aligned(line, widths), line[-1]
            lines.append(text.removesuffix(words) + _painted(words, words[:1], colour))
        if figure.parameters:
            lines.append(_painted(f"      {parameters_text(figure)}", "muted", colour))
    return lines + [f"    {_painted(f'{sign} {text}', sign, colour)}" for sign, text in remarks(result)]


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    padded = [text.rjust(widths[c]) if c in NUMERIC else text.ljust(widths[c]) for c, text in enumerate(line)]
    return f"    {'   '.join(padded)}".rstrip()


def _painted(text: str, key: str, colour: bool) -> str:
    return f"\x1b[{COLOURS[key]}m{text}\x1b[0m" if colour and key in COLOURS else text


def markdown(run: Run, plots: Mapping[str, str]) -> str:
    """The same table. `plots` names the picture of a row's key, in the same folder."""
    lines = ["# Luminet bench", "", *(f"- {fact}" for fact in [*headline(run), versions_text(run)]), "", tally(run)]
    for result in run.results:
        lines += ["", f"## {result.key} · {result.title}", ""]
        lines += [f"{aims}.", ""] if (aims := _aims(result)) else []
        lines += _markdown_table(result.figures) if result.figures else []
        lines += [*(f"- {text}" for _, text in found), ""] if (found := remarks(result)) else []
        lines += [f"![{result.key}: {result.title}]({plots[result.key]})"] if result.key in plots else []
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _markdown_table(figures: Sequence[Figure]) -> list[str]:
    body = [(*line, parameters_text(figure)) for figure in figures for line in cells(figure)]
    rule = tuple("---:" if column in NUMERIC else "---" for column in range(len(HEADINGS) + 1))
    table = [(*HEADINGS, "sizes"), rule, *body]
    return [f"| {' | '.join(cell.replace('|', PIPE) for cell in line)} |" for line in table] + [""]


class Progress:
    """Where the run is, on stderr: one updating line on a terminal, otherwise a line per figure."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._is_live = stream, stream.isatty()

    def step(self, row: str, figure: str, k: int, n: int) -> None:
        if self._is_live:
            text = f"{row} · {figure} · " + (f"repetition {k}/{n}" if k else "warming up")
            self._write(f"\r\x1b[2K{text[: shutil.get_terminal_size().columns - 1]}")
        elif k == 0:
            self._write(f"{row} · {figure} · {n} repetitions\n")

    def done(self, result: RowResult) -> None:
        """A row is over. Its failure is shown at once and in full; the table only has its last line."""
        ended = f"{result.key} · {result.status} · {result.seconds:.1f} s\n"
        self._write(("\r\x1b[2K" if self._is_live else "") + ended + (result.error.traceback if result.error else ""))

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


# --- files ------------------------------------------------------------------------------------------------------------


def write_atomically(path: Path, content: bytes) -> None:
    """A reader finds the old file or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)  # mkstemp's 0600 would hide the results from others
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def run_json(run: Run) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "is_complete": run.is_complete,
        "started": run.started.isoformat(),
        "commit": run.commit.revision,
        "is_dirty": run.commit.is_dirty,
        "machine": asdict(run.machine),
        "versions": run.versions,
        "methods": METHODS,
        "repetitions_override": run.repetitions,
        "rows": [_row_json(result) for result in run.results],
    }


def _row_json(result: RowResult) -> dict[str, Any]:
    return {
        "key": result.key,
        "title": result.title,
        "target": result.target,
        "beside": result.beside,
        "status": result.status,
        "skipped": result.skipped,
        "error": asdict(result.error) if result.error else None,
        "notes": list(result.notes),
        "seconds": result.seconds,
        "figures": [_figure_json(figure) for figure in result.figures],
    }


def _figure_json(figure: Figure) -> dict[str, Any]:
    return {
        "name": figure.name,
        "kind": figure.kind,
        "parameters": dict(figure.parameters),
        "target": asdict(figure.target) if figure.target else None,
        "judged_value": figure.judged_value,
        "is_met": figure.is_met,
        "verdict": verdict(figure),
        "seconds": figure.seconds,
        "ours": _series_json(figure.ours),
        "theirs": _series_json(figure.theirs),
        "ratio": _series_json(figure.ratio),
    }


def _series_json(series: Series | None) -> dict[str, Any] | None:
    if series is None:
        return None
    return {**asdict(series), "statistics": asdict(series.statistics)}


def write_json(run: Run, out: Path) -> Path:
    """Written after every row, so that a machine that dies takes one row with it; `latest.json` once complete."""
    path = out / f"{run.stem}.json"
    content = json.dumps(run_json(run), ensure_ascii=False, indent=1, allow_nan=False).encode() + b"\n"
    write_atomically(path, content)
    if run.is_complete:
        write_atomically(out / "latest.json", content)
    return path


# --- plots ------------------------------------------------------------------------------------------------------------


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
    """A PNG and an SVG for each row with figures; the PNG's name by row key. Raises ImportError without matplotlib."""
    matplotlib = importlib.import_module("matplotlib")
    figures = importlib.import_module("matplotlib.figure")
    names = {}
    with matplotlib.rc_context({"svg.hashsalt": "luminet", "font.size": 9, "axes.titlesize": 10}):
        for result in (result for result in run.results if result.figures):
            drawn = _draw(figures, result, footer=" · ".join(headline(run)[:2]))
            for kind in ("png", "svg"):
                content = io.BytesIO()
                drawn.savefig(content, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
                write_atomically(out / f"{run.stem}-{result.key}.{kind}", content.getvalue())
            names[result.key] = f"{run.stem}-{result.key}.png"
    return names


def _draw(figures: ModuleType, result: RowResult, *, footer: str) -> Any:
    shown = panels(result)
    heights = [0.55 + 0.4 * len(panel.series) for panel in shown]
    # No pyplot: it keeps every figure alive and picks a window system.
    drawn = figures.Figure(figsize=(9, sum(heights) + 0.75 * len(shown) + 0.8), layout="constrained")
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
    axis.grid(axis="x", color="#dddddd", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right", "left"]].set_visible(False)
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
    """Logarithmic when the sides are so far apart that the faster would be a dot at the edge."""
    values = [value for series in panel.series for value in series.samples]
    if min(values) > 0 and max(values) / min(values) > 20:
        axis.set_xscale("log")
        axis.xaxis.get_major_locator().set_params(subs=(1, 2, 5))
        axis.xaxis.set_major_formatter(lambda value, _: format_number(value))
        axis.xaxis.set_minor_formatter(lambda value, _: "")
        return ", logarithmic"
    return ""


def _draw_target(axis: Any, panel: Panel, target: Target) -> None:
    """The target's line; where it lies so far off that it would flatten the samples, the title alone names it."""
    low, high = axis.get_xlim()
    if not low - 4 * (high - low) <= target.bound <= high + 4 * (high - low):
        return
    colour, is_right = OK if panel.is_met else BAD, target.bound > (low + high) / 2
    axis.axvline(target.bound, color=colour, linewidth=1.4, linestyle=(0, (5, 3)))
    place = {"transform": axis.get_xaxis_transform(), "ha": "right" if is_right else "left", "va": "top"}
    axis.text(target.bound, 0.99, " target ", color=colour, fontsize=8, **place)
    if target.tolerance:
        axis.axvspan(target.bound - target.tolerance, target.bound + target.tolerance, color=OK, alpha=0.1, linewidth=0)
