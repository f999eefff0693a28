"""The spool: every report once, in order, whatever is torn or damaged."""

import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_agent.contracts.protocol import canonical_json
from engine_agent.contracts.wire import MOST_BATCH_BYTES, MOST_REPORTS, Report, batch_encode
from engine_agent.sidecar.spool import MOST_GONE_LINES, Spool, SpoolFile


def report(number: int, **told: Any) -> Report:
    return Report("about", {"number": number, **told})


def numbers(spool: Spool) -> list[int]:
    return [one.told["number"] for one in spool.batch(sent_at=0, heartbeat=None).reports]


def opened(path: Path) -> Spool:
    return Spool(SpoolFile(path))


def test_reports_are_numbered_from_one_and_sent_until_they_are_acknowledged(tmp_path: Path) -> None:
    spool = opened(tmp_path / "spool")
    spool.tell([report(1), report(2)])
    spool.tell([report(3)])
    batch = spool.batch(sent_at=5, heartbeat=None)
    assert (batch.first, batch.spool, len(batch.reports)) == (1, spool.id, 3)
    spool.acknowledge(2)
    assert (spool.first, numbers(spool), len(spool)) == (3, [3], 1)
    spool.acknowledge(1)
    assert numbers(spool) == [3]


def test_a_restart_forgets_nothing_that_was_told_and_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    spool = opened(path)
    spool.tell([report(1), report(2)], ("boot", 7))
    spool.acknowledge(1)
    again = opened(path)
    assert (again.id, again.first, numbers(again), again.proofs_told) == (spool.id, 2, [2], ("boot", 7))
    again.acknowledge(2)
    again.tell([report(3)])
    assert (opened(path).first, numbers(opened(path))) == (3, [3])


def test_what_was_acknowledged_leaves_the_disk_in_time(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    spool = opened(path)
    for number in range(1, MOST_GONE_LINES + 10):
        spool.tell([report(number, text="x" * 100)], ("boot", number))
        spool.acknowledge(number)
    assert path.stat().st_size < 120 * MOST_GONE_LINES
    again = opened(path)
    assert (again.id, again.first, len(again)) == (spool.id, MOST_GONE_LINES + 10, 0)
    assert again.proofs_told == ("boot", MOST_GONE_LINES + 9)


@given(cut=st.integers(min_value=1, max_value=200))
def test_a_line_that_a_crash_tore_was_never_told(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("spool") / "spool"
    spool = opened(path)
    spool.tell([report(1)])
    whole = path.stat().st_size
    spool.tell([report(2), report(3, text="x" * 200)])
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(max(whole, size - cut))
    again = opened(path)
    assert (again.id, numbers(again), again.problem) == (spool.id, [1], "")
    again.tell([report(4)])
    assert numbers(opened(path)) == [1, 4]


@given(place=st.integers(min_value=0), flip=st.integers(min_value=1, max_value=255))
def test_damage_is_said_and_numbers_are_never_given_twice_under_one_name(
    tmp_path_factory: pytest.TempPathFactory, place: int, flip: int
) -> None:
    path = tmp_path_factory.mktemp("spool") / "spool"
    spool = opened(path)
    for number in range(1, 5):
        spool.tell([report(number)])
    content = bytearray(path.read_bytes())
    content[place % (len(content) - 1)] ^= flip
    path.write_bytes(bytes(content))
    again = opened(path)
    assert again.problem
    if again.id == spool.id:
        again.tell([report(5)])
        assert all(number == told for number, told in told_numbers(again).items())
    assert set(told_numbers(again).values()) <= {1, 2, 3, 4, 5}
    assert told_numbers(opened(path)) == told_numbers(again)
    assert not opened(path).problem


def told_numbers(spool: Spool) -> dict[int, int]:
    """What waits, by the numbers under which it is sent; gone through as by a control plane that acknowledges all."""
    found: dict[int, int] = {}
    while len(spool) > len(found):
        batch = spool.batch(sent_at=0, heartbeat=None)
        found |= {batch.first + place: one.told["number"] for place, one in enumerate(batch.reports)}
        if len(spool) > len(batch.reports):
            spool.acknowledge(batch.first + len(batch.reports) - 1)
            found |= told_numbers(spool)
            break
    return found


def test_one_damaged_line_takes_nothing_else_with_it_and_brings_nothing_back(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    spool = opened(path)
    spool.tell([report(1)], ("boot", 1))
    spool.tell([report(2), report(3)])
    spool.tell([report(4)])
    spool.acknowledge(1)
    spool.tell([report(5)])
    lines = path.read_bytes().splitlines(keepends=True)
    for damaged, left in {2: {4: 4, 5: 5}, 3: {2: 2, 3: 3, 5: 5}, 4: {2: 2, 3: 3, 4: 4, 5: 5}}.items():
        spoilt = [bytes([one[0] ^ 1]) + one[1:] if place == damaged else one for place, one in enumerate(lines)]
        path.write_bytes(b"".join(spoilt))
        again = opened(path)
        assert (again.id, again.proofs_told) == (spool.id, ("boot", 1))
        assert told_numbers(again) == left, f"line {damaged}"


def test_a_damaged_acknowledgement_at_the_end_brings_nothing_back_under_another_name(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    spool = opened(path)
    spool.tell([report(1)])
    spool.acknowledge(1)
    content = path.read_bytes()
    path.write_bytes(content[:-9] + b"~" + content[-8:])
    again = opened(path)
    assert again.problem
    assert (again.id, told_numbers(again)) == (spool.id, {1: 1}), "whose number is known over there"


def test_where_numbers_may_have_been_given_that_are_not_known_a_new_spool_begins(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    spool = opened(path)
    for number in (1, 2, 3):
        spool.tell([report(number)])
        spool.acknowledge(number - 1)
    lines = path.read_bytes().splitlines(keepends=True)
    last_told = max(place for place, one in enumerate(lines) if b"told" in one)
    path.write_bytes(b"".join(lines[:last_told]) + b"~" * 80 + b"\n")
    again = opened(path)
    assert again.id != spool.id
    assert told_numbers(again) == {1: 2}, "without what had arrived"


def test_a_spool_brought_back_from_a_copy_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    spool = opened(path)
    spool.tell([report(1), report(2)])
    before = spool.id
    spool.acknowledge(9)  # which were given out after the copy was made
    assert spool.id != before
    assert (spool.first, numbers(spool)) == (1, [1, 2])
    assert opened(path).id == spool.id


def test_of_a_spool_brought_back_from_a_copy_only_what_was_told_since_is_told_again(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    spool = opened(path)
    spool.tell([report(1), report(2)])
    copy = path.read_bytes()
    spool.tell([report(3), report(4)])
    path.write_bytes(copy)

    again = opened(path)
    again.tell([report(5), report(6)])  # which have the numbers of the third and the fourth
    assert numbers(again) == [1, 2], "nothing else, until it is known what is over there"
    again.acknowledge(4)
    assert again.id != spool.id
    assert told_numbers(again) == {1: 5, 2: 6}
    assert (opened(path).id, numbers(opened(path))) == (again.id, [5, 6])


def test_what_is_told_before_the_first_answer_is_sent_after_it(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    opened(path).tell([report(1)])
    again = opened(path)
    again.tell([report(2)])
    again.acknowledge(0)
    assert numbers(again) == [1, 2]


def test_marks_are_on_disk_with_what_they_speak_of(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    spool = opened(path)
    spool.tell([report(1)], ("boot", 7), {"usage": {"b1": [4]}})
    spool.tell([], None, {"usage": {"b1": [5]}})
    again = opened(path)
    assert (again.marks, numbers(again)) == ({"proofs": ["boot", 7], "usage": {"b1": [5]}}, [1])
    again.acknowledge(9)  # it is brought back from a copy, and written anew
    assert opened(path).marks == again.marks
    assert opened(path).proofs_told == ("boot", 7)


def test_a_torn_line_takes_its_marks_with_it(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    spool = opened(path)
    spool.tell([report(1)], None, {"usage": 1})
    spool.tell([report(2)], None, {"usage": 2})
    path.write_bytes(path.read_bytes()[:-3])
    assert (opened(path).marks, numbers(opened(path))) == ({"usage": 1}, [1])


def test_a_file_of_the_version_before_is_read(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    lines: list[dict[str, Any]] = [
        {"spool": "s1", "from": 1, "proofs": None},
        {"told": [["about", {"number": 1}]], "from": 1, "upto": 0, "proofs": ["boot", 3]},
        {"told": [["about", {"number": 2}]], "from": 2, "upto": 0, "proofs": None},
        {"upto": 1, "last": 2},
    ]
    texts = map(canonical_json, lines)
    path.write_bytes(b"".join(b"%08x %s\n" % (zlib.crc32(text), text) for text in texts))
    spool = opened(path)
    assert (spool.id, spool.problem, numbers(spool), spool.proofs_told) == ("s1", "", [2], ("boot", 3))


def test_it_says_how_many_of_a_kind_wait(tmp_path: Path) -> None:
    spool = opened(tmp_path / "spool")
    spool.tell([report(1), Report("levels", {})])
    assert (spool.waiting("about"), spool.waiting("levels"), spool.waiting("gaps")) == (1, 1, 0)
    spool.acknowledge(1)
    for now in (spool, opened(tmp_path / "spool")):
        assert (now.waiting("about"), now.waiting("levels")) == (0, 1)


def test_damage_after_it_was_written_anew_costs_few_of_those_that_wait(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    spool = opened(path)
    spool.tell([report(0) for _ in range(MOST_GONE_LINES)])
    spool.tell([report(number) for number in range(1, 41)])
    spool.acknowledge(MOST_GONE_LINES)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"x" + lines[2][1:], *lines[3:]]))
    again = opened(path)
    assert again.problem
    assert numbers(again) == list(range(1, 17)), "and behind the gap:"
    again.acknowledge(again.first + 15)
    assert (again.id, numbers(again)) == (spool.id, list(range(33, 41)))


def test_a_batch_fits_into_a_request(tmp_path: Path) -> None:
    spool = opened(tmp_path / "spool")
    spool.tell([report(number) for number in range(MOST_REPORTS + 1)])
    assert len(spool.batch(sent_at=0, heartbeat=None).reports) == MOST_REPORTS
    spool.acknowledge(MOST_REPORTS + 1)
    spool.tell([report(number, text="x" * 100_000) for number in range(20)])
    batch = spool.batch(sent_at=0, heartbeat=None)
    assert 1 < len(batch.reports) < 20
    assert len(batch_encode(batch)) <= MOST_BATCH_BYTES
    assert len(spool.batch(sent_at=0, heartbeat=None, most=1).reports) == 1


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    opened(tmp_path / "spool").tell([report(1)])
    assert (tmp_path / "spool").stat().st_mode & 0o777 == 0o600


def test_what_is_given_up_is_no_word_of_what_the_control_plane_has(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    opened(path).tell([report(1), report(2)])
    copy = opened(path)
    copy.give_up(1)
    copy.tell([report(3)])
    assert numbers(copy) == [2], "it may still be a copy: what it was told since is not sent"
    copy.acknowledge(5)
    assert (numbers(copy), copy.first) == ([3], 1), "by a new spool"
