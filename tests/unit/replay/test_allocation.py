"""The memory that requests in flight take, which row E1 measures."""

from array import array

import pytest

from engine_agent.tools.replay.trace import Request
from tests.bench.allocation import PAGE_TOKENS, STEP_SECONDS, STEPS_A_SAMPLE, mean_in_flight, minutes_of
from tests.unit.replay.examples import BLOCK_TOKENS, made_up

SAMPLE_SECONDS = STEP_SECONDS * STEPS_A_SAMPLE


def asked(tokens: int, answer: int) -> Request:
    return Request(0.0, tokens, answer, array("Q", range(tokens // BLOCK_TOKENS)))


def test_a_page_that_is_begun_counts_in_full() -> None:
    (minute,) = minutes_of([asked(PAGE_TOKENS + 1, 0)], {"ten": lambda request: 10}, block_tokens=BLOCK_TOKENS)
    assert (minute.in_flight, minute.written, minute.paged, minute.reserved) == ([1], 17, 32, {"ten": 10})
    assert minute.waste_percent(minute.paged) == pytest.approx(100 * 15 / 32)


def test_answers_grow_by_a_token_a_step_and_by_a_page_when_it_is_full() -> None:
    (minute,) = minutes_of([asked(10, 2 * STEPS_A_SAMPLE)], {}, block_tokens=BLOCK_TOKENS)
    assert minute.in_flight == [1, 1, 1]
    assert minute.written == 10 + 60 + 110
    assert minute.paged == 16 + 64 + 112


def test_equal_prompts_share_nothing_here() -> None:
    (minute,) = minutes_of([asked(64, 0)] * 3, {}, block_tokens=BLOCK_TOKENS)
    assert (minute.in_flight, minute.written, minute.paged) == ([3], 192, 192)


def test_every_minute_with_something_in_flight_has_its_values() -> None:
    minutes = minutes_of(made_up(100), {"whole": lambda request: 1000}, block_tokens=BLOCK_TOKENS)
    assert len(minutes) > 1
    assert all(0 <= minute.waste_percent(minute.paged) < 100 for minute in minutes)
    assert 0 < mean_in_flight(minutes) < 100
