"""Numbers and times people type."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.client.amounts import count, expiry, revision, seconds


def test_an_expiry_is_a_time_or_a_while_from_now() -> None:
    assert expiry("2027-01-31T23:59:59Z") == "2027-01-31T23:59:59Z"
    for text, span in (("90m", timedelta(minutes=90)), ("12h", timedelta(hours=12)), ("5200w", timedelta(weeks=5200))):
        until = datetime.fromisoformat(expiry(text))
        assert expiry(text).endswith("Z")
        assert abs(until - datetime.now(UTC) - span) < timedelta(seconds=10)


@pytest.mark.parametrize(
    ("read", "wrong"),
    [
        (expiry, ["0d", "999999w", "36501d", "9" * 5000 + "m"]),
        (seconds, ["nan", "inf", "-inf", "0", "-1", "604801", "soon", "", "9" * 5000]),
        (count, ["0", "-1", "2147483648", "1_0", "x", "", "1.5", "9" * 5000]),
        (revision, ["-1", "2147483648", "x", "\u0661", "9" * 5000]),
    ],
)
def test_what_nobody_can_mean_is_refused_in_words(read: Callable[[str], Any], wrong: list[str]) -> None:
    for text in wrong:
        with pytest.raises(ValueError, match="is no") as caught:
            read(text)
        assert len(str(caught.value)) < 120


def test_what_people_mean_is_taken() -> None:
    assert (seconds("0.5"), seconds("604800"), count("1"), count("200"), revision("0"), revision("2147483647")) == (
        0.5, 604800.0, 1, 200, 0, 2147483647,
    )  # fmt: skip


@given(st.text(max_size=12) | st.from_regex(r"[0-9]{1,9}[mhdw]", fullmatch=True))
def test_whatever_is_typed_is_read_or_refused(text: str) -> None:
    readers: list[Callable[[str], Any]] = [expiry, seconds, count, revision]
    for read in readers:
        try:
            read(text)
        except ValueError:
            continue
