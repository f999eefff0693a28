"""Stop strings in pieces of text, against a plain search in the whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_agent.engine.stops import StopStrings

SHORT = st.text("ab\n", min_size=1, max_size=4)


def searched(text: str, stops: list[str], include: bool) -> tuple[str, str | None]:
    """Letter by letter: the first that is complete, and of those the longest."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            found = max(complete, key=len)
            return text[: end if include else end - len(found)], found
    return text, None


@given(
    pieces=st.lists(st.text("ab\n", max_size=5), max_size=12), stops=st.lists(SHORT, max_size=4), include=st.booleans()
)
def test_what_is_released_is_what_a_search_in_the_whole_finds(
    pieces: list[str], stops: list[str], include: bool
) -> None:
    stopping = StopStrings(stops, include=include)
    released, found = "", None
    for piece in pieces:
        text, found = stopping.push(piece)
        released += text
        if found is not None:
            break
    assert (released + stopping.finish(), found) == searched("".join(pieces), stops, include)


@given(pieces=st.lists(st.text("ab\n", max_size=5), max_size=12), stops=st.lists(SHORT, min_size=1, max_size=4))
def test_only_what_may_begin_a_stop_string_is_held_back(pieces: list[str], stops: list[str]) -> None:
    stopping = StopStrings(stops)
    whole = released = ""
    for piece in pieces:
        text, found = stopping.push(piece)
        if found is not None:
            return
        whole, released = whole + piece, released + text
        held = whole[len(released) :]
        beginnings = {stop[:length] for stop in stops for length in range(len(stop))}
        assert held == max((ending for ending in beginnings if whole.endswith(ending)), key=len)


def test_a_stop_string_may_span_pieces() -> None:
    stopping = StopStrings(["STOP"])
    assert [stopping.push(piece) for piece in ("go S", "TO", "P and more")] == [("go ", None), ("", None), ("", "STOP")]
    assert stopping.finish() == ""


def test_a_beginning_that_leads_nowhere_is_released() -> None:
    stopping = StopStrings(["STOP"])
    assert [stopping.push(piece)[0] for piece in ("ST", "ST", "A")] == ["", "ST", "STA"]


def test_what_was_held_back_is_text_at_the_end() -> None:
    stopping = StopStrings(["\n\n"])
    assert stopping.push("line\n") == ("line", None)
    assert stopping.finish() == "\n"
    assert stopping.finish() == ""


@pytest.mark.parametrize(("include", "text"), [(True, "a STOP"), (False, "a ")])
def test_it_can_be_part_of_the_text(include: bool, text: str) -> None:
    assert StopStrings(["STOP", "TOP"], include=include).push("a STOP b") == (text, "STOP")


def test_a_copy_goes_its_own_way() -> None:
    first = StopStrings(["abc"])
    first.push("ab")
    second = first.copy()
    assert first.push("c") == ("", "abc")
    assert second.push("d") == ("abd", None)


def test_without_stop_strings_nothing_waits() -> None:
    assert StopStrings([]).push("anything") == ("anything", None)
