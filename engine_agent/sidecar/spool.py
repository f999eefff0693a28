"""Reports until they are acknowledged: numbered from 1, on disk before they are sent, deleted after their arrival.

A spool's id is created with its file, so the control plane sees when an agent starts a new one. Lines of the file:

    <crc32 of what follows> {"spool": id, "from": n, "marks": {name: value, …}}              the first
    <crc32 of what follows> {"told": [[kind, told], …], "from": n, "upto": n, "marks": {…}}  appended, each in one write
    <crc32 of what follows> {"upto": n, "last": n}                                            these have arrived

A mark says up to where a source is reported. It is in the same line as the reports, so that both are on disk or
neither.

A last line torn by a crash was never sent. Damage before it loses the reports of that line and is logged. Each line
says how far its numbers go and what has arrived, so lost numbers remain a gap that the control plane sees. If the
assigned numbers are unknown, a new spool sends the remaining reports.

A spool restored from a copy assigns numbers a second time, and the control plane would take those reports for known
ones. So until the control plane's first answer, only reports read from disk are sent. If more than those have arrived,
the spool is a restored copy.
"""

import errno
import json
import os
import re
import secrets
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from engine_agent.contracts.protocol import canonical_json
from engine_agent.contracts.wire import MOST_BATCH_BYTES, MOST_REPORTS, REPORT_KINDS, Batch, Report, ReportKind

MOST_GONE_LINES = 1_000  # acknowledgements and the reports that they cover, before the file is rewritten
OF_A_LINE = 16  # reports in a line of a rewritten file
SHORTEST_TOLD = 60  # bytes of the shortest line with reports; acknowledgement lines are shorter
ROOM_BYTES = 64 * 1024  # of a batch, reserved for its heartbeat
BESIDE_BYTES = 64  # bytes in a batch around each report's content
_LINE = re.compile(rb"([0-9a-f]{8}) (\{.*\})\n", re.DOTALL)
PROOFS = "proofs"  # the mark of the last reported proof
ProofsTold = tuple[str, int]
Marks = Mapping[str, Any]  # JSON values by name


class Lines(Protocol):
    """The storage of a spool."""

    def read(self) -> bytes: ...

    def append(self, line: bytes, *, is_durable: bool = True) -> None:
        """Append a line. It is on disk when it returns if `is_durable`."""

    def replace(self, content: bytes) -> None:
        """Replace the whole content in one step. It is on disk when it returns."""


class Frozen:
    """A copy of a spool's lines for reading. Writes are ignored."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def read(self) -> bytes:
        return self._content

    def append(self, line: bytes, *, is_durable: bool = True) -> None:
        """Ignore the line."""

    def replace(self, content: bytes) -> None:
        """Ignore the content."""


class Spool:
    def __init__(self, lines: Lines) -> None:
        """Read the file. If it is missing or its first line is damaged, start a new spool."""
        self._lines = lines
        # Number, kind and content as JSON text: parsed, a day of an outage would take eight times the memory.
        self._waiting: deque[tuple[int, ReportKind, bytes]] = deque()
        self._kinds: Counter[str] = Counter()  # of `_waiting`; read while another thread writes
        self.id, self._last, self._lines_gone = "", 0, 0
        self.marks: dict[str, Any] = {}
        self._confirmed_id = ""  # id of the spool, once the control plane has answered for it or if it is new
        self.problem = self._read(lines.read())
        if not self.id:
            self.id = self._confirmed_id = secrets.token_hex(8)
            self._rewrite()
        self._read_upto = self._last  # number of the last report read from disk

    def __len__(self) -> int:
        return len(self._waiting)

    def waiting(self, kind: ReportKind) -> int:
        """Return how many reports of a kind are not acknowledged yet."""
        return self._kinds[kind]

    @property
    def kinds_waiting(self) -> frozenset[ReportKind]:
        return frozenset(kind for kind in REPORT_KINDS if self._kinds[kind])

    @property
    def proofs_told(self) -> ProofsTold | None:
        boot, number = self.marks.get(PROOFS) or (None, 0)
        return None if boot is None else (str(boot), int(number))

    @property
    def first(self) -> int:
        """The number of the first report to be sent, or the next number if there is none."""
        return self._waiting[0][0] if self._waiting else self._last + 1

    def tell(
        self, reports: Sequence[Report], proofs_told: ProofsTold | None = None, marks: Marks | None = None
    ) -> None:
        entries = [[report.kind, dict(report.told)] for report in reports]
        new_marks = {**(marks or {}), **({PROOFS: proofs_told} if proofs_told else {})}
        self._lines.append(self._told_line(entries, new_marks))
        self._take(entries, self._last + 1, new_marks)

    def batch(self, *, sent_at: float, heartbeat: Mapping[str, Any] | None, most: int = MOST_REPORTS) -> Batch:
        """Return as many reports as fit in one request, oldest first, up to a gap in the numbers."""
        reports: list[Report] = []
        room = MOST_BATCH_BYTES - ROOM_BYTES
        for number, kind, content in self._waiting:
            room -= len(content) + BESIDE_BYTES
            if len(reports) == most or number != self.first + len(reports) or (room < 0 and reports):
                break
            if number > self._read_upto and self._confirmed_id != self.id:
                break
            reports.append(Report(kind, json.loads(content)))
        return Batch(sent_at, self.id, self.first, reports, heartbeat)

    def acknowledge(self, upto: int) -> None:
        """Delete the reports up to `upto`, which the control plane has stored.

        If it has stored more than possible, this spool was restored from a copy and numbers were assigned twice. Then
        all reports read from disk have arrived, and a new spool sends those written since.
        """
        is_copy = upto > (self._last if self._confirmed_id == self.id else self._read_upto)
        self._confirmed_id = self.id
        if is_copy:
            self._arrived(self._read_upto)
            self._begin_anew()
        else:
            self.give_up(upto)

    def give_up(self, upto: int) -> None:
        """Delete the reports up to `upto`, whether the control plane has stored them or not."""
        deleted = self._arrived(upto)
        if not deleted:
            return
        self._lines_gone += deleted + 1
        if self._lines_gone >= MOST_GONE_LINES:
            self._rewrite()
        else:
            # If this line is lost, the reports are sent again and the control plane recognises them.
            self._lines.append(_line({"upto": upto, "last": self._last}), is_durable=False)

    def _begin_anew(self) -> None:
        self.id, self._last = secrets.token_hex(8), len(self._waiting)
        self._confirmed_id, self._read_upto = self.id, 0
        self._waiting = deque((number, kind, content) for number, (_, kind, content) in enumerate(self._waiting, 1))
        self._rewrite()

    def _take(self, entries: Iterable[Sequence[Any]], first: int, marks: Marks) -> None:
        for number, (kind, document) in enumerate(entries, first):
            self._last = max(self._last, number)
            self._waiting.append((number, kind, canonical_json(document)))
            self._kinds[kind] += 1
        self.marks.update(marks)

    def _read(self, content: bytes) -> str:
        """Read the lines, and return a description of the damage."""
        complete, incomplete = content[: content.rfind(b"\n") + 1], content[content.rfind(b"\n") + 1 :]
        damaged = doubtful = 0  # bytes; and those of them after the last line that says how far numbers go
        for line in complete.splitlines(keepends=True):
            if (record := _told_by(line)) is None:
                damaged, doubtful = damaged + len(line), doubtful + len(line)
            else:
                self._understand(record)
                doubtful = 0
        if damaged and (not self.id or doubtful >= SHORTEST_TOLD):  # the assigned numbers are unknown
            self._begin_anew()
        elif self.id and (damaged or incomplete):
            self._rewrite()
        return f"{damaged} bytes are damaged, and what they told is lost" if damaged else ""

    def _understand(self, line: Mapping[str, Any]) -> None:
        if "spool" in line:
            self.id, self._last = line["spool"], line["from"] - 1
            self._take((), line["from"], _marks_of(line))
        elif "told" in line:
            self._take(line["told"], line["from"], _marks_of(line))
            self._arrived(line["upto"])
        else:
            self._last = max(self._last, line["last"])
            self._arrived(line["upto"])
            self._lines_gone += 2

    def _arrived(self, upto: int) -> int:
        """Drop the waiting reports up to `upto` and return how many they were."""
        dropped = 0
        while self._waiting and self._waiting[0][0] <= upto:
            _, kind, _ = self._waiting.popleft()
            self._kinds[kind] -= 1
            dropped += 1
        return dropped

    def _rewrite(self) -> None:
        head = _line({"spool": self.id, "from": self._last + 1, "marks": self.marks})
        self._lines.replace(head + b"".join(self._lines_waiting()))
        self._lines_gone = 0

    def _lines_waiting(self) -> Iterator[bytes]:
        """Yield lines with a few reports each, so that damage costs few. Gaps remain."""
        for _, run in groupby(
            enumerate(self._waiting), key=lambda indexed: (indexed[1][0] - indexed[0], indexed[0] // OF_A_LINE)
        ):
            numbered = [report for _, report in run]
            entries = [[kind, json.loads(content)] for _, kind, content in numbered]
            yield _line({"told": entries, "from": numbered[0][0], "upto": 0, "marks": {}})

    def _told_line(self, entries: Sequence[Sequence[Any]], marks: Marks) -> bytes:
        return _line({"told": entries, "from": self._last + 1, "upto": self.first - 1, "marks": marks})


def _marks_of(line: Mapping[str, Any]) -> Marks:
    """Return a line's marks. Older lines have only the mark of proofs."""
    if "marks" in line:
        return dict(line["marks"])
    return {PROOFS: line["proofs"]} if line["proofs"] else {}


def _told_by(line: bytes) -> dict[str, Any] | None:
    """Return a line's content, or None if it is damaged."""
    match = _LINE.fullmatch(line)
    if match is None or int(match[1], 16) != zlib.crc32(match[2]):
        return None
    return dict(json.loads(match[2]))


def _line(content: Mapping[str, Any]) -> bytes:
    text = canonical_json(content)
    return b"%08x %s\n" % (zlib.crc32(text), text)


class SpoolFile:
    """A spool file that only its owner may read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> bytes:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return b""

    def append(self, line: bytes, *, is_durable: bool = True) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            _append(descriptor, line, is_durable=is_durable)
        finally:
            os.close(descriptor)

    def replace(self, content: bytes) -> None:
        replace_file(self._path, content)


def _append(descriptor: int, line: bytes, *, is_durable: bool) -> None:
    end = os.fstat(descriptor).st_size
    try:
        if os.write(descriptor, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if is_durable:
            os.fsync(descriptor)
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, end)  # half a line would corrupt the next one
        raise


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file so that a power loss leaves the old or the new content. Only the owner may read it."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)  # a partial file would only fill the disk
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
