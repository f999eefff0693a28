"""How much of a pool is promised away. Who is refused because of it is tests/integration/test_policies.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenants.policy import Below
from tenants.shares import PROMISED_AT_MOST, Holding, heaviest_promise, holdings

MODELS = ("a", "b", "c")
SHARES = st.integers(0, 20).map(lambda n: n / 20)


def held(name: str, general: float, **by_model: float) -> Holding:
    organisation, _, namespace = name.partition("/")
    return Holding(1, organisation, hash(name), namespace or "default", general, by_model)


HOLDINGS = st.lists(
    st.builds(lambda general, by_model: held("o", general, **by_model), SHARES,
              st.dictionaries(st.sampled_from(MODELS), SHARES)),
    max_size=6,
)  # fmt: skip


def naive_total(holdings: list[Holding], model: str | None) -> float:
    return sum(one.general if model is None else one.by_model.get(model, one.general) for one in holdings)


def test_a_holding_is_reservation_and_pins_together() -> None:
    below = Below(1, "acme", 2, "chat", 3, {}, {})
    chain = ({"reserved_share": 0.1}, {"pin_share": 0.2}, {"models": {"m": {"reserved_share": 0.5}}})
    (found,) = holdings([below], lambda _: chain)
    assert found.name == "acme/chat"
    assert found.general == pytest.approx(0.3)
    assert found.by_model == {"m": pytest.approx(0.7)}


def test_nobody_holds_anything_where_nobody_is() -> None:
    promise = heaviest_promise([])
    assert (promise.model, promise.total, promise.holders, promise.is_too_much) == (None, 0, (), False)


@given(HOLDINGS)
def test_the_heaviest_promise_is_the_largest_sum_of_any_model(holdings: list[Holding]) -> None:
    promise = heaviest_promise(holdings)
    assert promise.total == pytest.approx(max(naive_total(holdings, model) for model in (None, *MODELS)))
    assert promise.total == pytest.approx(naive_total(holdings, promise.model))
    assert promise.total == pytest.approx(sum(share for _, share in promise.holders))


def test_a_model_with_less_than_the_general_share_does_not_hide_the_general_sum() -> None:
    promise = heaviest_promise([held("a", 0.9, m=0.0), held("b", 0.2)])
    assert promise.model is None
    assert promise.total == pytest.approx(1.1)


def test_holders_are_named_largest_first_and_those_without_anything_are_not() -> None:
    promise = heaviest_promise([held("b/x", 0.1), held("a/x", 0.1), held("c/x", 0.0), held("d/x", 0.3)])
    assert [one.name for one, _ in promise.holders] == ["d/x", "a/x", "b/x"]


@pytest.mark.parametrize(("shares", "is_too_much"), [([0.9], False), ([0.3] * 3, False), ([0.1] * 9, False),
                                                      ([0.901], True), ([0.1] * 10, True)])  # fmt: skip
def test_nine_tenths_may_be_promised_and_no_more(shares: list[float], is_too_much: bool) -> None:
    assert PROMISED_AT_MOST == 0.9
    assert heaviest_promise([held(str(n), share) for n, share in enumerate(shares)]).is_too_much is is_too_much


def is_acmes(one: Holding) -> bool:
    return one.organisation == "acme"


@pytest.mark.parametrize(("others", "counted"), [(0.0, 0.0), (0.01, 0.1), (0.3, 0.3), (0.31, 0.4), (0.9, 0.9)])
def test_what_others_hold_counts_in_bands(others: float, counted: float) -> None:
    promise = heaviest_promise([held("acme/a", 0.2), held("globex/b", others)], is_acmes)
    assert promise.total == pytest.approx(0.2 + counted)


def test_bands_are_of_each_model() -> None:
    promise = heaviest_promise([held("acme/a", 0.2, m=0.5), held("globex/b", 0.1, n=0.75)], is_acmes)
    assert promise.model == "n"
    assert promise.total == pytest.approx(1.0)


@given(HOLDINGS, st.integers(0, 9), st.floats(0.001, 0.1), st.floats(0.001, 0.1))
def test_others_within_a_band_refuse_the_same(mine: list[Holding], band: int, one: float, two: float) -> None:
    answers = [
        heaviest_promise([*mine, held("globex/b", band / 10 + others)], lambda each: each.organisation == "o")
        for others in (one, two)
    ]
    assert answers[0].is_too_much is answers[1].is_too_much
