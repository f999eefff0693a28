from datetime import UTC, datetime, timedelta

from controlplane.dashboard.parts import Part, advice, headline, judge_age, pulse_summary
from controlplane.live.models import Pulse

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def part(name: str, *, ok: bool) -> Part:
    return Part(name, "does", ok, "answers" if ok else "silent", "")


def pulse(milliseconds: float) -> Pulse:
    return Pulse(sent_at=NOW, recorded_at=NOW + timedelta(milliseconds=milliseconds))


def test_the_headline_counts_the_web_too_when_all_answer() -> None:
    assert headline([part("Redis", ok=True), part("Beat", ok=True)]) == "All 3 parts of the control plane answer"


def test_the_headline_names_what_is_silent() -> None:
    assert headline([part("Redis", ok=True), part("Beat", ok=False)]) == "Beat does not answer"
    silent = [part("Redis", ok=False), part("Worker", ok=False), part("Beat", ok=False)]
    assert headline(silent) == "Redis, Worker and Beat do not answer"


def test_the_advice_says_where_to_look_for_each_silent_part_and_nothing_of_the_others() -> None:
    told = advice([part("PostgreSQL", ok=False), part("Worker", ok=False), part("Beat", ok=True)])
    assert ".luminet/logs/postgres.log and .luminet/logs/worker.log" in told
    assert "docker compose logs postgres worker." in told
    assert "beat" not in told


def test_what_was_never_heard_is_starting_and_what_is_late_is_silent() -> None:
    assert judge_age(None, late_after=10) == (False, "starting")
    assert judge_age(10, late_after=10) == (True, "answers")
    assert judge_age(10.1, late_after=10) == (False, "silent")


def test_the_summary_is_of_the_values_and_empty_without_any() -> None:
    assert pulse_summary([pulse(1), pulse(9), pulse(2)]) == {"count": 3, "median_ms": 2.0, "slowest_ms": 9.0}
    assert pulse_summary([]) == {"count": 0, "median_ms": None, "slowest_ms": None}


def test_clocks_that_disagree_never_make_a_negative_time() -> None:
    assert pulse(-5).milliseconds == 0
