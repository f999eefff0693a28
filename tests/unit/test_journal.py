import errno
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from zlib import crc32

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine_agent.journal.files import BootFolder
from engine_agent.journal.journal import (
    BadCut,
    Journal,
    JournalError,
    JournalFull,
    JournalInUse,
    Lost,
    UnknownBoot,
)
from tests.engines.journals import CLOSED, OPENED, closed, opened

PLENTY = 2**26
SMALL = 4_000  # bytes of a segment: about ten records


def journal_with(folder: Path, count: int, *, boot: str = "one", segment_bytes: int = SMALL) -> None:
    journal = Journal.open(folder, boot, most_bytes=PLENTY, segment_bytes=segment_bytes)
    for number in range(1, count + 1):
        journal.opened(opened(number))
    journal.close()


def reopened(folder: Path) -> Journal:
    return Journal.open(folder, "reader", most_bytes=PLENTY)


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.log"))


def numbers(journal: Journal, boot: str = "one", after: int = 0, limit: int = 10_000) -> list[int]:
    return [entry.sequence for entry in journal.since(boot, after, limit).entries]


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, "one", most_bytes=PLENTY)
    assert journal.opened(OPENED) == 1
    assert journal.closed(CLOSED) == 2
    page = journal.since("one", 0, 10)
    assert [entry.record for entry in page.entries] == [OPENED, CLOSED]
    assert (page.boot, page.last, page.lost) == ("one", 2, ())
    journal.close()
    later = reopened(tmp_path)
    assert later.since("one", 0, 10) == page
    later.close()


def test_a_line_is_a_checksum_and_a_json_object(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, "one", most_bytes=PLENTY)
    journal.opened(replace(OPENED, namespace="grün\n\ud800", missed=MappingProxyType({"cold": 16})))
    journal.close()
    (line,) = segments(tmp_path)[0].read_bytes().split(b"\n")[:-1]
    assert int(line[:8], 16) == crc32(line[9:])
    told = json.loads(line[9:])
    assert (told["sequence"], told["type"], told["namespace"]) == (1, "opened", "grün\n\ud800")
    assert told["missed"] == {"cold": 16}


def test_what_is_there_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    journal_with(folder, 1)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.glob("*/"), *folder.glob("*/*")]}
    assert modes == {"journal": 0o700, "000001-one": 0o700, "000000000001.log": 0o600}


def test_a_reader_that_follows_gets_every_record_once(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, "one", most_bytes=PLENTY, segment_bytes=SMALL)
    seen: list[int] = []
    for number in range(1, 101):
        journal.opened(opened(number))
        if number % 7 == 0:
            page = journal.since("one", seen[-1] if seen else 0, 5)
            seen += [entry.sequence for entry in page.entries]
    while (page := journal.since("one", seen[-1], 5)).entries:
        seen += [entry.sequence for entry in page.entries]
    assert seen == list(range(1, 101))
    assert len(segments(tmp_path)) > 5
    journal.close()


def test_asking_twice_gives_the_same(tmp_path: Path) -> None:
    journal_with(tmp_path, 30)
    journal = reopened(tmp_path)
    assert journal.since("one", 3, 9) == journal.since("one", 3, 9)
    assert numbers(journal, after=12, limit=3) == [13, 14, 15]
    assert numbers(journal, after=3, limit=3) == [4, 5, 6]
    assert numbers(journal, after=30) == []
    journal.close()


def test_records_of_another_boot_are_not_known_here(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, "one", most_bytes=PLENTY)
    assert journal.since("one", 0, 5).entries == ()  # nothing yet is not unknown
    with pytest.raises(UnknownBoot, match="no record of the boot 'two' is here"):
        journal.since("two", 0, 5)
    journal.close()


def test_boots_stand_in_the_order_in_which_they_were(tmp_path: Path) -> None:
    for boot, count in (("zebra", 3), ("idle", 0), ("ant", 2)):
        journal_with(tmp_path, count, boot=boot)
    journal = Journal.open(tmp_path, "mouse", most_bytes=PLENTY)
    journal.opened(OPENED)
    assert [(one.boot, one.first, one.last, one.is_current) for one in journal.boots()] == [
        ("zebra", 1, 3, False),
        ("ant", 1, 2, False),
        ("mouse", 1, 1, True),
    ]
    assert sum(one.size_bytes for one in journal.boots()) == journal.size_bytes
    journal.close()


@pytest.mark.parametrize("boot", ["", "..", "a/b", "-x", "a" * 65, "a\n"])
def test_a_boot_whose_name_is_no_file_name_is_refused(tmp_path: Path, boot: str) -> None:
    with pytest.raises(JournalError, match="no name of a boot"):
        Journal.open(tmp_path, boot, most_bytes=PLENTY)


def test_a_boot_is_written_by_one_process_and_once(tmp_path: Path) -> None:
    journal_with(tmp_path, 1)
    journal = Journal.open(tmp_path, "two", most_bytes=PLENTY)
    with pytest.raises(JournalInUse, match="another process"):
        Journal.open(tmp_path, "three", most_bytes=PLENTY)
    journal.close()
    with pytest.raises(JournalError, match="the boot one has a journal already"):
        Journal.open(tmp_path, "one", most_bytes=PLENTY)
    reopened(tmp_path).close()


# After a crash


@pytest.mark.parametrize("torn", [1, 9, 60, -1])
def test_a_line_torn_off_by_a_crash_is_cut_off(tmp_path: Path, torn: int) -> None:
    journal_with(tmp_path, 3, segment_bytes=PLENTY)
    (path,) = segments(tmp_path)
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    path.write_bytes(whole[: last + torn] if torn > 0 else whole[:torn])
    journal = reopened(tmp_path)
    page = journal.since("one", 0, 10)
    assert [entry.sequence for entry in page.entries] == [1, 2]
    assert (page.last, page.lost) == (2, ())
    assert path.read_bytes() == whole[:last]
    journal.close()


@pytest.mark.parametrize("damaged", [1, 2, 5])
def test_a_damaged_line_is_told_of_and_its_neighbours_are_not_lost(tmp_path: Path, damaged: int) -> None:
    journal_with(tmp_path, 5, segment_bytes=PLENTY)
    (path,) = segments(tmp_path)
    lines = path.read_bytes().split(b"\n")
    lines[damaged - 1] = lines[damaged - 1].replace(b"496", b"512")
    path.write_bytes(b"\n".join(lines))
    journal = reopened(tmp_path)
    page = journal.since("one", 0, 10)
    assert [entry.sequence for entry in page.entries] == [number for number in range(1, 6) if number != damaged]
    assert (page.last, page.lost) == (5, (Lost(damaged, damaged, "damaged"),))
    journal.close()


def line_in_two(line: bytes) -> list[bytes]:
    return [line[:-20], line[-19:]]


def line_in_two_early(line: bytes) -> list[bytes]:
    return [line[:3], line[4:]]


def empty_line_first(line: bytes) -> list[bytes]:
    return [b"", line[1:]]


@pytest.mark.parametrize("split", [line_in_two, line_in_two_early, empty_line_first])
def test_a_line_made_two_is_one_that_is_lost(tmp_path: Path, split: Callable[[bytes], list[bytes]]) -> None:
    journal_with(tmp_path, 3, segment_bytes=PLENTY)
    (path,) = segments(tmp_path)
    *before, last, nothing = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*before, *split(last), nothing]))
    journal = reopened(tmp_path)
    page = journal.since("one", 0, 10)
    assert (page.last, page.lost) == (3, (Lost(3, 3, "damaged"),))
    journal.close()


def test_two_lines_made_one_are_two_that_are_lost(tmp_path: Path) -> None:
    journal_with(tmp_path, 3, segment_bytes=PLENTY)
    (path,) = segments(tmp_path)
    *before, second, last, nothing = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*before, second + b"x" + last, nothing]))
    journal = reopened(tmp_path)
    page = journal.since("one", 0, 10)
    assert (page.last, page.lost) == (3, (Lost(2, 3, "damaged"),))
    journal.close()


@settings(max_examples=60, deadline=None)
@example(place=0.875, byte=10, after=0)
@given(place=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255), after=st.integers(0, 12))
def test_whatever_byte_is_spoiled_every_number_is_either_there_or_told_to_be_lost(
    tmp_path_factory: pytest.TempPathFactory, place: float, byte: int, after: int
) -> None:
    folder = tmp_path_factory.mktemp("spoiled")
    journal_with(folder, 12, segment_bytes=SMALL // 2)
    paths = segments(folder)
    path = paths[int(place * len(paths))]
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] = byte
    path.write_bytes(content)
    journal = reopened(folder)
    page = journal.since("one", after, 100)
    found = {entry.sequence for entry in page.entries}
    lost = {number for one in page.lost for number in range(one.first, one.last + 1)}
    assert not found & lost
    # The end of the very last line cannot be told from one torn off by a crash.
    assert found | lost in ({*range(after + 1, 13)}, {*range(after + 1, 12)})
    assert all(entry.record == opened(entry.sequence) for entry in page.entries)
    journal.close()


WRITER = """
import itertools, sys
from pathlib import Path
from engine_agent.journal.journal import Journal
from tests.engines.journals import opened
journal = Journal.open(Path(sys.argv[1]), "killed", most_bytes=2**26, segment_bytes=20_000)
for number in itertools.count(1):
    sequence = journal.opened(opened(number))
    print(sequence, flush=True)
"""


def test_what_was_told_before_kill_9_is_there_after_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        told = [int(next(process.stdout)) for _ in range(500)]
        process.send_signal(signal.SIGKILL)
        told += [int(line) for line in process.stdout if line.endswith(b"\n")]
    journal = reopened(tmp_path)
    page = journal.since("killed", 0, 10**6)
    assert [entry.sequence for entry in page.entries] == list(range(1, page.last + 1))
    assert page.last >= told[-1] >= 500
    assert page.lost == ()
    assert all(entry.record == opened(entry.sequence) for entry in page.entries)
    journal.close()


# When it is full


def filled(journal: Journal) -> int:
    """How many records went in until none did."""
    for number in range(1, 1_000_000):
        try:
            journal.opened(opened(number))
        except JournalFull:
            return number - 1
    raise AssertionError("it never was full")


def test_a_full_journal_takes_no_record_before_it_is_cut(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, "one", most_bytes=40_000, segment_bytes=SMALL)
    count = filled(journal)
    assert numbers(journal) == list(range(1, count + 1))
    assert journal.size_bytes <= 40_000
    with pytest.raises(JournalFull, match=r"40,000|30,000"):
        journal.opened(OPENED)
    assert journal.cut("one", count) > 0
    assert journal.opened(OPENED) == count + 1
    journal.close()


def test_what_has_begun_can_be_closed_in_a_full_journal(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, "one", most_bytes=40_000, segment_bytes=SMALL)
    count = filled(journal)
    assert journal.closed(CLOSED) == count + 1
    journal.close()


def test_a_closing_without_room_waits_and_goes_in_before_anything_newer(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, "one", most_bytes=40_000, segment_bytes=SMALL)
    count = filled(journal)
    for number in range(count):
        if journal.closed(closed(number)) is None:
            break
    assert journal.waiting == 1
    assert journal.closed(closed(10_000)) is None
    with pytest.raises(JournalFull):
        journal.opened(OPENED)
    last = journal.since("one", 0, 10**6).last
    journal.cut("one", last)
    assert journal.opened(opened(20_000)) == last + 3
    records = [entry.record for entry in journal.since("one", last, 10).entries]
    assert [record.request_id for record in records] == [f"r-{number}", "r-10000", "r-20000"]
    assert journal.waiting == 0
    journal.close()


def test_closings_wait_within_bounds_and_what_is_given_up_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine_agent.journal.journal.MOST_WAITING", 5)
    journal = Journal.open(tmp_path, "one", most_bytes=10_000, segment_bytes=SMALL)
    while journal.closed(CLOSED) is not None:
        pass
    for _ in range(10):
        journal.closed(CLOSED)
    assert (journal.waiting, journal.lost_closings) == (5, 6)
    journal.close()


def test_where_nobody_cuts_the_oldest_make_room_and_are_counted(tmp_path: Path) -> None:
    journal_with(tmp_path, 25, boot="before")
    journal = Journal.open(tmp_path, "one", most_bytes=40_000, drops_oldest=True, segment_bytes=SMALL)
    for number in range(1, 301):
        journal.opened(opened(number))
        assert journal.size_bytes <= 40_000
    assert [one.boot for one in journal.boots()] == ["one"]
    assert not list(tmp_path.glob("*-before"))
    page = journal.since("one", 0, 10_000)
    kept = page.entries[0].sequence
    assert page.lost == (Lost(1, kept - 1, "gone"),)
    assert [entry.sequence for entry in page.entries] == list(range(kept, 301))
    assert journal.dropped_records == 25 + kept - 1
    journal.close()


SHORT_OF_SPACE = """
import resource, sys
from pathlib import Path
from engine_agent.journal.journal import Journal, JournalFull
from tests.engines.journals import closed, opened
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
journal = Journal.open(Path(sys.argv[1]), "full", most_bytes=2**26, segment_bytes=2**20)
count = 0
try:
    while True:
        count = journal.opened(opened(count + 1))
except JournalFull as problem:
    print(count, problem)
assert journal.closed(closed(count + 1)) == count + 1  # in a segment of its own
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
for _ in range(3):
    assert journal.closed(closed(1)) is None
resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, resource.RLIM_INFINITY))
assert journal.opened(opened(count + 5)) == count + 5
journal.close()
"""


def test_on_a_full_disk_no_half_line_stays_and_writing_goes_on_when_there_is_space(tmp_path: Path) -> None:
    """The limit of a file's size cuts a write off in the middle as a full disk does."""
    command = [sys.executable, "-c", SHORT_OF_SPACE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == 0, done.stderr
    count, problem = done.stdout.strip().split(" ", 1)
    assert "No space left" in problem or "File too large" in problem
    journal = reopened(tmp_path)
    page = journal.since("full", 0, 1000)
    assert [entry.sequence for entry in page.entries] == list(range(1, int(count) + 6))
    assert page.lost == ()
    journal.close()


def test_whether_there_is_room_again_is_known_without_another_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal.open(tmp_path, "one", most_bytes=PLENTY)
    journal.opened(OPENED)
    assert (journal.look(), journal.problem) == ("", "")
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def no_room(*_: object) -> int:
        raise full

    with monkeypatch.context() as patched:
        patched.setattr("engine_agent.journal.journal.os.write", no_room)
        patched.setattr(Path, "write_bytes", no_room)
        with pytest.raises(JournalFull) as refused:
            journal.opened(OPENED)
        assert "No space left" in refused.value.why
        assert str(tmp_path) not in refused.value.why, "clients need not know where it is"
        assert journal.look().endswith("cannot be written: No space left on device")
    assert (journal.look(), journal.problem) == ("", "")
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {"lock"}, "nothing is left of the look"
    journal.close()


# Cutting


def test_cutting_takes_whole_segments_of_what_is_done_with(tmp_path: Path) -> None:
    journal_with(tmp_path, 50)
    journal = reopened(tmp_path)
    before = journal.size_bytes
    freed = journal.cut("one", 25)
    assert freed > 0
    assert journal.size_bytes == before - freed == sum(path.stat().st_size for path in segments(tmp_path))
    page = journal.since("one", 25, 100)
    assert [entry.sequence for entry in page.entries] == list(range(26, 51))
    assert page.lost == ()
    journal.close()


def test_a_boot_that_is_cut_whole_is_forgotten(tmp_path: Path) -> None:
    journal_with(tmp_path, 50)
    journal = reopened(tmp_path)
    journal.cut("one", 50)
    assert journal.boots() == []
    assert not list(tmp_path.glob("*-one"))
    with pytest.raises(UnknownBoot):
        journal.cut("one", 50)
    journal.close()


def test_the_segment_that_is_written_stays(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, "one", most_bytes=PLENTY, segment_bytes=SMALL)
    for number in range(1, 31):
        journal.opened(opened(number))
    journal.cut("one", 30)
    assert len(segments(tmp_path)) == 1
    assert journal.opened(opened(31)) == 31
    assert numbers(journal, after=30) == [31]
    journal.close()


def test_nobody_cuts_what_was_never_written(tmp_path: Path) -> None:
    journal_with(tmp_path, 3)
    journal = reopened(tmp_path)
    with pytest.raises(BadCut, match="the last record of one is 3, found 4"):
        journal.cut("one", 4)
    assert numbers(journal) == [1, 2, 3]
    journal.close()


class Overtaken(Journal):
    """One whose first record is written while somebody begins to read."""

    def _known(self, boot: str) -> BootFolder:
        found = super()._known(boot)
        self.opened(OPENED)
        return found


def test_a_record_that_is_written_during_a_reading_is_not_told_to_be_lost(tmp_path: Path) -> None:
    journal = Overtaken.open(tmp_path, "one", most_bytes=PLENTY)
    page = journal.since("one", 0, 10)
    assert (page.last, page.entries, page.lost) == (0, (), ())
    journal.close()


def test_a_reader_in_another_thread_sees_whole_records_in_order(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, "one", most_bytes=PLENTY, segment_bytes=20_000)
    seen: list[int] = []
    lost: list[Lost] = []

    def follow() -> None:
        while not seen or seen[-1] < 3_000:
            page = journal.since("one", seen[-1] if seen else 0, 100)
            seen.extend(entry.sequence for entry in page.entries)
            lost.extend(page.lost)

    reader = threading.Thread(target=follow)
    reader.start()
    for number in range(1, 3_001):
        journal.opened(opened(number))
    reader.join(30)
    assert seen == list(range(1, 3_001))
    assert lost == []
    journal.close()
