from datetime import UTC, datetime, timedelta

import pytest

from controlplane.dashboard.overview.parts import (
    ANSWERS,
    SILENT,
    STARTING,
    UNKNOWN,
    Part,
    advice,
    headline,
    judge_worker_and_beat,
    pulse_summary,
)
from controlplane.live.models import Pulse

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def part(name: str, state: str) -> Part:
    return Part(name, "does", state, "")


def pulse(milliseconds: float) -> Pulse:
    return Pulse(sent_at=NOW, recorded_at=NOW + timedelta(milliseconds=milliseconds))


def test_the_headline_counts_the_web_too_when_all_answer() -> None:
    assert headline([part("Redis", ANSWERS), part("Beat", ANSWERS)]) == "All 3 parts of the control plane answer"


def test_the_headline_names_what_is_silent_and_not_what_waits_for_it() -> None:
    assert headline([part("Redis", ANSWERS), part("Beat", SILENT), part("Worker", UNKNOWN)]) == "Beat does not answer"
    silent = [part("Redis", SILENT), part("Worker", SILENT), part("Beat", SILENT)]
    assert headline(silent) == "Redis, Worker and Beat do not answer"


def test_the_headline_of_a_system_that_has_just_started_says_so() -> None:
    assert headline([part("Redis", ANSWERS), part("Worker", STARTING), part("Beat", STARTING)]) == (
        "Worker and Beat are starting"
    )


def test_the_advice_says_where_to_look_for_each_silent_part_and_nothing_of_the_others() -> None:
    told = advice([part("PostgreSQL", SILENT), part("Worker", SILENT), part("Beat", ANSWERS)])
    assert ".luminet/logs/postgres.log and .luminet/logs/worker.log" in told
    assert "docker compose logs postgres worker." in told
    assert "beat" not in told


def test_only_the_cause_is_blamed(subtests: pytest.Subtests) -> None:
    cases: list[tuple[float | None, float | None, bool, tuple[str, str]]] = [
        (1, 1, True, (ANSWERS, ANSWERS)),
        (10, 10, True, (ANSWERS, ANSWERS)),
        (10.1, 1, True, (SILENT, ANSWERS)),
        (60, 60, True, (UNKNOWN, SILENT)),  # nothing is sent to the worker
        (1, 60, True, (ANSWERS, SILENT)),
        (60, None, False, (UNKNOWN, UNKNOWN)),  # Redis is away
        (None, None, True, (STARTING, STARTING)),
        (60, None, True, (UNKNOWN, STARTING)),  # Redis came back empty
    ]
    for worker_age, beat_age, broker_answers, states in cases:
        with subtests.test(msg=f"{worker_age!r}, {beat_age!r}"):
            assert judge_worker_and_beat(worker_age, beat_age, broker_answers=broker_answers) == states


def test_the_summary_is_of_the_values_and_empty_without_any() -> None:
    assert pulse_summary([pulse(1), pulse(9), pulse(2)]) == {"count": 3, "median_ms": 2.0, "slowest_ms": 9.0}
    assert pulse_summary([]) == {"count": 0, "median_ms": None, "slowest_ms": None}


def test_clocks_that_disagree_never_make_a_negative_time() -> None:
    assert pulse(-5).milliseconds == 0
