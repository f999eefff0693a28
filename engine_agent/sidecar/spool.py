"""Reports until they are acknowledged: numbered from 1, on disk before they are sent, forgotten when they have arrived.

A spool's id is made with its file, so whoever counts numbers sees when an agent begins anew. Lines of the file:

    <crc32 of what follows> {"spool": id, "from": n, "marks": {name: value, …}}              the first
    <crc32 of what follows> {"told": [[kind, told], …], "from": n, "upto": n, "marks": {…}}  appended, each in one write
    <crc32 of what follows> {"upto": n, "last": n}                                            these have arrived

A mark says up to where something is told: it stands in the line that tells it, so that both are on disk or neither.

A last line that a crash tore was told to nobody. Damage before that loses what stood there, and that is said: every
line says up to where its numbers go, and what has arrived. So numbers that were lost stay a gap, which the control
plane sees. Where it is not known which were given, what is left is told by a new spool.

A spool that was brought back from a copy gives numbers again that were given before, and what has them would be taken
for known over there. So until the control plane has first answered, only what was read from the disk is sent: where
more than that has arrived, it is such a copy.
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

MOST_GONE_LINES = 1_000  # acknowledgements and what they are of, before the file is written anew
OF_A_LINE = 16  # reports, when it is written anew
SHORTEST_TOLD = 60  # bytes of a line that tells anything: one that says what has arrived has fewer
ROOM_BYTES = 64 * 1024  # of a batch: for its heartbeat
BESIDE_BYTES = 64  # of a report in a batch: what is around what it tells
_LINE = re.compile(rb"([0-9a-f]{8}) (\{.*\})\n", re.DOTALL)
PROOFS = "proofs"  # the mark of up to which proof is told
ProofsTold = tuple[str, int]
Marks = Mapping[str, Any]  # by name: what JSON can hold


class Lines(Protocol):
    """Where a spool is kept."""

    def read(self) -> bytes: ...

    def append(self, line: bytes, *, is_durable: bool = True) -> None:
        """On disk when it returns, unless it need not be."""

    def replace(self, content: bytes) -> None:
        """All of it or none, and durable when it returns."""


class Frozen:
    """A spool's lines as they are at this moment: looking at them changes nothing, and nothing else does."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def read(self) -> bytes:
        return self._content

    def append(self, line: bytes, *, is_durable: bool = True) -> None:
        """Not to the file."""

    def replace(self, content: bytes) -> None:
        """Not the file."""


class Spool:
    def __init__(self, lines: Lines) -> None:
        """Reads what is there; where nothing is, or its first line is damaged, it begins anew."""
        self._lines = lines
        # Number, kind, and what is told as it is written: read, a day of an outage would be eight times as large.
        self._waiting: deque[tuple[int, ReportKind, bytes]] = deque()
        self._kinds: Counter[str] = Counter()  # of those; asked while another thread tells or acknowledges
        self.id, self._last, self._lines_gone = "", 0, 0
        self.marks: dict[str, Any] = {}
        self._confirmed_id = ""  # of the spool of which the control plane has said what it has, or that is new
        self.problem = self._read(lines.read())
        if not self.id:
            self.id = self._confirmed_id = secrets.token_hex(8)
            self._rewrite()
        self._read_upto = self._last  # the number of the last one that was read from the disk

    def __len__(self) -> int:
        return len(self._waiting)

    def waiting(self, kind: ReportKind) -> int:
        """How many reports of a kind are still to be sent, or not acknowledged yet."""
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
        """The number of the first that is still to be sent, or of the next there will be."""
        return self._waiting[0][0] if self._waiting else self._last + 1

    def tell(
        self, reports: Sequence[Report], proofs_told: ProofsTold | None = None, marks: Marks | None = None
    ) -> None:
        told = [[one.kind, dict(one.told)] for one in reports]
        moved = {**(marks or {}), **({PROOFS: proofs_told} if proofs_told else {})}
        self._lines.append(self._told_line(told, moved))
        self._take(told, self._last + 1, moved)

    def batch(self, *, sent_at: float, heartbeat: Mapping[str, Any] | None, most: int = MOST_REPORTS) -> Batch:
        """As many as one request may hold, oldest first, up to a gap."""
        reports: list[Report] = []
        room = MOST_BATCH_BYTES - ROOM_BYTES
        for number, kind, told in self._waiting:
            room -= len(told) + BESIDE_BYTES
            if len(reports) == most or number != self.first + len(reports) or (room < 0 and reports):
                break
            if number > self._read_upto and self._confirmed_id != self.id:
                break
            reports.append(Report(kind, json.loads(told)))
        return Batch(sent_at, self.id, self.first, reports, heartbeat)

    def acknowledge(self, upto: int) -> None:
        """These are stored over there. More than there can be: this spool was brought back from a copy, and numbers
        were given twice. What was read from the disk has arrived then; what was told since is told by a new one.
        """
        is_copy = upto > (self._last if self._confirmed_id == self.id else self._read_upto)
        self._confirmed_id = self.id
        if is_copy:
            self._arrived(self._read_upto)
            self._begin_anew()
        else:
            self.give_up(upto)

    def give_up(self, upto: int) -> None:
        """These are sent no more, whether they are stored over there or not."""
        gone = self._arrived(upto)
        if not gone:
            return
        self._lines_gone += gone + 1
        if self._lines_gone >= MOST_GONE_LINES:
            self._rewrite()
        else:
            # Losing this is sending again what is known over there.
            self._lines.append(_line({"upto": upto, "last": self._last}), is_durable=False)

    def _begin_anew(self) -> None:
        self.id, self._last = secrets.token_hex(8), len(self._waiting)
        self._confirmed_id, self._read_upto = self.id, 0
        self._waiting = deque((place, kind, told) for place, (_, kind, told) in enumerate(self._waiting, 1))
        self._rewrite()

    def _take(self, told: Iterable[Sequence[Any]], first: int, marks: Marks) -> None:
        for number, (kind, what) in enumerate(told, first):
            self._last = max(self._last, number)
            self._waiting.append((number, kind, canonical_json(what)))
            self._kinds[kind] += 1
        self.marks.update(marks)

    def _read(self, content: bytes) -> str:
        """What was found wrong."""
        whole, torn = content[: content.rfind(b"\n") + 1], content[content.rfind(b"\n") + 1 :]
        damaged = doubtful = 0  # bytes; and those of them behind the last line that says how far numbers go
        for line in whole.splitlines(keepends=True):
            if (told := _told_by(line)) is None:
                damaged, doubtful = damaged + len(line), doubtful + len(line)
            else:
                self._understand(told)
                doubtful = 0
        if damaged and (not self.id or doubtful >= SHORTEST_TOLD):  # which numbers were given is not known any more
            self._begin_anew()
        elif self.id and (damaged or torn):
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
        """How many of those that wait these are."""
        gone = 0
        while self._waiting and self._waiting[0][0] <= upto:
            _, kind, _ = self._waiting.popleft()
            self._kinds[kind] -= 1
            gone += 1
        return gone

    def _rewrite(self) -> None:
        head = _line({"spool": self.id, "from": self._last + 1, "marks": self.marks})
        self._lines.replace(head + b"".join(self._lines_waiting()))
        self._lines_gone = 0

    def _lines_waiting(self) -> Iterator[bytes]:
        """One for a few of them, so that damage costs few; gaps stay."""
        for _, those in groupby(
            enumerate(self._waiting), key=lambda each: (each[1][0] - each[0], each[0] // OF_A_LINE)
        ):
            numbered = [one for _, one in those]
            told = [[kind, json.loads(what)] for _, kind, what in numbered]
            yield _line({"told": told, "from": numbered[0][0], "upto": 0, "marks": {}})

    def _told_line(self, told: Sequence[Sequence[Any]], marks: Marks) -> bytes:
        return _line({"told": told, "from": self._last + 1, "upto": self.first - 1, "marks": marks})


def _marks_of(line: Mapping[str, Any]) -> Marks:
    """Older lines know one mark alone."""
    if "marks" in line:
        return dict(line["marks"])
    return {PROOFS: line["proofs"]} if line["proofs"] else {}


def _told_by(line: bytes) -> dict[str, Any] | None:
    """None: it is damaged."""
    match = _LINE.fullmatch(line)
    if match is None or int(match[1], 16) != zlib.crc32(match[2]):
        return None
    return dict(json.loads(match[2]))


def _line(content: Mapping[str, Any]) -> bytes:
    text = canonical_json(content)
    return b"%08x %s\n" % (zlib.crc32(text), text)


class SpoolFile:
    """Lines in a file that only its owner may read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> bytes:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return b""

    def append(self, line: bytes, *, is_durable: bool = True) -> None:
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            _append(handle, line, is_durable=is_durable)
        finally:
            os.close(handle)

    def replace(self, content: bytes) -> None:
        replace_file(self._path, content)


def _append(handle: int, line: bytes, *, is_durable: bool) -> None:
    end = os.fstat(handle).st_size
    try:
        if os.write(handle, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if is_durable:
            os.fsync(handle)
    except OSError:
        with suppress(OSError):
            os.ftruncate(handle, end)  # half a line would spoil the next one
        raise


def replace_file(path: Path, content: bytes) -> None:
    """The old content or the new one, whenever the power goes; readable by its owner alone."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)  # half of it would only take the room that others wait for
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
