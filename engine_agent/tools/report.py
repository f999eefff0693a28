"""Formatting of tools' results for people and programs: numbers with units, tables, progress, and files.

Standard library only.
"""

import json
import math
import os
import re
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

TOKENS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
NO_VALUE = "–"
BOLD, DIM, RED, GREEN, YELLOW, BLUE = (f"\x1b[{code}m" for code in (1, 2, 31, 32, 33, 34))
PLAIN = "\x1b[0m"
GAP = "  "
REDRAW_SECONDS = 0.1
CLEAR = "\r\x1b[2K"
_COLOUR = re.compile(r"\x1b\[\d+m")


def format_number(value: float) -> str:
    """Return three significant digits, or all digits of whole numbers, thousands separated: 0.0123, 1.40, 12,031."""
    if value == int(value):
        return f"{value:,.0f}"
    decimals = min(max(0, 2 - math.floor(math.log10(abs(value)))), 9)
    return f"{value:,.{decimals}f}"


def format_amount(tokens: float) -> str:
    """Return three digits with a prefix: 10.9 M, 512, 1.54 k."""
    for sign in reversed(TOKENS):
        if tokens >= TOKENS[sign] * 0.9995:
            scaled = tokens / TOKENS[sign]
            decimals = 0 if scaled >= 99.95 or not sign else 1 if scaled >= 9.995 else 2
            return f"{scaled:.{decimals}f} {sign}".rstrip()
    return f"{tokens:.0f}"


def format_percent(ratio: float | None) -> str:
    return NO_VALUE if ratio is None else f"{100 * ratio:.1f} %"


def format_duration(seconds: float) -> str:
    """Return a duration for people who wait: 40 s, 12 min, 1 h 24 min."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def wants_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def painted(text: str, colour: str, is_colourful: bool = True) -> str:
    return f"{colour}{text}{PLAIN}" if is_colourful and text.strip() else text


def aligned(rows: Iterable[Sequence[str]], *, left: Collection[int] = (0,), gap: str = GAP) -> list[str]:
    """Return a line for each row. Columns in `left` are left-aligned, others right-aligned; cells may be coloured."""
    cells = [list(row) for row in rows]
    widths = [max(map(_seen, column)) for column in zip(*cells, strict=True)]
    return [gap.join(_padded(cell, widths[n], n in left) for n, cell in enumerate(row)).rstrip() for row in cells]


def _seen(text: str) -> int:
    return len(_COLOUR.sub("", text))


def _padded(text: str, width: int, is_left: bool) -> str:
    room = " " * (width - _seen(text))
    return text + room if is_left else room + text


class Progress:
    """A tool's progress: one line on a terminal, removed at the end; nothing without a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._is_live = stream, stream.isatty()
        self._began = self._drawn = time.perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._is_live:
            self._write(CLEAR)

    def show(self, text: str, done: int, total: int) -> None:
        now = time.perf_counter()
        if not self._is_live or now - self._drawn < REDRAW_SECONDS:
            return
        self._drawn = now
        remaining = f" · {format_duration((now - self._began) * (total - done) / done)} left" if done else ""
        self._write(f"{CLEAR}{text} · {100 * done / total:.0f} %{remaining}")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader finds the old content or the new one, never a part."""
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


def print_or_write(text: str, document: Mapping[str, Any], file: Path | None) -> None:
    """Print the text and write the document to the file; for `-`, print only the document."""
    if file == Path("-"):
        print(json.dumps(document))
        return
    print(text)
    if file:
        file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")  # not atomically: it may be a pipe
        say_written(file)


def say_written(*paths: Path) -> None:
    for path in paths:
        print(f"wrote {path}", file=sys.stderr)
