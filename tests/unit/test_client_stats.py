"""What `luminet stats` makes of numbers."""

import pytest

from controlplane.client.stats import STEPS, bars, milliseconds, percent, span, those_before


def test_bars_go_from_the_lowest_to_the_highest_and_leave_out_what_is_not_known() -> None:
    assert bars([0, 0.5, 1, None, -3, 7, float("nan")]) == "▁▅█ ▁█ "


@pytest.mark.parametrize(
    ("ratio", "words"),
    [(None, "–"), (0.0, "0.0 %"), (1.0, "100.0 %"), (0.9999, "99.9 %"), (0.968, "96.8 %"), (float("inf"), "–")],
)
def test_a_ratio_is_rounded_down_as_the_header_is(ratio: float | None, words: str) -> None:
    assert percent(ratio) == words


@pytest.mark.parametrize(
    ("number", "words"), [(None, "–"), (0.052, "0.052 ms"), (31.24, "31.2 ms"), (2_405.1, "2.41 s")]
)
def test_times_have_a_unit_that_suits_them(number: float | None, words: str) -> None:
    assert milliseconds(number) == words


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (59, "59 s"), (195, "3 min"), (7_199, "1 h"), (604_800, "7 d")]
)
def test_a_span_is_said_in_the_largest_unit_and_never_too_long(seconds: int, words: str) -> None:
    assert span(seconds) == words


def test_every_window_has_a_step_for_its_lines() -> None:
    from controlplane.analytics.windows import NAMED

    assert set(STEPS) == set(NAMED)


@pytest.mark.parametrize(
    ("covered", "words"),
    [
        (86_400, (", 10.0 % before", ", 7 before")),
        (86_399, ("; no whole 24 h before to compare with", "")),
        (0, ("; no whole 24 h before to compare with", "")),
    ],
)
def test_a_window_is_held_against_one_that_was_counted_whole_or_against_none(
    covered: int, words: tuple[str, str]
) -> None:
    before = {"covered_seconds": covered, "hit_ratio": 0.1, "requests": 7}
    assert those_before({"window_seconds": 86_400, "before": before}) == words
