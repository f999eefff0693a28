"""Each report of a spool is taken once, whatever becomes of batches on the way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.fleet.arrivals import MOST, PAST_SPOOLS, Arrival, Received, arrival_of, numbers_check
from engine_agent.contracts.protocol import MalformedMessage
from engine_agent.contracts.wire import Batch, Report


def report(spool: str, number: int) -> Report:
    return Report("refused", {"reason": "forged", "what": f"{spool} {number}", "at": 0, "count": 1})


def batch(spool: str, first: int, last: int) -> Batch:
    return Batch(0.0, spool, first, [report(spool, number) for number in range(first, last + 1)], None)


def told(arrival: Arrival) -> list[str]:
    return [one.told["what"] for one in arrival.fresh]


def test_the_first_batch_is_taken_whole() -> None:
    arrival = arrival_of(Received(), batch("a", 1, 3))
    assert told(arrival) == ["a 1", "a 2", "a 3"]
    assert (arrival.acknowledged, arrival.received) == (3, Received("a", 3))


def test_what_is_here_already_is_skipped_and_acknowledged_again() -> None:
    held = Received("a", 5)
    again = arrival_of(held, batch("a", 2, 5))
    assert (told(again), again.seen, again.acknowledged, again.received) == ([], 4, 5, held)
    partly = arrival_of(held, batch("a", 4, 7))
    assert (told(partly), partly.seen, partly.acknowledged) == (["a 6", "a 7"], 2, 7)


def test_numbers_that_were_skipped_are_lost_and_counted() -> None:
    arrival = arrival_of(Received("a", 5, lost=1), batch("a", 9, 9))
    assert (told(arrival), arrival.lost, arrival.acknowledged) == (["a 9"], 3, 9)
    assert arrival.received == Received("a", 9, lost=4)


def test_a_new_spool_starts_at_one() -> None:
    arrival = arrival_of(Received("a", 5), batch("b", 1, 2))
    assert (told(arrival), arrival.lost) == (["b 1", "b 2"], 0)
    assert arrival.received == Received("b", 2, (("a", 5),))


def test_what_comes_late_of_an_older_spool_is_known_by_its_own_numbers() -> None:
    held = Received("b", 2, (("a", 5),))
    late = arrival_of(held, batch("a", 4, 5))
    assert (told(late), late.received, late.acknowledged) == ([], held, 5)
    newer = arrival_of(held, batch("a", 4, 6))
    assert (told(newer), newer.received) == (["a 6"], Received("a", 6, (("b", 2),)))


def test_only_so_many_older_spools_are_remembered() -> None:
    held = Received()
    for number in range(PAST_SPOOLS + 5):
        held = arrival_of(held, batch(f"s{number}", 1, 1)).received
    assert [spool for spool, _ in held.past] == [f"s{number}" for number in range(PAST_SPOOLS + 3, 3, -1)]


def test_a_heartbeat_alone_changes_nothing() -> None:
    held = Received("a", 5)
    assert arrival_of(held, batch("a", 9, 8)).received == held
    assert arrival_of(held, batch("a", 6, 5)).acknowledged == 5
    assert arrival_of(held, batch("new", 1, 0)).acknowledged == 0


def test_numbers_beyond_what_can_be_written_down_are_refused() -> None:
    numbers_check(batch("a", MOST - 1, MOST - 1))
    with pytest.raises(MalformedMessage, match="first"):
        numbers_check(batch("a", MOST, MOST))


def test_lost_reports_are_counted_up_to_what_can_be_written_down() -> None:
    assert arrival_of(Received("a", 0, lost=MOST - 1), batch("a", 9, 9)).received.lost == MOST


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 30), st.integers(0, 10)), max_size=60))
def test_no_report_is_taken_twice_and_none_out_of_order(sent: list[tuple[str, int, int]]) -> None:
    """Any batches at all, repeated, out of order, and of several spools by turns."""
    held, taken, lost = Received(), list[str](), 0
    for spool, first, count in sent:
        before = held.number_of(spool)
        arrival = arrival_of(held, batch(spool, first, first + count - 1))
        held = arrival.received
        taken += told(arrival)
        lost += arrival.lost
        assert arrival.acknowledged == held.number_of(spool) >= before
    assert len(taken) == len(set(taken))
    for spool in "abc":
        numbers = [int(one.split()[1]) for one in taken if one.startswith(spool)]
        assert numbers == sorted(numbers)
    assert held.lost == lost
    assert len(taken) + lost == sum(held.number_of(spool) for spool in "abc")


Sendings = st.lists(st.tuples(st.integers(1, 7), st.booleans(), st.lists(st.integers(0, 99), max_size=2)), max_size=20)


@given(st.integers(1, 30), Sendings)
def test_a_sender_that_repeats_until_acknowledged_loses_nothing(
    total: int, sendings: list[tuple[int, bool, list[int]]]
) -> None:
    """Answers get lost and old batches come again; what is acknowledged is never sent again."""
    held, taken, acknowledged, sent = Received(), list[str](), 0, list[Batch]()
    for size, is_answered, repeated in [*sendings, *[(7, True, [])] * 5]:
        sent.append(batch("a", acknowledged + 1, min(acknowledged + size, total)))
        for one in [sent[-1], *(sent[number % len(sent)] for number in repeated)]:
            arrival = arrival_of(held, one)
            held = arrival.received
            taken += told(arrival)
        acknowledged = held.number if is_answered else acknowledged
    assert taken == [f"a {number}" for number in range(1, total + 1)]
    assert held.lost == 0
