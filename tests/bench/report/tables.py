"""A row's figures as tables: one line each; what would be hundreds of lines is turned, or only its worst shown."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine_agent.tools.report import format_number
from tests.bench.figures import Figure
from tests.bench.report.filling import value_of
from tests.bench.results import RowResult
from tests.bench.words import target_text, verdict, with_unit

HEADINGS = ("figure", "n", "median", "p5 – p95", "target", "")
MANY = 12  # figures; of more, those without a target are folded away


@dataclass(frozen=True, slots=True)
class Turned:
    """Figures whose names have three parts: which table, which line, which column. A cell is the median."""

    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Worst:
    """Of figures with the same target those that fall short, and the worst of the others."""

    prefix: str
    shown: int


TURNED = {
    "K1": Turned(re.compile(r"^(?P<line>.+), (?P<column>bf16|fp8|int8|k8v4|int4|nvfp4), (?P<table>\d threads?)$")),
    "Q1": Turned(re.compile(r"^(?P<table>(?:ΔPPL|KL) by (?:byte|token)) of (?P<column>[^,]+), (?P<line>.+)$")),
}
WORST = {"W1": Worst("page, ", 5)}


def tables(row: RowResult) -> list[str]:
    """Markdown, without a heading."""
    figures = list(row.figures)
    lines: list[str] = []
    if turned := TURNED.get(row.key):
        matching = [one for one in figures if turned.pattern.match(one.name)]
        lines += _turned(turned, matching)
        figures = [one for one in figures if one.target or one not in matching]
    if worst := WORST.get(row.key):
        figures, more = _without_the_good(figures, worst)
        return [*_listed(figures), more, ""]
    return [*_listed(figures), *lines]


def _listed(figures: Sequence[Figure]) -> list[str]:
    judged = [one for one in figures if one.target]
    others = [one for one in figures if not one.target]
    if len(figures) <= MANY or not judged or not others:
        return _table(figures)
    return [
        *_table(judged),
        f"<details><summary>{len(others)} more figures of this row</summary>",
        "",
        *_table(others),
        "</details>",
        "",
    ]


def _table(figures: Iterable[Figure]) -> list[str]:
    body = [_line(one) for one in figures]
    return _markdown(HEADINGS, body, numeric=range(1, 5)) if body else []


def _line(figure: Figure) -> tuple[str, ...]:
    judged = figure.judged
    found = judged.statistics
    name = figure.name
    if figure.theirs is not None:
        name += f": ours ÷ {figure.theirs.name}'s ({value_of(figure, 'pair')})"
    between = with_unit(f"{format_number(found.p5)} – {format_number(found.p95)}", judged.unit) if found.n > 1 else ""
    target = target_text(figure.target, judged.unit) if figure.target else ""
    words = verdict(figure) if figure.target else ""
    return name, str(found.n), with_unit(format_number(found.median), judged.unit), between, target, words


def _turned(turned: Turned, figures: Sequence[Figure]) -> list[str]:
    parts = [(found.groupdict(), one) for one in figures if (found := turned.pattern.match(one.name))]
    lines: list[str] = []
    for table in dict.fromkeys(part["table"] for part, _ in parts):
        cells = {(part["line"], part["column"]): one for part, one in parts if part["table"] == table}
        columns = list(dict.fromkeys(column for _, column in cells))
        names = list(dict.fromkeys(line for line, _ in cells))
        body = [(line, *(_cell(cells.get((line, column))) for column in columns)) for line in names]
        unit = next(iter(cells.values())).judged.unit
        lines += _markdown((f"{table} [{unit}]", *columns), body, numeric=range(1, len(columns) + 1))
    return lines


def _cell(figure: Figure | None) -> str:
    return "" if figure is None else format_number(figure.judged.statistics.median)


def _without_the_good(figures: Sequence[Figure], worst: Worst) -> tuple[list[Figure], str]:
    """What is shown, and a sentence about what is not."""
    alike = [one for one in figures if one.name.startswith(worst.prefix)]
    alike.sort(key=lambda one: -one.judged_value)
    short = [one for one in alike if one.is_met is False]
    shown = [*short, *[one for one in alike if one.is_met][: worst.shown]]
    left = len(alike) - len(shown)
    rest = [one for one in figures if one not in alike]
    return [*rest, *shown], f"The other {left} of {len(alike)} are met, and are quicker than these." if left else ""


def _markdown(headings: Sequence[str], body: Sequence[Sequence[str]], *, numeric: range) -> list[str]:
    rule = ["---:" if column in numeric else "---" for column in range(len(headings))]
    return [_joined(line) for line in (headings, rule, *body)] + [""]


def _joined(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
