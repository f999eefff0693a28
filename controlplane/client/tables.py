"""Output for people: aligned tables, with colours on a terminal. Programs get JSON."""

import json
import os
import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

GREEN, YELLOW, RED, DIM, BOLD = 32, 33, 31, 2, 1
GAP = "  "
_COLOUR = re.compile(rf"(\x1b\[(?:0|{GREEN}|{YELLOW}|{RED}|{DIM}|{BOLD})m)")
_MOMENT = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})T([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.[0-9]+)?(?:Z|\+00:00)")


class Paper:
    """The output of a command, with colours if it is a terminal."""

    def __init__(self, stream: TextIO | None = None, environ: Mapping[str, str] = os.environ) -> None:
        self._stream = stream or sys.stdout
        self._colourful = self._stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"

    def say(self, *lines: str) -> None:
        """Print each text on one line; no control characters are left but our own colours."""
        for line in lines:
            print(self._guarded(line), file=self._stream, flush=True)

    def json(self, value: Any) -> None:
        self.say(*(_escaped(line) for line in json.dumps(value, indent=2, ensure_ascii=False).split("\n")))

    def _guarded(self, line: str) -> str:
        if not self._colourful:
            return plain(line)
        return "".join(piece if _COLOUR.fullmatch(piece) else plain(piece) for piece in _COLOUR.split(line))

    def paint(self, text: str, colour: int) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colourful else text

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[Any]], *, empty: str) -> None:
        """Print a table with every cell in full: a shortened id is useless."""
        if not rows:
            self.say(self.paint(empty, DIM))
            return
        cells = [[cell(field) for field in row] for row in rows]
        widths = [max(width(row[index]) for row in ([*heads], *cells)) for index in range(len(heads))]
        self.say(self.paint(_line(heads, widths), BOLD), *(_line(row, widths) for row in cells))

    def numbers(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table with all columns but the first aligned right, for numbers."""
        widths = [max(len(row[at]) for row in (heads, *rows)) for at in range(len(heads))]
        aligned = [[text.rjust(widths[at]) if at else text for at, text in enumerate(row)] for row in (heads, *rows)]
        self.table(aligned[0], aligned[1:], empty="")

    def record(self, pairs: Sequence[tuple[str, Any]]) -> None:
        """Print one object, a field a line."""
        longest = max((width(name) for name, _ in pairs), default=0)
        for name, value in pairs:
            self.say(f"{self.paint(_padded(name, longest), DIM)}{GAP}{cell(value)}".rstrip())


def cell(value: Any) -> str:
    """Return the value on one line, without control characters."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(element, str) for element in value):
        return plain(", ".join(value)) or "none"
    if isinstance(value, dict | list):
        return plain(_MOMENT.sub(r"\1 \2 UTC", json.dumps(value, ensure_ascii=False)))
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        return _MOMENT.sub(r"\1 \2 UTC", value)
    return plain(f"{value:g}" if isinstance(value, float) else str(value))


def bound(value: Any) -> str:
    """Return the bound of a field as text."""
    if not isinstance(value, dict):
        return "operators only"
    if "allowed" in value:
        return "one of " + (cell(value["allowed"]))
    least, most = value.get("min"), value.get("max")
    if least is None and most is None:
        return "any"
    return f"{'up' if least is None else cell(least)} to {'any' if most is None else cell(most)}"


def plain(text: str) -> str:
    """Return the text with control characters replaced: names and notes may contain them."""
    return text if text.isprintable() else "".join(character if character.isprintable() else " " for character in text)


def _escaped(line: str) -> str:
    """Escape control characters in a line of JSON without changing its meaning."""
    return (
        line
        if line.isprintable()
        else "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in line)
    )


def width(text: str) -> int:
    """Return the columns that a terminal uses for the text."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)


def _padded(text: str, columns: int) -> str:
    return text + " " * (columns - width(text))


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return GAP.join(_padded(text, columns) for text, columns in zip(row, widths, strict=True)).rstrip()
