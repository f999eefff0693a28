from datetime import UTC, datetime
from typing import Any

import pytest

from controlplane.dashboard.frame.tiles import LEAST_REQUESTS, Change, change, fact, measured, noun, rate, tile

TOLD: dict[str, Any] = {
    "type": "stats",
    "seq": 1_700_000_000_000,
    "as_of": "2023-11-14T22:13:20Z",
    "window_seconds": 86_400,
    "covered_seconds": 200,
    "covered_seconds_before": 0,
    "requests": 1_234,
    "prompt_tokens": 52_559_730,
    "cached_tokens": 41_206_848,
    "hit_ratio": 41_206_848 / 52_559_730,
    "hit_ratio_before": None,
    "saved_tokens": 41_206_848,
}


def test_a_tile_says_what_was_told() -> None:
    found = tile(TOLD, slug="acme", title="Acme", path="/ws/live/orgs/acme")
    assert (found.rate, found.measured, found.is_empty) == ("78.4", "3 min of 24 h", False)
    assert (found.requests, found.prompt_tokens, found.saved_tokens) == ("1,234", "52,559,730", "41,206,848")
    assert found.as_of == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def test_before_anything_was_counted_there_is_no_number() -> None:
    nothing = {"requests": 0, "prompt_tokens": 0, "cached_tokens": 0, "hit_ratio": None, "covered_seconds": 0}
    found = tile({**TOLD, **nothing}, slug="acme", title="", path="/ws/live/orgs/acme")
    assert (found.rate, found.is_empty, found.measured) == ("–", True, "0 s of 24 h")


@pytest.mark.parametrize(
    ("cached", "prompt", "shown"),
    [(0, 0, "–"), (0, 5, "0.0"), (2, 3, "66.6"), (9_999, 10_000, "99.9"), (7, 7, "100.0"), (1, 3_000, "0.0")],
)
def test_a_rate_is_rounded_down_as_in_the_header(cached: int, prompt: int, shown: str) -> None:
    assert rate(cached, prompt) == shown


WHOLE = {**TOLD, "covered_seconds": 86_400, "covered_seconds_before": 86_400}
UP = Change("up", "▲", "up", "6.1 points", "against the day before")


@pytest.mark.parametrize(
    ("now", "before", "shown"),
    [
        (0.784, 0.723, UP),
        (0.5, 0.623, Change("down", "▼", "down", "12.3 points", "against the day before")),
        (0.5, 0.5004, Change(words="the same as the day before")),
        (0.5, None, Change()),
        (None, 0.5, Change()),
    ],
)
def test_a_rate_is_held_against_the_day_before(now: float | None, before: float | None, shown: Change) -> None:
    assert change({**WHOLE, "hit_ratio": now, "hit_ratio_before": before}) == shown


@pytest.mark.parametrize("covered", [0, 180, 86_399])
def test_a_rate_is_not_held_against_a_day_of_which_only_a_part_was_counted(covered: int) -> None:
    told = {**WHOLE, "hit_ratio": 0.8, "hit_ratio_before": 0.1, "covered_seconds_before": covered}
    assert change(told) == Change()
    assert change({**told, "covered_seconds_before": 86_400}).points == "70.0 points"


def test_few_requests_are_said_to_be_few_and_compared_with_nothing() -> None:
    few = {**WHOLE, "hit_ratio": 0.784, "hit_ratio_before": 0.723, "requests": LEAST_REQUESTS - 1}
    enough = {**few, "requests": LEAST_REQUESTS}
    found = [tile(told, slug="acme", title="", path="") for told in (few, enough)]
    assert [(one.is_little, one.noun, one.change) for one in found] == [
        (True, "requests so far", Change()),
        (False, "requests", UP),
    ]
    assert noun(1) == "request so far"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "Hit rate 78.4 %"),
        ({"hit_ratio_before": 0.723, "covered_seconds_before": 86_400}, "Hit rate 78.4 %, up 6.1 points"),
        ({"requests": 1}, "1 request so far"),
        ({"requests": 0}, ""),
        ({"prompt_tokens": 0, "hit_ratio": None}, "1,234 requests"),
    ],
)
def test_the_headline_says_the_fact(more: dict[str, Any], said: str) -> None:
    assert fact({**TOLD, **more}) == said


@pytest.mark.parametrize(
    ("covered", "shown"),
    [
        (42, "42 s of 24 h"),
        (60, "1 min of 24 h"),
        (239, "3 min of 24 h"),
        (7_500, "2 h 5 min of 24 h"),
        (86_400, "24 h"),
    ],
)
def test_how_much_of_the_window_was_measured_is_said_until_it_is_all(covered: int, shown: str) -> None:
    assert measured(covered, 86_400) == shown
