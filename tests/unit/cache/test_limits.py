"""Bounds that make no sense are refused where they are given, by their name."""

import pytest

from engine_agent.cache.books import TIERS, Books, CacheLimits
from engine_agent.cache.errors import InvalidValue

NO_COUNTS = (0, -1, 1.0, True, "1", None)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("ghost_blocks", NO_COUNTS),
        ("event_blocks", NO_COUNTS),
        ("ledger_pairs", NO_COUNTS),
        ("gap_samples", NO_COUNTS),
        ("purged_pins", NO_COUNTS),
        ("reclaimed_runs", NO_COUNTS),
        ("still_readings", NO_COUNTS),
        ("demote_after_hits", (-1, 1.0, True, "1", None)),
        ("demote_least_seconds", (-0.5, float("nan"), True, "1", None)),
        ("zero_expired", (0, 1, "true", None)),
        ("tables_are_fixed", (0, 1, "true", None)),
    ],
)
def test_a_limit_that_is_none_is_refused_by_its_name(
    name: str, values: tuple[object, ...], subtests: pytest.Subtests
) -> None:
    for value in values:
        with subtests.test(value=repr(value)), pytest.raises(InvalidValue, match=f"^{name}: "):
            CacheLimits(**{name: value})  # type: ignore[arg-type]


def test_the_least_that_a_limit_may_be_is_taken() -> None:
    CacheLimits(ghost_blocks=1, still_readings=1, demote_after_hits=0, demote_least_seconds=0.0, zero_expired=False)


@pytest.mark.parametrize("count", [0, len(TIERS) + 1])
def test_a_cache_has_one_to_three_tiers(count: int) -> None:
    with pytest.raises(InvalidValue, match=r"^storages: "):
        Books([object()] * count, limits=CacheLimits(), boot="boot")  # type: ignore[list-item]
