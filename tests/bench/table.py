"""The one table of a run, for the terminal and as Markdown."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from engine_agent.tools.report import BOLD, DIM, GREEN, RED, aligned, format_number, painted
from tests.bench.figures import Figure, Series
from tests.bench.results import RowResult, Run
from tests.bench.words import parameters_text, target_text, verdict, with_unit

HEADINGS = ("figure", "n", "median", "spread", "p5 – p95", "target", "verdict")
PIPE = r"\|"
COLOURS = {"✓": GREEN, "✗": RED, "!": RED}  # of what begins so
TEXTS = (0, len(HEADINGS) - 1)  # columns that are words


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


def terminal(run: Run, *, colour: bool) -> str:
    figures = [figure for result in run.results for figure in result.figures]
    body = [(*cell, _marked(last, colour)) for figure in figures for *cell, last in cells(figure)]
    headings, *drawn = (f"    {line}" for line in aligned([HEADINGS, *body], left=TEXTS, gap="   "))
    lines = [*headline(run), versions_text(run), "", painted(headings, DIM, colour)]
    rows = iter(drawn)
    for result in run.results:
        lines += ["", *_terminal_row(result, rows, colour)]
    return "\n".join([*lines, "", tally(run)]) + "\n"


def _terminal_row(result: RowResult, rows: Iterator[str], colour: bool) -> list[str]:
    """`rows` are those of the table, of which each figure takes its own."""
    lines = [painted(f"{result.key}  {result.title}", BOLD, colour)]
    if aims := _aims(result):
        lines.append(painted(f"    {aims}", DIM, colour))
    for figure in result.figures:
        lines += islice(rows, len(cells(figure)))
        if figure.parameters:
            lines.append(painted(f"      {parameters_text(figure)}", DIM, colour))
    return lines + [f"    {_marked(f'{sign} {text}', colour)}" for sign, text in remarks(result)]


def _marked(text: str, colour: bool) -> str:
    return painted(text, COLOURS[text[0]], colour) if text[:1] in COLOURS else text


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
    rule = tuple("---:" if 0 < column < len(HEADINGS) - 1 else "---" for column in range(len(HEADINGS) + 1))
    table = [(*HEADINGS, "sizes"), rule, *body]
    return [f"| {' | '.join(cell.replace('|', PIPE) for cell in line)} |" for line in table] + [""]
