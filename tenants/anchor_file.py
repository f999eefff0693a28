"""The file of anchors, append-only with one line each.

A crash may leave an incomplete last line. The next anchor marks it, so that it does not count as damage later.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tenants.anchors import Anchor, AnchorDamaged, anchor_line, anchor_read

TAIL_BYTES = 64 * 1024  # some 300 anchors, read by the check of every minute
CUT_OFF = " (cut off)\n"  # the end of an incomplete line, whose writer crashed


@dataclass(frozen=True, slots=True)
class Lines:
    """The anchors of a file, or of its end.

    `damaged`: one sentence for each line that is not an anchor. `is_cut_off`: the last line is incomplete.
    """

    anchors: tuple[Anchor, ...]
    damaged: tuple[str, ...]
    is_cut_off: bool = False

    @property
    def last(self) -> Anchor | None:
        return self.anchors[-1] if self.anchors else None


def anchors_read(file: Path, *, last_bytes: int | None = None) -> Lines:
    """Read all anchors, or those among the last bytes. A missing file has none. Raise OSError."""
    anchors, damaged, is_cut_off = list[Anchor](), list[str](), False
    for name, line in _lines(file, last_bytes):
        if line.endswith(CUT_OFF):
            continue
        try:
            anchors.append(anchor_read(line))
        except AnchorDamaged as problem:
            if line.endswith("\n"):
                damaged.append(f"{name} of {file} {problem}")
            else:
                is_cut_off = True
    return Lines(tuple(anchors), tuple(damaged), is_cut_off)


def anchor_append(file: Path, anchor: Anchor) -> None:
    """Append an anchor. It is on disk when it returns. Raise OSError, after which the file is unchanged."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o640)
    with os.fdopen(descriptor, "rb+", buffering=0):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        _write_whole(descriptor, f"{_line_end(descriptor)}{anchor_line(anchor)}\n".encode())


def _write_whole(descriptor: int, content: bytes) -> None:
    """Write all of the content or none. A full disk may accept a part without an error; the rest then raises it."""
    size = os.fstat(descriptor).st_size
    try:
        while content:
            content = content[os.write(descriptor, content) :]
        os.fsync(descriptor)
    except OSError:
        with suppress(OSError):  # if this fails, an incomplete line remains
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)
        raise


def _line_end(descriptor: int) -> str:
    """Return the text that completes a last line without a newline, which a power loss may leave."""
    size = os.fstat(descriptor).st_size
    _, _, last = os.pread(descriptor, TAIL_BYTES, max(0, size - TAIL_BYTES)).rpartition(b"\n")
    if not last:
        return ""
    try:
        anchor_read(last.decode("utf-8", "replace"))
    except AnchorDamaged:
        return CUT_OFF
    return "\n"


def _lines(file: Path, last_bytes: int | None) -> Iterator[tuple[str, str]]:
    """Yield a name for each line, and the line with its end."""
    try:
        opened = file.open("rb")
    except FileNotFoundError:
        return
    with opened:
        skipped = max(0, os.fstat(opened.fileno()).st_size - (last_bytes or 0)) if last_bytes else 0
        opened.seek(max(0, skipped - 1))
        if skipped:
            opened.readline()  # skip the line whose start is not read
        for number, line in enumerate(opened, 1):
            name = f"line {number}" if not skipped else f"line {number} of the last {TAIL_BYTES // 1024} KiB"
            yield name, line.decode("utf-8", "replace")
