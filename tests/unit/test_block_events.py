"""Pages that engines tell gateways: equal in bytes wherever they are made, and of other bytes nothing is read."""

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_agent.contracts.block_events import (
    MOST_PAGE_BYTES,
    BadPage,
    BlockChange,
    Load,
    Page,
    change_bytes,
    events_decode,
    events_encode,
)

LOAD = Load(running=1, waiting=2, seats=3, free_blocks=4, pool_blocks=5, seconds_behind=0.5)
PAGE = Page(
    "boot-1",
    7,
    True,
    False,
    LOAD,
    (
        BlockChange("stored", "1", b"r" * 8, b"r" * 8, b"abcdefgh12345678"),
        BlockChange("removed", "1", b"r" * 8, b"abcdefgh", b"12345678"),
        BlockChange("cleared", "2", b"q" * 8, b"q" * 8, b""),
    ),
)
GOLDEN = (
    "4c554d424c4b0001" "01" "0600626f6f742d31" "0700000000000000"
    "01000000" "02000000" "03000000" "0400000000000000" "0500000000000000" "000000000000e03f"
    "02000000" "010031" "010032"
    "03000000"
    "00" "00000000" "7272727272727272" "7272727272727272" "02000000" "61626364656667683132333435363738"
    "01" "00000000" "7272727272727272" "6162636465666768" "01000000" "3132333435363738"
    "02" "01000000" "7171717171717171" "7171717171717171" "00000000"
)  # fmt: skip

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
mark = st.binary(min_size=8, max_size=8)
small, large = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
loads = st.builds(Load, small, small, small, large, large, st.floats(0, allow_nan=False, allow_infinity=False))
present = st.builds(
    BlockChange,
    st.sampled_from(["stored", "removed"]),
    names,
    mark,
    mark,
    st.lists(mark, min_size=1, max_size=5).map(b"".join),
)
cleared = st.builds(BlockChange, st.just("cleared"), names, mark, mark, st.just(b""))
pages = st.builds(
    Page, names, large, st.booleans(), st.booleans(), loads, st.lists(present | cleared, max_size=8).map(tuple)
)


def test_a_page_is_these_bytes() -> None:
    assert events_encode(PAGE).hex() == GOLDEN
    assert events_decode(bytes.fromhex(GOLDEN)) == PAGE


@given(pages)
def test_what_is_put_into_bytes_comes_out_again(page: Page) -> None:
    assert events_decode(events_encode(page)) == page


@given(pages, st.data())
def test_of_bytes_that_were_changed_nothing_is_read_that_was_not_said_so(page: Page, data: st.DataObject) -> None:
    told = bytearray(events_encode(page))
    for _ in range(data.draw(st.integers(1, 3))):
        told[data.draw(st.integers(0, len(told) - 1))] = data.draw(st.integers(0, 255))
    _reads_nothing_or_just_this(bytes(told))


@given(st.binary(max_size=200))
def test_of_any_bytes_nothing_is_read_that_was_not_said_so(data: bytes) -> None:
    _reads_nothing_or_just_this(data)
    _reads_nothing_or_just_this(bytes.fromhex(GOLDEN)[:9] + data)


@given(pages, st.data())
def test_a_torn_page_is_none(page: Page, data: st.DataObject) -> None:
    told = events_encode(page)
    with pytest.raises(BadPage):
        events_decode(told[: data.draw(st.integers(0, len(told) - 1))])
    with pytest.raises(BadPage, match="follow its end"):
        events_decode(told + b"\0")


def test_counts_that_promise_more_than_there_is_cost_nothing() -> None:
    whole = events_encode(replace(PAGE, changes=()))
    for place in (len(whole) - 8, len(whole) - 4):
        with pytest.raises(BadPage, match=r"ends in the middle|a name is empty"):
            events_decode(whole[:place] + struct.pack("<I", 2**32 - 1) + whole[place + 4 :])


def test_a_page_has_a_bound() -> None:
    change = BlockChange("stored", "1", b"r" * 8, b"r" * 8, bytes(MOST_PAGE_BYTES))
    with pytest.raises(ValueError, match="longer than"):
        events_encode(replace(PAGE, changes=(change,)))
    with pytest.raises(BadPage, match="may be"):
        events_decode(bytes(MOST_PAGE_BYTES + 1))


@given(present | cleared)
def test_a_change_is_no_longer_in_a_page_than_it_says(change: BlockChange) -> None:
    empty = replace(PAGE, changes=())
    assert len(events_encode(replace(PAGE, changes=(change,)))) == len(events_encode(empty)) + change_bytes(change)


@pytest.mark.parametrize(
    "change",
    [
        replace(PAGE.changes[0], marks=b""),
        replace(PAGE.changes[0], marks=b"1234567"),
        replace(PAGE.changes[0], root=b"short"),
        replace(PAGE.changes[2], marks=b"12345678"),
        replace(PAGE.changes[0], kind="moved"),  # type: ignore[arg-type]
        replace(PAGE.changes[0], namespace=""),
        replace(PAGE.changes[0], namespace="x" * 70_000),
    ],
    ids=["no-marks", "half-a-mark", "short-root", "cleared-with-marks", "unknown", "no-name", "long-name"],
)
def test_what_no_page_can_say_is_not_said(change: BlockChange) -> None:
    with pytest.raises(ValueError, match=r"."):
        events_encode(replace(PAGE, changes=(change,)))


@pytest.mark.parametrize("field", ["running", "free_blocks", "seconds_behind"])
def test_a_load_is_made_of_numbers_that_can_be(field: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        events_encode(replace(PAGE, load=replace(LOAD, **{field: -1})))


def _reads_nothing_or_just_this(data: bytes) -> None:
    try:
        page = events_decode(data)
    except BadPage:
        return
    assert events_encode(page) == data
