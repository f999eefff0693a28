"""An append-only journal of usage on disk, which readers follow by number.

Each record is one write, complete before the call returns, so a killed process (even with -9) loses none. There is no
fsync for each record, so a power loss may cost the last seconds. Numbers count from 1 in every boot. One thread writes;
any thread may read. Standard library only.
"""

import contextlib
import errno
import fcntl
import os
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO

from engine_agent.journal.files import BOOT, BootFolder, Segment, boot_folder_make, boot_folders
from engine_agent.journal.records import Closed, Entry, Opened, Record, entry_document, line_of

__all__ = [
    "BootStatus",
    "Closed",
    "Entry",
    "Journal",
    "JournalError",
    "JournalFull",
    "Lost",
    "Opened",
    "Page",
    "entry_document",
]

SEGMENT_BYTES = 4 * 2**20
CLOSING_BYTES = 2**20  # bytes that `opened` leaves free, so that open requests can be closed
MOST_WAITING = 100_000
PROBE, PROBE_BYTES = "room", 64 * 1024


class JournalError(Exception):
    """The base class of this module's errors. The text is for people."""


class JournalFull(JournalError):
    """The record is not written, so its content must not be reported to any client.

    `why` is for clients and does not name the journal's path.
    """

    def __init__(self, problem: str, why: str) -> None:
        super().__init__(problem)
        self.why = why


class JournalInUse(JournalError):
    """Another process writes this journal."""


class UnknownBoot(JournalError):
    """The journal has no record of that boot: it wrote none, or they are cut."""


class BadCut(JournalError):
    """A cut after the last record: the caller cannot have read so far."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Numbers whose records cannot be read.

    `gone`: cut, or dropped to make room. `damaged`: their lines are corrupt.
    """

    first: int
    last: int
    reason: Literal["gone", "damaged"]


@dataclass(frozen=True, slots=True)
class Page:
    """Records in order. After handling them and the lost ones between, request those after `last`."""

    boot: str
    last: int
    entries: tuple[Entry, ...]
    lost: tuple[Lost, ...]


@dataclass(frozen=True, slots=True)
class BootStatus:
    boot: str
    first: int
    last: int
    size_bytes: int
    is_current: bool


class Journal:
    """A journal. Create it with `Journal.open`.

    `drops_oldest`: old records make room for new ones; otherwise the journal is full until a reader cuts it.
    """

    def __init__(
        self, folder: Path, lock: TextIO, boot: str, *, most_bytes: int, drops_oldest: bool, segment_bytes: int
    ) -> None:
        self._folder, self._lock = folder, lock
        self._most_bytes, self._segment_bytes, self._drops_oldest = most_bytes, segment_bytes, drops_oldest
        self._boots = {boot_folder.boot: boot_folder for boot_folder in boot_folders(folder)}
        if boot in self._boots:
            raise JournalError(f"{folder}: the boot {boot} has a journal already")
        self.boot = boot
        self.size_bytes = sum(boot_folder.size for boot_folder in self._boots.values())
        self._sequence = 0
        self._file: int | None = None
        self._waiting: deque[Closed] = deque()
        self.problem = ""  # why the newest record could not be written; empty: it was written
        self.dropped_records = 0  # dropped, as far as known without having been read
        self.lost_closings = 0  # closings that found no room on disk or in memory

    @classmethod
    def open(
        cls,
        folder: Path,
        boot: str,
        *,
        most_bytes: int,
        drops_oldest: bool = False,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> "Journal":
        """Open or create the journal. Raise JournalInUse or OSError."""
        if not BOOT.fullmatch(boot):
            raise JournalError(f"{boot!r} is no name of a boot")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return cls(
                folder, lock, boot, most_bytes=most_bytes, drops_oldest=drops_oldest, segment_bytes=segment_bytes
            )
        except BlockingIOError:
            lock.close()
            raise JournalInUse(f"{folder}: another process writes this journal") from None
        except BaseException:
            lock.close()
            raise

    @property
    def _kept_free(self) -> int:
        return min(CLOSING_BYTES, self._most_bytes // 4)

    @property
    def waiting(self) -> int:
        """Return how many closings wait for room."""
        return len(self._waiting)

    @property
    def last(self) -> int:
        """The number of the last record of this boot."""
        return self._sequence

    # Writing

    def opened(self, record: Opened) -> int:
        """Write the record and return its number. Raise JournalFull: then the headers must not be sent."""
        self.flush()
        return self._append(record, self._most_bytes - self._kept_free)

    def closed(self, record: Closed) -> int | None:
        """Write the record and return its number, or None if it waits in memory for the next call or `flush`."""
        self._waiting.append(record)
        try:
            return self.flush()
        except JournalFull:
            while len(self._waiting) > MOST_WAITING:
                self._waiting.popleft()
                self.lost_closings += 1
            return None

    def flush(self) -> int | None:
        """Write the waiting closings and return the last one's number. Raise JournalFull."""
        number = None
        while self._waiting:
            number = self._append(self._waiting[0], self._most_bytes)
            self._waiting.popleft()
        return number

    def look(self) -> str:
        """Return the current problem, or "" if there is room again. No record is needed to check."""
        if self.problem and self._has_room():
            self.problem = ""
        return self.problem

    def close(self) -> None:
        """Sync the file to disk, and release the lock for another process."""
        if self._file is not None:
            os.fsync(self._file)
            os.close(self._file)
            self._file = None
        self._lock.close()

    # Reading

    def since(self, boot: str, sequence: int, limit: int, *, upto: int | None = None) -> Page:
        """Return at most `limit` records of a boot after number `sequence`, for this boot up to `upto`.

        Raise UnknownBoot.
        """
        last_sequence = self._sequence  # first: records written from now on are not part of this page
        folder = self._known(boot)
        last = min(last_sequence, last_sequence if upto is None else upto) if boot == self.boot else folder.last
        entries = tuple(entry for entry in folder.read(sequence, limit) if entry.sequence <= last)
        end = entries[-1].sequence if len(entries) == limit else max(last, sequence)
        return Page(boot, end, entries, tuple(_lost(entries, sequence, end, kept_from=folder.first)))

    def boots(self) -> list[BootStatus]:
        """Return the boots with records, oldest first; the last is this one if it has any."""
        return [
            BootStatus(folder.boot, folder.first, folder.last, folder.size, folder.boot == self.boot)
            for folder in list(self._boots.values())
        ]

    def cut(self, boot: str, upto: int) -> int:
        """Delete the records up to this number, which are stored elsewhere.

        Return the freed bytes: only whole segments go.
        """
        folder = self._known(boot)
        if upto > folder.last:
            raise BadCut(f"the last record of {boot} is {folder.last}, found {upto}")
        removable = [segment for segment in folder.segments if segment.last <= upto and not self._is_written(segment)]
        for segment in removable:
            self._remove(folder, segment)
        return sum(segment.size for segment in removable)

    def _known(self, boot: str) -> BootFolder:
        if boot == self.boot and boot not in self._boots:
            return BootFolder(self._folder, 0, boot)  # it has not written a record yet
        try:
            return self._boots[boot]
        except KeyError:
            raise UnknownBoot(f"no record of the boot {boot[:64]!r} is here") from None

    # Files

    def _append(self, record: Record, most_bytes: int) -> int:
        line = line_of(Entry(self._sequence + 1, record))
        try:
            self._write_line(line, most_bytes)
        except JournalFull as problem:
            self.problem = str(problem)
            raise
        self.problem = ""
        return self._sequence

    def _write_line(self, line: bytes, most_bytes: int) -> None:
        try:
            self._make_room(len(line), most_bytes)
            segment = self._segment(len(line))
            self._write(segment, line)
        except OSError as problem:
            text = f"{self._folder}: cannot be written: {problem.strerror}"
            raise JournalFull(text, f"its disk cannot be written: {problem.strerror}") from problem
        segment.size += len(line)
        self.size_bytes += len(line)
        segment.last = self._sequence = self._sequence + 1

    def _has_room(self) -> bool:
        """Return whether the probe file fits, which is larger than any record."""
        probe = self._folder / PROBE
        try:
            self._make_room(PROBE_BYTES, self._most_bytes - self._kept_free)
            probe.write_bytes(bytes(PROBE_BYTES))
        except (JournalFull, OSError):
            return False
        finally:
            with contextlib.suppress(OSError):
                probe.unlink()
        return True

    def _write(self, segment: Segment, line: bytes) -> None:
        """Write the whole line or none of it."""
        assert self._file is not None
        written = os.write(self._file, line)
        if written < len(line):
            self._leave_segment()  # the next record starts a new segment, wherever the half line ends
            os.truncate(segment.path, segment.size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _segment(self, more_bytes: int) -> Segment:
        """Return the segment to write to, with its file open."""
        folder = self._boots.get(self.boot)
        if folder is None:
            ordinal = max((boot_folder.ordinal for boot_folder in self._boots.values()), default=0) + 1
            folder = self._boots[self.boot] = boot_folder_make(self._folder, ordinal, self.boot)
        segment = folder.segments[-1] if folder.segments else None
        if self._file is not None and segment is not None and segment.size + more_bytes <= self._segment_bytes:
            return segment
        self._leave_segment()
        if segment is None or segment.records:
            segment = folder.add_segment(self._sequence + 1)
        self._file = os.open(segment.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return segment

    def _leave_segment(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _make_room(self, more_bytes: int, most_bytes: int) -> None:
        while self.size_bytes + more_bytes > most_bytes:
            oldest = next(((folder, segment) for folder in self._boots.values() for segment in folder.segments), None)
            if not self._drops_oldest or oldest is None or self._is_written(oldest[1]):
                text = f"{self._folder}: {self.size_bytes:,} bytes wait to be taken, and {most_bytes:,} may"
                raise JournalFull(text, "its journal is full, and nobody takes it")
            self.dropped_records += oldest[1].records
            self._remove(*oldest)

    def _is_written(self, segment: Segment) -> bool:
        current = self._boots.get(self.boot)
        return current is not None and segment is current.segments[-1]

    def _remove(self, folder: BootFolder, segment: Segment) -> None:
        segment.path.unlink(missing_ok=True)
        self.size_bytes -= segment.size
        folder.segments = [candidate for candidate in folder.segments if candidate is not segment]
        if not folder.segments:
            del self._boots[folder.boot]
            with contextlib.suppress(OSError):  # another program put a file there
                folder.path.rmdir()


def _lost(entries: Iterable[Entry], after: int, end: int, *, kept_from: int) -> Iterable[Lost]:
    """Yield the ranges of numbers between `after` and `end` that no entry has."""
    for number in [*(entry.sequence for entry in entries), end + 1]:
        if after + 1 < min(number, kept_from):
            yield Lost(after + 1, min(number, kept_from) - 1, "gone")
            after = min(number, kept_from) - 1
        if after + 1 < number:
            yield Lost(after + 1, number - 1, "damaged")
        after = number
