"""The journal's files: a folder for each boot, with segments of a few MiB named by their first record's number.

    journal/000003-<boot>/000000000001.log

Reader and writer may be different threads: a reader sees what existed when it started.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from engine_agent.journal.records import DamagedLine, Entry, entry_of

BOOT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
_FOLDER = re.compile(rf"(\d{{6}})-({BOOT.pattern})", re.ASCII)
_BEGINNING = re.compile(rb'[0-9a-f]{8} \{"sequence":')
_SEGMENT = re.compile(r"(\d{12})\.log", re.ASCII)


@dataclass(slots=True)
class Segment:
    path: Path
    first: int
    last: int  # first - 1 while it is empty
    size: int = 0

    @property
    def records(self) -> int:
        return self.last - self.first + 1


@dataclass(slots=True)
class BootFolder:
    """One boot's segments, oldest first."""

    path: Path
    ordinal: int
    boot: str
    segments: list[Segment] = field(default_factory=list)
    # Where the last read ended, so that following the journal does not read a segment repeatedly.
    _reached: tuple[int, Path, int] = (0, Path(), 0)

    @property
    def first(self) -> int:
        return self.segments[0].first if self.segments else 1

    @property
    def last(self) -> int:
        return self.segments[-1].last if self.segments else 0

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    def add_segment(self, first: int) -> Segment:
        segment = Segment(self.path / f"{first:012d}.log", first, first - 1)
        self.segments.append(segment)
        return segment

    def read(self, after: int, limit: int) -> list[Entry]:
        """Return at most `limit` intact records after number `after`."""
        entries: list[Entry] = []
        for entry, position in self._entries(after):
            if entry.sequence > after:
                entries.append(entry)
                self._reached = position
                if len(entries) == limit:
                    break
        return entries

    def _entries(self, after: int) -> Iterator[tuple[Entry, tuple[int, Path, int]]]:
        last_sequence, last_path, last_offset = self._reached
        for segment in [segment for segment in self.segments if segment.last > after]:
            start = last_offset if (last_sequence, last_path) == (after, segment.path) else 0
            for entry, end in _entries(segment, start):
                yield entry, (entry.sequence, segment.path, end)


def boot_folders(root: Path) -> list[BootFolder]:
    """Return the boots with files, oldest first. Cut off a last line that a crash left incomplete."""
    folders = []
    for path in root.iterdir():
        if (match := _FOLDER.fullmatch(path.name)) and path.is_dir():
            folder = BootFolder(path, int(match[1]), match[2])
            folder.segments = _segments(path)
            folders.append(folder)
    return sorted(folders, key=lambda folder: folder.ordinal)


def boot_folder_make(root: Path, ordinal: int, boot: str) -> BootFolder:
    path = root / f"{ordinal:06d}-{boot}"
    path.mkdir(mode=0o700)
    return BootFolder(path, ordinal, boot)


def _segments(folder: Path) -> list[Segment]:
    numbered_paths = sorted(
        (int(match[1]), path) for path in folder.iterdir() if (match := _SEGMENT.fullmatch(path.name))
    )
    segments = [Segment(path, first, first - 1, path.stat().st_size) for first, path in numbered_paths]
    for segment, following in pairwise(segments):
        segment.last = following.first - 1
    if segments:
        _end_mended(segments[-1])
    return segments


def _end_mended(segment: Segment) -> None:
    """Cut off an incomplete last line, and find the number of the last record."""
    content = segment.path.read_bytes()
    segment.size = content.rfind(b"\n") + 1
    if segment.size < len(content):
        os.truncate(segment.path, segment.size)
    segment.last = _last_number(segment.first, content[: segment.size].split(b"\n")[:-1])


def _last_number(first: int, lines: list[bytes]) -> int:
    """Return the last record's number. Damaged last lines count by position, so that readers learn of their loss."""
    for damaged, line in enumerate(reversed(lines)):
        try:
            return entry_of(line).sequence + _records_in(lines[len(lines) - damaged :])
        except DamagedLine:
            continue
    return first - 1 + _records_in(lines)


def _records_in(damaged: list[bytes]) -> int:
    """Return how many records these lines were: damage can split a line, or join two."""
    beginnings = [match.start() for match in _BEGINNING.finditer(b"\n".join(damaged))]
    return len(beginnings) + (bool(damaged) and 0 not in beginnings)


def _entries(segment: Segment, start: int) -> Iterator[tuple[Entry, int]]:
    """Yield the intact records from byte `start` on, each with the offset of the next."""
    try:
        with segment.path.open("rb") as file:
            file.seek(start)
            content = file.read(segment.size - start)
    except FileNotFoundError:  # deleted since this read began
        return
    end = start
    for line in content.split(b"\n"):
        end += len(line) + 1
        try:
            yield entry_of(line), end
        except DamagedLine:
            continue
