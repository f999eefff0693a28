"""Who waits gets its turn in a fair order: nobody starves, nobody pays for another's flood."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_agent.gateway.quotas.line import Line, LineFull, Turn

ALL = "abcd"


def given_out(line: Line, most: int) -> list[str]:
    """Whose turns come, of so many."""
    found: list[str] = []
    for turn in line.next(lambda turn: len(found) < most):
        found.append(turn.who)
    return found


def joined(line: Line, who: str, count: int = 1, lane: str = "m") -> list[Turn]:
    return [line.join(who, lane)[0] for _ in range(count)]


def test_a_flood_costs_others_one_turn_each_time() -> None:
    line = Line()
    joined(line, "flood", 100)
    joined(line, "b", 3)
    assert given_out(line, 6).count("b") == 3


@given(st.lists(st.sampled_from([*ALL, "turn"]), max_size=200))
def test_two_that_both_wait_are_never_more_than_a_turn_apart(deeds: list[str]) -> None:
    line = Line(most=10**6, most_each=10**6)
    since: dict[tuple[str, str], Counter[str]] = {}
    for deed in deeds:
        if deed != "turn":
            joined(line, deed)
        else:
            for who in given_out(line, 1):
                for pair in [pair for pair in since if who in pair]:
                    since[pair][who] += 1
        waiting = [who for who in ALL if line.waiting(who)]
        pairs = {(one, other) for one in waiting for other in waiting if one < other}
        since = {pair: since.get(pair, Counter()) for pair in pairs}
        for one, other in pairs:
            assert abs(since[one, other][one] - since[one, other][other]) <= 2


@given(st.lists(st.sampled_from(ALL), min_size=1, max_size=60))
def test_everybody_who_waits_gets_a_turn_and_each_organisations_first_is_first(whos: list[str]) -> None:
    line = Line()
    turns = [joined(line, who)[0] for who in whos]
    found = list(line.next(lambda turn: True))
    assert set(found) == set(turns)
    for who in ALL:
        assert [turn for turn in found if turn.who == who] == [turn for turn in turns if turn.who == who]
    assert len(line) == 0


def test_a_full_model_keeps_nobody_from_another() -> None:
    line = Line()
    joined(line, "a", 5, "full")
    joined(line, "b", 1, "full")
    free = joined(line, "a", 2, "free")
    assert list(line.next(lambda turn: turn.lane == "free")) == free
    assert len(line) == 6


def test_a_turn_that_was_of_no_use_is_not_saved_up() -> None:
    line = Line()
    joined(line, "a", 50, "full")
    joined(line, "b", 40, "free")
    assert list(line.next(lambda turn: turn.lane == "free"))
    joined(line, "a", 20, "free")
    joined(line, "b", 20, "free")
    order: list[str] = []
    for turn in line.next(lambda turn: turn.lane == "free" and len(order) < 10):
        order.append(turn.who)
    assert 4 <= order.count("b") <= 6


@given(st.integers(0, 30), st.integers(1, 30))
def test_who_leaves_leaves_no_trace(left: int, stayed: int) -> None:
    line = Line()
    for turn in joined(line, "a", left):
        line.leave(turn)
        line.leave(turn)
    joined(line, "b", stayed)
    joined(line, "a", 1)
    assert len(line) == stayed + 1
    assert "a" in given_out(line, 2)


def test_an_organisations_own_part_of_the_line_is_bounded() -> None:
    line = Line(most_each=3)
    joined(line, "a", 3)
    with pytest.raises(LineFull) as caught:
        line.join("a", "m")
    assert caught.value.is_own
    joined(line, "b")


def test_where_all_is_full_the_newest_of_whoever_has_most_has_to_go() -> None:
    line = Line(most=5)
    flood = joined(line, "flood", 5)
    _, out = line.join("b", "m")
    assert out is flood[-1]
    assert (len(line), line.waiting("flood"), line.waiting("b")) == (5, 4, 1)
    with pytest.raises(LineFull) as caught:
        line.join("flood", "m")
    assert not caught.value.is_own
