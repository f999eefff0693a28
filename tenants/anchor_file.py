"""The file of anchors: one line each, only ever added to."""

import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tenants.anchors import Anchor, AnchorDamaged, anchor_line, anchor_read

TAIL_BYTES = 64 * 1024  # some 300 anchors: what the check of every minute reads


@dataclass(frozen=True, slots=True)
class Lines:
    """What a file holds, or its end. `damaged`: one sentence for each line that is no anchor."""

    anchors: tuple[Anchor, ...]
    damaged: tuple[str, ...]

    @property
    def last(self) -> Anchor | None:
        return self.anchors[-1] if self.anchors else None


def anchors_read(file: Path, *, last_bytes: int | None = None) -> Lines:
    """All of them, or those among the last bytes. A file that is not there has none. Raises OSError."""
    anchors, damaged = list[Anchor](), list[str]()
    for name, line in _lines(file, last_bytes):
        try:
            anchors.append(anchor_read(line))
        except AnchorDamaged as problem:
            damaged.append(f"{name} of {file} {problem}")
    return Lines(tuple(anchors), tuple(damaged))


def anchor_append(file: Path, anchor: Anchor) -> None:
    """On the disk when it returns. Raises OSError."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o640)
    with os.fdopen(descriptor, "rb+", buffering=0) as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        opened.write(_beginning(opened.fileno()) + f"{anchor_line(anchor)}\n".encode())
        os.fsync(opened.fileno())


def _beginning(descriptor: int) -> bytes:
    """A line of its own also behind one that was cut off by a power cut."""
    size = os.fstat(descriptor).st_size
    return b"" if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n" else b"\n"


def _lines(file: Path, last_bytes: int | None) -> Iterator[tuple[str, str]]:
    """Each with a name for people."""
    try:
        opened = file.open("rb")
    except FileNotFoundError:
        return
    with opened:
        skipped = max(0, os.fstat(opened.fileno()).st_size - (last_bytes or 0)) if last_bytes else 0
        opened.seek(max(0, skipped - 1))
        if skipped:
            opened.readline()  # the rest of a line whose beginning is not read
        for number, line in enumerate(opened, 1):
            name = f"line {number}" if not skipped else f"line {number} of the last {TAIL_BYTES // 1024} KiB"
            yield name, line.decode("utf-8", "replace").rstrip("\n")
