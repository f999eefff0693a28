"""Statistics, alternation and targets of the bench harness. Asserts no time."""

import pytest

from tests.bench.factories import make_comparison, make_figure
from tests.bench.figures import Target
from tests.bench.measuring import Bench, timed
from tests.bench.stats import statistics_of

# --- statistics -------------------------------------------------------------------------------------------------------


def test_quantiles_interpolate_between_the_closest_ranks() -> None:
    found = statistics_of([40.0, 10.0, 20.0, 30.0])  # ranks 0..3, so p25 is at 0.75 and the median at 1.5
    assert (found.n, found.min, found.max) == (4, 10.0, 40.0)
    assert (found.p25, found.median, found.p75) == (17.5, 25.0, 32.5)
    assert (found.p5, found.p95, found.p99) == pytest.approx((11.5, 38.5, 39.7))


def test_the_spread_is_the_interquartile_range_as_a_share_of_the_median() -> None:
    assert statistics_of([10.0, 20.0, 30.0, 40.0]).spread_percent == pytest.approx(60.0)  # (32.5 - 17.5) / 25


def test_one_sample_has_quantiles_but_no_spread() -> None:
    found = statistics_of([7.0])
    assert (found.p5, found.median, found.p99, found.spread_percent) == (7.0, 7.0, 7.0, None)


def test_a_median_of_zero_has_no_relative_spread() -> None:
    assert statistics_of([0.0, 0.0, 9.0]).spread_percent is None


# --- measuring --------------------------------------------------------------------------------------------------------


def test_warm_up_samples_are_taken_and_dropped() -> None:
    values = iter([900.0, 800.0, 1.0, 2.0, 3.0])
    figure = Bench("X1").measure("start", unit="s", sample=lambda: next(values), repetitions=3, warmup=2)
    assert figure.ours.samples == (1.0, 2.0, 3.0)
    assert next(values, None) is None


def test_a_comparison_alternates_its_sides() -> None:
    calls = ""

    def side(letter: str) -> float:
        nonlocal calls
        calls += letter
        return 1.0

    Bench("X1").compare(
        "hash",
        unit="µs",
        ours=lambda: side("o"),
        theirs=lambda: side("t"),
        theirs_name="vLLM",
        repetitions=4,
        warmup=1,
    )
    assert calls == "ot" + "ot" + "to" + "ot" + "to"


def test_a_ratio_is_taken_per_pair_and_the_target_judges_it() -> None:
    figure = make_comparison(Target("<=", 0.8))
    assert figure.ratio is not None
    assert figure.ratio.samples == (0.5, 0.75, 2.0)
    assert figure.judged_value == 0.75
    assert figure.is_met is True


def test_a_ratio_to_zero_names_the_side_that_measured_nothing() -> None:
    with pytest.raises(ValueError, match="vLLM measured 0 µs"):
        Bench("X1").compare("hash", unit="µs", ours=lambda: 1.0, theirs=lambda: 0.0, theirs_name="vLLM")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_sample_that_is_not_a_number_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="latency: a sample is"):
        make_figure(1.0, value)


def test_no_values_are_refused() -> None:
    with pytest.raises(ValueError, match="latency: no values"):
        make_figure()


def test_a_figure_name_is_used_once_per_row() -> None:
    bench = Bench("X1")
    bench.record("hits", unit="%", values=[1.0])
    with pytest.raises(ValueError, match="X1 already has a figure named 'hits'"):
        bench.record("hits", unit="%", values=[2.0])


def test_the_command_overrules_a_figures_own_repetitions() -> None:
    bench = Bench("X1", repetitions=2)
    assert bench.measure("start", unit="s", sample=lambda: 1.0, repetitions=50).ours.statistics.n == 2
    assert bench.repetitions(50) == 2
    assert Bench("X1").repetitions(50) == 50


def test_a_timed_sample_is_divided_by_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 10.5])
    monkeypatch.setattr("tests.bench.measuring.time.perf_counter", lambda: next(clock))
    done: list[int] = []
    assert timed(lambda: done.append(1), unit="ms", calls=5)() == pytest.approx(100.0)
    assert len(done) == 5


# --- targets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "met", "short", "by"),
    [
        (Target("<=", 2.0), 2.0, 2.5, 0.5),
        (Target("<", 2.0), 1.9, 2.0, 0.0),
        (Target(">=", 8.0), 8.0, 7.0, 1.0),
        (Target(">", 8.0), 8.1, 8.0, 0.0),
        (Target("==", 0.0), 0.0, 3.0, 3.0),
        (Target("==", 37.5, tolerance=0.5), 37.0, 38.75, 0.75),
    ],
)
def test_a_target_knows_what_meets_it_and_how_far_the_rest_is(
    target: Target, met: float, short: float, by: float
) -> None:
    assert (target.is_met(met), target.shortfall(met)) == (True, 0.0)
    assert (target.is_met(short), target.shortfall(short)) == (False, by)


def test_a_target_may_judge_another_statistic_than_the_median() -> None:
    assert make_figure(1.0, 1.0, 9.0, target=Target("<=", 2.0)).is_met is True
    assert make_figure(1.0, 1.0, 9.0, target=Target("<=", 2.0, of="max")).is_met is False


def test_a_figure_without_target_is_neither_met_nor_short() -> None:
    assert make_figure(1.0).is_met is None


def test_only_an_equality_has_a_tolerance() -> None:
    with pytest.raises(ValueError, match="tolerance goes with =="):
        Target("<=", 1.0, tolerance=0.1)
