"""Sizes in what the cache says to people."""

import pytest

from engine_agent.cache.errors import NeverFits, PinOverBudget
from engine_agent.cache.words import size_text, sizes_apart


@pytest.mark.parametrize(
    ("size_bytes", "read"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (524_288, "512.0 KiB"),
        (3 * 2**30 + 2**29, "3.5 GiB"),
        (2**52, "4,096.0 TiB"),
        (-2048, "-2.0 KiB"),
    ],
)
def test_a_size_is_said_in_the_unit_in_which_it_is_at_least_one(size_bytes: int, read: str) -> None:
    assert size_text(size_bytes) == read


def test_two_sizes_that_would_read_alike_are_said_exactly() -> None:
    assert sizes_apart(2**20, 2**19) == ("1.0 MiB", "512.0 KiB")
    assert sizes_apart(2**20 + 1, 2**20) == ("1,048,577 bytes", "1,048,576 bytes")
    assert sizes_apart(2**20, 2**20) == ("1.0 MiB", "1.0 MiB")


def test_what_is_refused_for_its_size_says_sizes_people_read_and_keeps_the_bytes() -> None:
    pin = PinOverBudget("handbook", wanted_bytes=524_288, budget_bytes=0)
    assert str(pin) == "pin: 512.0 KiB wanted, 0 bytes left of the pins' budget"
    assert (pin.wanted_bytes, pin.budget_bytes) == (524_288, 0)
    assert str(NeverFits("tokens", wanted_bytes=2**30, most_bytes=2**20)) == (
        "tokens: 1.0 GiB wanted, the pool has 1.0 MiB"
    )
