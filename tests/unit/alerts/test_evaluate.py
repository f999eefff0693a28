"""When alerts begin and end: after a while, once, and not by what only trembles."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.alerts.definitions import BUILT_IN, Comparison
from controlplane.alerts.evaluate import OK, Event, Reading, Rule, State, evaluate, is_clear

START = datetime(2026, 11, 22, 12, tzinfo=UTC)
INTERVAL = 15
POOL = Rule("above", 0.9, 0.85, for_seconds=300, clear_for_seconds=60)
QUICK = Rule("above", 0.9, 0.85, for_seconds=0, clear_for_seconds=60)
HITS = Rule("below", 0.5, 0.55, for_seconds=60, clear_for_seconds=60, least_prompt_tokens=10_000)
VALUES = st.floats(0, 1) | st.sampled_from([0.85, 0.87, 0.9, 0.9000001])


def walked(
    rule: Rule, values: Sequence[float | None], *, state: State = OK, interval: float = INTERVAL, tokens: int = 10_000
) -> tuple[State, list[tuple[float, Event]]]:
    """Where it ends, and what happened after how many seconds."""
    events = list[tuple[float, Event]]()
    for count, value in enumerate(values):
        now = START + timedelta(seconds=interval * count)
        state, event = evaluate(rule, state, Reading(value, tokens), now)
        events += [(interval * count, event)] if event else []
    return state, events


def test_it_fires_when_the_value_has_been_beyond_for_as_long_as_the_rule_says() -> None:
    state, events = walked(POOL, [0.95] * 30)
    assert events == [(300, "fired")]
    assert (state.phase, state.since) == ("firing", START)


def test_without_a_time_to_wait_it_fires_at_once() -> None:
    assert walked(Rule("above", 0, 0, 0, 60), [1.0])[1] == [(0, "fired")]


@pytest.mark.parametrize(("value", "phase"), [(0.9, "ok"), (0.9000001, "pending")])
def test_the_threshold_itself_is_not_beyond(value: float, phase: str) -> None:
    assert walked(POOL, [value])[0].phase == phase


def test_one_good_value_begins_the_wait_anew() -> None:
    values = [0.95] * 20 + [0.89] + [0.95] * 20
    state, events = walked(POOL, [*values])
    assert (state.phase, events) == ("pending", [])


def test_it_is_over_when_the_value_has_been_back_for_a_while() -> None:
    state, events = walked(POOL, [0.95] * 21 + [0.80] * 10)
    assert events == [(300, "fired"), (315 + 60, "resolved")]
    assert state.phase == "ok"


def test_between_the_two_thresholds_nothing_ends() -> None:
    assert walked(POOL, [0.95] * 21 + [0.87] * 500)[1] == [(300, "fired")]


def test_a_ratio_that_is_too_low_is_beyond_and_back_when_high_enough() -> None:
    state, events = walked(HITS, [0.4] * 5 + [0.52] * 20 + [0.56] * 5)
    assert [event for _, event in events] == ["fired", "resolved"]
    assert state.value == 0.56


@pytest.mark.parametrize(("values", "tokens"), [([None], 10_000), ([0.1], 9_999)])
@pytest.mark.parametrize("phase", ["ok", "pending", "firing"])
def test_without_data_a_state_stays_and_says_so(values: Sequence[float | None], tokens: int, phase: str) -> None:
    before = State(phase, START, 30.0, START, True, 0.4)  # type: ignore[arg-type]
    state, events = walked(HITS, [*values] * 1000, state=before, tokens=tokens)
    assert events == []
    assert (state.phase, state.since, state.seconds, state.value) == (phase, START, 30.0, 0.4)
    assert not state.has_data


def test_time_without_data_counts_neither_way() -> None:
    """Half of the wait, an hour of nothing, and then the other half."""
    values = [0.4] * 3 + [None] * 240 + [0.4] * 3
    assert walked(HITS, values)[1] == [(245 * 15, "fired")]


def test_what_nobody_watched_is_not_taken_for_bad_all_along() -> None:
    """Two evaluations an hour apart: the control plane was away."""
    state, events = walked(POOL, [0.95, 0.95], interval=3600)
    assert (state.phase, state.seconds, events) == ("pending", 60.0, [])


def test_a_clock_that_goes_back_takes_nothing_away() -> None:
    state, _ = walked(POOL, [0.95] * 3, interval=-3600)
    assert (state.phase, state.seconds) == ("pending", 0.0)


@given(st.lists(st.sampled_from([0.95, 0.9, 0.89, 0.86]), min_size=1, max_size=400))
def test_a_value_that_trembles_about_the_threshold_fires_once_at_most(values: Sequence[float | None]) -> None:
    """Though the rule fires at once: it does not end before the value is back beyond the other threshold."""
    events = [event for _, event in walked(QUICK, values)[1]]
    assert events == (["fired"] if 0.95 in values else [])


RUNS = st.lists(st.tuples(VALUES | st.none(), st.integers(1, 8)), max_size=60)


@given(RUNS)
def test_it_never_flaps_whatever_the_values(runs: "list[tuple[float | None, int]]") -> None:
    """Between two times that it fires lie the whole clearing and the whole wait; and they take turns."""
    values = [value for value, count in runs for _ in range(count)]
    rule = Rule("above", 0.9, 0.85, for_seconds=30, clear_for_seconds=45)
    _, events = walked(rule, values)
    assert [event for _, event in events] == [("fired", "resolved")[place % 2] for place in range(len(events))]
    fired = [at for at, event in events if event == "fired"]
    assert all(later - earlier >= 75 for earlier, later in pairwise(fired))


def test_every_built_in_rule_fires_within_one_interval_and_ends(subtests: pytest.Subtests) -> None:
    for built_in in BUILT_IN:
        with subtests.test(msg=built_in.key):
            one = next(rule for rule in BUILT_IN if rule is built_in)
            rule = Rule(one.comparison, one.threshold, one.clears_at, one.for_seconds, one.clear_for_seconds)
            bad, good = _values(one.comparison, one.threshold, one.clears_at)
            rounds = one.for_seconds // INTERVAL + 1
            state, events = walked(rule, [bad] * (rounds + 1))
            assert events == [((rounds - 1) * INTERVAL, "fired")]
            assert is_clear(rule, good)
            assert walked(rule, [good] * 10, state=state)[0].phase == "ok"


def _values(comparison: Comparison, threshold: float, clears_at: float) -> tuple[float, float]:
    return (threshold + 1, clears_at) if comparison == "above" else (threshold / 2, clears_at)
