"""How a row stands beside its number: met, short by how much, or why nobody knows."""

from dataclasses import dataclass
from typing import Literal

from tests.bench.figures import Figure
from tests.bench.report.filling import value_of
from tests.bench.report.numbers import Number
from tests.bench.results import RowResult
from tests.bench.words import verdict

Word = Literal["met", "short", "measured", "failed", "not measured"]
NAMED = 2  # short figures, in the table of all rows


@dataclass(frozen=True, slots=True)
class Standing:
    word: Word
    detail: str = ""

    @property
    def text(self) -> str:
        sign = {"met": "✓ ", "short": "✗ ", "failed": "! "}.get(self.word, "")
        return f"{sign}{self.word}{f': {self.detail}' if self.detail else ''}"


def is_shortened(row: RowResult) -> bool:
    """Measured with fewer repetitions than its own, to see that it works: what it says of a target proves nothing."""
    return row.circumstances is not None and row.circumstances.repetitions is not None


def standing(number: Number, row: RowResult | None) -> Standing:
    if row is None:
        return Standing("not measured", number.gpu or "in no run yet")
    judged = [one for one in row.figures if one.is_met is not None]
    short = [one for one in judged if not one.is_met]
    if row.error:
        return Standing("failed", "; ".join([row.error.message, *([_named(short, len(judged))] if short else [])]))
    if not judged and row.skipped is not None:
        return Standing("not measured", row.skipped)
    if not judged:
        return Standing("measured", number.gpu)
    if not short or (number.is_any and len(short) < len(judged)):
        return Standing("met")
    return Standing("short", _named(short, len(judged)))


def short_figures(number: Number, row: RowResult) -> list[Figure]:
    """Those that want a reason."""
    is_asked = standing(number, row).word in ("short", "failed")
    return [one for one in row.figures if one.is_met is False] if is_asked else []


def _named(short: list[Figure], judged: int) -> str:
    words = "; ".join(f"{one.name} {verdict(one).removeprefix('✗ short ')}" for one in short[:NAMED])
    more = f"; {len(short) - NAMED} more" if len(short) > NAMED else ""
    return f"{len(short)} of {judged} figures: {words}{more}" if judged > 1 else words


def figures_text(number: Number, row: RowResult | None) -> str:
    """The figures that the table of all rows shows."""
    by_name = {one.name: one for one in (row.figures if row else ())}
    parts = []
    for shown in number.shown:
        if figure := by_name.get(shown.figure):
            value = value_of(figure, shown.what)
            parts.append(f"{shown.label} {value}".strip())
    return " · ".join(parts)
