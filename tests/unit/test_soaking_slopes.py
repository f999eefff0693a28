import random

import pytest

from tests.soaking.slopes import Sample, verdict

MOST = 20.0  # MB an hour


def samples(hourly_mb: float, *, warm_up_mb: float = 60.0, minutes: int = 20, noise_mb: float = 3.0) -> list[Sample]:
    """Every 5 s: a warm-up that levels off within a quarter of the time, noise, and steady growth."""
    chance, seconds = random.Random(5), minutes * 60
    return [
        Sample(at, 110 + warm_up_mb * min(1.0, 4 * at / seconds) + hourly_mb * at / 3_600 + chance.uniform(0, noise_mb))
        for at in range(0, seconds + 1, 5)
    ]


@pytest.mark.parametrize("hourly_mb", [30, 160])
def test_a_planted_leak_is_found(hourly_mb: float) -> None:
    found = verdict(samples(hourly_mb), most_mb_per_hour=MOST)
    assert found.is_growing
    assert found.slope_mb_per_hour == pytest.approx(hourly_mb, rel=0.2)


def test_a_leak_that_slows_down_is_found() -> None:
    """As where memory fills up to a bound that nobody set: 40 MB in the last twelve minutes, and less each time."""
    seen = [Sample(at, 110 + 90 * (at / 1_200) ** 0.5) for at in range(0, 1_201, 5)]
    assert verdict(seen, most_mb_per_hour=MOST).is_growing


def test_a_warm_up_is_not_a_leak() -> None:
    found = verdict(samples(0), most_mb_per_hour=MOST)
    assert not found.is_growing
    assert found.end_mb - found.start_mb > 50


def test_a_single_peak_is_not_a_leak() -> None:
    seen = samples(0)
    seen[-12:-6] = [sample._replace(megabytes=400) for sample in seen[-12:-6]]
    found = verdict(seen, most_mb_per_hour=MOST)
    assert (found.is_growing, found.peak_mb) == (False, 400)


def test_too_few_samples_are_not_judged() -> None:
    with pytest.raises(ValueError, match="8 samples after the warm-up"):
        verdict(samples(0, minutes=1)[:14], most_mb_per_hour=MOST)
