"""The README's few figures: those lines of the page's table that say most, between two marks."""

import re
from collections.abc import Mapping

from tests.bench.report.numbers import BY_KEY
from tests.bench.report.standing import figures_text, is_shortened, standing
from tests.bench.results import RowResult, Run

KEYS = ("C1", "C5", "E2", "G1", "G3", "P1", "A3", "A4", "S1", "S3")
BEGIN, END = "<!-- figures: written by make performance -->", "<!-- end of figures -->"
NONE_YET = "The run that is kept is a short one, to see that every row works: its figures prove nothing"
_MARKED = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)


class NoPlace(Exception):
    """The README has lost its marks."""


def with_figures(readme: str, run: Run) -> str:
    if not _MARKED.search(readme):
        raise NoPlace(f"README.md: expected {BEGIN} and {END}, found neither or one")
    return _MARKED.sub(lambda _: "\n".join([BEGIN, *_table({row.key: row for row in run.results}), END]), readme)


def _table(rows: Mapping[str, RowResult]) -> list[str]:
    """Of rows that were measured as they should be alone: nobody reads the reservations of a README."""
    whole = [key for key in KEYS if key in rows and not is_shortened(rows[key])]
    if not whole:
        return [f"{NONE_YET}."]
    lines = ["| what | figure | wanted | |", "|---|---|---|---|"]
    for key in whole:
        number, row = BY_KEY[key], rows[key]
        lines.append(f"| {number.what} | {figures_text(number, row)} | {number.reach} | {standing(number, row).word} |")
    return lines
