from datetime import timedelta

import pytest

from controlplane.dashboard.frame.words import MAY, ROLES, counted, duration, span
from tenants.actor import ROLE_SCOPES


def test_a_duration_is_exact_and_short(subtests: pytest.Subtests) -> None:
    cases: list[tuple[int, str]] = [
        (0, "0 s"),
        (1, "1 s"),
        (90, "1 min 30 s"),
        (300, "5 min"),
        (5400, "1 h 30 min"),
        (3601, "1 h 1 s"),
        (86_400, "24 h"),
        (172_799, "47 h 59 min 59 s"),
        (172_800, "2 d"),
        (604_800, "7 d"),
        (31_536_000, "365 d"),
    ]
    for seconds, words in cases:
        with subtests.test(msg=f"{seconds!r}, {words!r}"):
            assert duration(seconds) == words


def test_one_is_not_many() -> None:
    assert [counted(number, "model") for number in (0, 1, 2)] == ["0 models", "1 model", "2 models"]


def test_every_role_has_words() -> None:
    assert set(ROLES) == set(MAY) == set(ROLE_SCOPES)


@pytest.mark.parametrize(("hours", "words"), [(1, "1 hour"), (24, "24 hours"), (36, "36 hours"), (168, "7 days")])
def test_a_span_is_in_words(hours: int, words: str) -> None:
    assert span(timedelta(hours=hours)) == words
