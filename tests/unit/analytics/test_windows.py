"""Windows, what covers them, and the steps of series."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.analytics.windows import (
    FLEET_LEVELS,
    LEVELS,
    MINUTES,
    MOST_POINTS,
    NAMED,
    Span,
    Window,
    cover,
    floored,
    step_check,
    step_read,
    step_starts,
    window_before,
    window_of,
)
from tenants.errors import InvalidFields

NOW = datetime(2026, 11, 22, 12, 34, 56, 789_000, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
moments = st.datetimes(datetime(2024, 1, 1), datetime(2030, 1, 1)).map(lambda one: one.replace(tzinfo=UTC))
names = st.sampled_from(sorted(NAMED))
spans = st.tuples(st.sampled_from(FLEET_LEVELS), st.integers(0, 40 * 86_400), st.integers(0, 3_000))


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def runs_of(window: Window, drawn: list[tuple[int, int, int]]) -> list[Span]:
    """Runs of whole pieces in and around a window; of a level none touches another."""
    found: list[Span] = []
    for level, offset, pieces in sorted(drawn):
        start = floored(window.start + seconds(offset - 86_400), level)
        if not found or found[-1].level != level or found[-1].end < start:
            found.append(Span(level, start, start + seconds(level * (pieces % 400 + 1))))
    return found


windows = st.builds(lambda name, now, is_before: _window(name, now, is_before=is_before), names, moments, st.booleans())


def _window(name: str, now: datetime, *, is_before: bool) -> Window:
    window = window_of(name, now)
    return window_before(window) if is_before else window


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("1h", datetime(2026, 11, 22, 11, 34, tzinfo=UTC)),
        ("24h", datetime(2026, 11, 21, 12, 34, tzinfo=UTC)),
        ("7d", datetime(2026, 11, 15, 12, 30, tzinfo=UTC)),
        ("30d", datetime(2026, 10, 23, 12, 0, tzinfo=UTC)),
    ],
)
def test_a_window_begins_with_a_whole_minute_and_ends_now(name: str, start: datetime) -> None:
    window = window_of(name, NOW)
    assert (window.start, window.end, window.is_open) == (start, NOW, True)
    assert window.until == datetime(2026, 11, 22, 12, 35, tzinfo=UTC)


def test_the_minute_that_begins_this_moment_is_in_the_window() -> None:
    sharp = NOW.replace(second=0, microsecond=0)
    assert window_of("24h", sharp).until == sharp + MINUTE


@given(names, moments)
def test_a_window_is_as_long_as_it_says_and_less_than_a_grain_longer(name: str, now: datetime) -> None:
    window = window_of(name, now)
    longer = now - window.start - seconds(NAMED[name].seconds)
    assert timedelta() <= longer < seconds(NAMED[name].grain)
    assert window.seconds == NAMED[name].seconds


@given(names, moments)
def test_the_window_before_ends_where_the_other_begins_and_has_what_is_still_kept(name: str, now: datetime) -> None:
    window = window_of(name, now)
    before = window_before(window)
    assert (before.end, before.until) == (window.start, window.start)
    assert before.start == floored(before.start, NAMED[name].grain_before)
    assert timedelta() <= window.start - before.start - seconds(window.seconds) < seconds(NAMED[name].grain_before)


@given(windows, st.lists(spans, max_size=12), st.booleans())
def test_spans_follow_on_one_another_from_the_start_to_the_end(
    window: Window, drawn: list[tuple[int, int, int]], is_fleet: bool
) -> None:
    found = cover(window, runs_of(window, drawn), is_fleet=is_fleet)
    assert [found[0].start, *(one.end for one in found)] == [*(one.start for one in found), window.until]
    assert found[0].start == window.start
    assert all(one.start < one.end for one in found)


@given(windows, st.lists(spans, max_size=12), st.booleans())
def test_pieces_are_whole_rolled_and_of_a_level_there_is(
    window: Window, drawn: list[tuple[int, int, int]], is_fleet: bool
) -> None:
    runs = runs_of(window, drawn)
    for span in cover(window, runs, is_fleet=is_fleet):
        if span.level == MINUTES:
            continue
        assert span.level in (FLEET_LEVELS if is_fleet else LEVELS)
        assert (span.start, span.end) == (floored(span.start, span.level), floored(span.end, span.level))
        assert any(run.level == span.level and run.start <= span.start and span.end <= run.end for run in runs)


@given(windows, st.lists(spans, max_size=12), st.booleans())
def test_nothing_small_is_read_where_something_larger_is_rolled(
    window: Window, drawn: list[tuple[int, int, int]], is_fleet: bool
) -> None:
    runs = runs_of(window, drawn)
    spans = cover(window, runs, is_fleet=is_fleet)
    for level in FLEET_LEVELS if is_fleet else LEVELS:
        whole = [_pieces(run, window) for run in runs if run.level == level]
        for start in (start for starts in whole for start in starts):
            assert all(one.level >= level for one in spans if one.start < start + seconds(level) and start < one.end)


def _pieces(run: Span, window: Window) -> list[datetime]:
    """Where those of a run begin that lie in the window: enough of them to tell."""
    count = (run.end - run.start) // seconds(run.level)
    starts = (run.start + seconds(run.level) * number for number in range(count))
    return [one for one in starts if window.start <= one and one + seconds(run.level) <= window.until][:50]


def test_a_day_is_hours_with_five_minutes_and_minutes_at_its_ends() -> None:
    window = window_of("24h", NOW)
    start = window.start - seconds(86_400)
    rolled = [Span(level, floored(start, level), floored(NOW, level)) for level in FLEET_LEVELS]
    assert [(one.level, one.end - one.start) for one in cover(window, rolled, is_fleet=False)] == [
        (0, 1 * MINUTE),
        (300, 25 * MINUTE),
        (3_600, 23 * 60 * MINUTE),
        (300, 30 * MINUTE),
        (0, 5 * MINUTE),
    ]
    assert [one.level for one in cover(window, rolled, is_fleet=True)] == [60, 300, 3_600, 300, 60, 0]


def test_without_anything_rolled_all_of_it_is_minutes() -> None:
    window = window_of("30d", NOW)
    assert cover(window, [], is_fleet=True) == [Span(MINUTES, window.start, window.until)]


@given(windows, st.lists(spans, max_size=12), st.sampled_from([60, 420, 600, 3_600, 7_200, 86_400]))
def test_no_piece_of_a_series_lies_in_two_steps(window: Window, drawn: list[tuple[int, int, int]], step: int) -> None:
    for span in cover(window, runs_of(window, drawn), is_fleet=True, step_seconds=step):
        if span.level:
            assert floored(span.start, step) == floored(span.start + seconds(span.level) - seconds(1), step)
            assert step % span.level == 0


@given(names, moments, st.integers(1, 2_000))
def test_the_points_of_a_series_begin_at_whole_steps_and_the_first_with_the_window(
    name: str, now: datetime, steps: int
) -> None:
    window = window_of(name, now)
    step = steps * NAMED[name].grain
    starts = step_starts(window, step)
    assert starts[0] == window.start
    assert all(one == floored(one, step) for one in starts[1:])
    assert all(after - one <= seconds(step) for one, after in zip(starts, [*starts[1:], window.until], strict=True))
    assert starts == sorted(set(starts))
    assert starts[-1] < window.until


@pytest.mark.parametrize(("text", "found"), [("5m", 300), ("1h", 3_600), ("1d", 86_400), (None, 300), ("7m", 420)])
def test_a_step_is_minutes_hours_or_days(text: str | None, found: int) -> None:
    assert step_read(text, window_of("24h", NOW)) == found


def test_what_is_no_step_is_refused_by_name(subtests: pytest.Subtests) -> None:
    for text in ("", "5", "0m", "5s", "-5m", "5 m", "٥m", "999999d", "1h30m", "5M"):
        with subtests.test(msg=text), pytest.raises(InvalidFields, match="step"):
            step_read(text, window_of("24h", NOW))


@pytest.mark.parametrize(
    ("name", "step", "why"),
    [
        ("7d", "1m", "multiple of 5 min"),
        ("30d", "90m", "multiple of 60 min"),
        ("7d", "5m", f"2017 points of 7d; {MOST_POINTS} are the most"),
    ],
)
def test_a_step_finer_than_what_is_kept_or_shown_is_refused(name: str, step: str, why: str) -> None:
    with pytest.raises(InvalidFields, match=why):
        step_read(step, window_of(name, NOW))


@pytest.mark.parametrize("name", NAMED)
def test_a_series_that_does_not_say_has_a_step_that_will_do(name: str) -> None:
    for minutes in range(0, 3_000, 7):
        window = window_of(name, NOW + minutes * MINUTE)
        step_check(step_read(None, window), window)
