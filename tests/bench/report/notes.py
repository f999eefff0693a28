"""The words of docs/performance.md: docs/performance/notes/*.md, a file for each section, in the order of their names.

# The cache
rows: C1, C2

What is compared, and how.

## C1
What a reader is to know beside the row's table. Figures come in by name: [[new prompt]] is its median with its unit.

### short: new prompt | of ours: *
Why, of these figures, one that falls short does. Shown only while one does.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

_PARTS = re.compile(r"^(##|###) (.+)$", re.MULTILINE)
_SHORT = "short: "
_ROWS = re.compile(r"\A# (?P<title>.+)\nrows: (?P<rows>.+)\n", re.MULTILINE)


class Unclear(Exception):
    """A file of words that cannot be read; names the file and the place."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why figures of these names fall short. `*` stands for anything."""

    figures: tuple[str, ...]
    words: str

    def is_of(self, figure: str) -> bool:
        return any(fnmatchcase(figure, pattern) for pattern in self.figures)


@dataclass(slots=True)
class RowWords:
    words: str = ""
    reasons: list[Reason] = field(default_factory=list)

    def why_short(self, figure: str) -> Reason | None:
        return next((one for one in self.reasons if one.is_of(figure)), None)


@dataclass(frozen=True, slots=True)
class Section:
    name: str  # of its file
    title: str
    keys: tuple[str, ...]
    words: str
    rows: Mapping[str, RowWords]

    @property
    def heading(self) -> str:
        return f"{_together(self.keys)}: {self.title}"


def _together(keys: Sequence[str]) -> str:
    return ", ".join(keys)


def sections_in(folder: Path) -> list[Section]:
    return [section_of(path.stem, path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.md"))]


def section_of(name: str, text: str) -> Section:
    head = _ROWS.match(text)
    if head is None:
        raise Unclear(f"{name}: begins with '# title' and 'rows: keys', found {text[:40]!r}")
    keys = tuple(key.strip() for key in head["rows"].split(","))
    words, rows = "", {key: RowWords() for key in keys}
    key = ""
    for level, title, part in _parts(text[head.end() :]):
        if level == "##":
            key = title
            if key not in rows:
                raise Unclear(f"{name}: ## {key} is none of its rows, {head['rows']}")
            rows[key].words = part
        elif level == "###":
            if not key or not title.startswith(_SHORT):
                raise Unclear(f"{name}: '### short: figures' stands below a row, found '### {title}'")
            figures = tuple(one.strip() for one in title.removeprefix(_SHORT).split(" | "))
            rows[key].reasons.append(Reason(figures, part))
        else:
            words = part
    return Section(name, head["title"], keys, words, rows)


def _parts(text: str) -> Iterator[tuple[str, str, str]]:
    """Level, title and what stands below it; the beginning has neither level nor title."""
    level, title, at = "", "", 0
    for found in _PARTS.finditer(text):
        yield level, title, text[at : found.start()].strip()
        level, title, at = found[1], found[2].strip(), found.end()
    yield level, title, text[at:].strip()
