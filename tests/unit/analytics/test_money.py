"""Money adds up to the last digit: against fractions, which cannot round, whatever the tokens and the prices."""

import ast
import inspect
from datetime import date, timedelta
from decimal import Decimal, FloatOperation, Inexact, localcontext
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.analytics import money
from controlplane.analytics.money import (
    Book,
    MixedCurrencies,
    Price,
    Tokens,
    cost,
    currency_of,
    displayed,
    price_of,
    saved_money,
    text,
    total,
)

DAY = date(2026, 11, 22)
asked = st.decimals(min_value=0, max_value=999_999_999, places=9)
tokens = st.integers(0, 10**18)


def price(model: str = "", day: date = DAY, of_input: str = "2", cached: str = "0.5", **more: Any) -> Price:
    return Price(
        model=model,
        valid_from=day,
        input=Decimal(of_input),
        cached_input=Decimal(cached),
        output=Decimal(8),
        **{"currency": "EUR", **more},
    )


@given(tokens, tokens, tokens, asked, asked, asked)
def test_a_cost_is_exact(
    uncached: int, cached: int, generated: int, of_input: Decimal, hit: Decimal, out: Decimal
) -> None:
    found = cost(Tokens(uncached + cached, cached, generated), Price("m", DAY, "EUR", of_input, hit, out))
    wanted = uncached * Fraction(of_input) + cached * Fraction(hit) + generated * Fraction(out)
    assert Fraction(found.amount) == wanted / 10**6
    assert Fraction(found.saved) == cached * (Fraction(of_input) - Fraction(hit)) / 10**6


@given(st.lists(st.tuples(tokens, asked), max_size=40))
def test_a_sum_is_exact_and_every_digit_of_it_is_said(lines: list[tuple[int, Decimal]]) -> None:
    amounts = [cost(Tokens(one, 0, 0), Price("m", DAY, "EUR", price, price, price)).amount for one, price in lines]
    wanted = sum((one * Fraction(price) for one, price in lines), Fraction(0)) / 10**6
    assert Fraction(text(total(amounts))) == wanted


def test_whatever_context_a_thread_computes_in_nothing_is_rounded() -> None:
    with localcontext() as rough:
        rough.prec = 3
        found = cost(Tokens(123_456_789, 0, 0), price(of_input="0.123456789"))
        assert Fraction(found.amount) == 123_456_789 * Fraction("0.123456789") / 10**6
        assert Fraction(text(total([found.amount] * 2))) == 2 * Fraction(found.amount)
        assert displayed(Decimal("12345.675"), "EUR") == "12345.68"


def test_no_number_in_it_is_a_float_and_none_can_get_in() -> None:
    tree = ast.parse(inspect.getsource(money))
    numbers = [one.value for one in ast.walk(tree) if isinstance(one, ast.Constant)]
    assert not any(isinstance(one, float) for one in numbers)
    assert not any(isinstance(one, ast.Div) for one in ast.walk(tree))
    assert "float" not in {one.id for one in ast.walk(tree) if isinstance(one, ast.Name)}
    with pytest.raises((TypeError, FloatOperation)):
        cost(Tokens(1, 0, 0), Price("m", DAY, "EUR", 0.1, Decimal(0), Decimal(0)))  # type: ignore[arg-type]
    with pytest.raises((TypeError, FloatOperation)):
        cost(Tokens(0.5, 0, 0), price())  # type: ignore[arg-type]


def test_what_would_be_rounded_raises_instead() -> None:
    with pytest.raises(Inexact):
        cost(Tokens(10**200 + 1, 0, 0), price(of_input="0.123456789"))


def test_a_price_holds_from_its_day_until_the_next_of_its_model() -> None:
    prices = [price(day=DAY + timedelta(days=days)) for days in (9, 0, 3)]  # in any order
    found = [price_of(prices, "m", DAY + timedelta(days=days)) for days in (-1, 0, 2, 3, 8, 9, 9_999)]
    begun = [None if one is None else (one.valid_from - DAY).days for one in found]
    assert begun == [None, 0, 0, 3, 3, 9, 9]


def test_a_model_of_its_own_price_has_that_and_before_it_everybodys() -> None:
    prices = [price("", DAY), price("m", DAY + timedelta(days=2)), price("", DAY + timedelta(days=4))]
    found = [price_of(prices, "m", DAY + timedelta(days=days)) for days in range(6)]
    assert [one and one.model for one in found] == ["", "", "m", "m", "m", "m"]
    assert price_of(prices, "other", DAY + timedelta(days=5)) == prices[2]


@given(
    st.lists(st.tuples(st.sampled_from(["", "m", "n"]), st.integers(0, 30)), unique=True),
    st.sampled_from(["m", "n", "o"]),
    st.integers(-1, 31),
)
def test_looking_up_is_what_reading_the_list_would_be(begun: list[tuple[str, int]], model: str, days: int) -> None:
    prices = [price(name, DAY + timedelta(days=one)) for name, one in begun]
    at = DAY + timedelta(days=days)
    own = [one for one in prices if one.model == model and one.valid_from <= at]
    everybodys = [one for one in prices if one.model == "" and one.valid_from <= at]
    wanted = max(own or everybodys, key=lambda one: one.valid_from, default=None)
    assert Book(prices).price_of(model, at) == wanted


def test_saved_is_what_cached_tokens_would_have_cost_on_top() -> None:
    found = saved_money({(DAY, "m"): 1_000_000, (DAY + timedelta(days=1), "m"): 1}, [price()])
    assert found is not None
    assert (found["currency"], found["amount"], found["rounded"]) == ("EUR", "1.5000015", "1.50")
    assert (found["is_example"], found["without_price"]) == (False, [])


def test_an_amount_names_the_models_it_lacks() -> None:
    prices = [price("a"), price("late", DAY + timedelta(days=1))]
    cached = {
        (DAY, "a"): 600,
        (DAY, "b"): 9_000_000,
        (DAY, "late"): 1,
        (DAY + timedelta(days=1), "late"): 1,
        (DAY, "c"): 0,
    }
    found = saved_money(cached, prices)
    assert found is not None
    assert (found["amount"], found["without_price"]) == ("0.0009015", ["b", "late"])


def test_a_window_over_a_change_of_prices_pays_each_day_as_it_was() -> None:
    prices = [price(day=DAY - timedelta(days=9)), price(day=DAY, of_input="4", is_example=True)]
    found = saved_money({(DAY - timedelta(days=1), "m"): 1_000_000, (DAY, "m"): 1_000_000}, prices)
    assert found is not None
    assert (found["amount"], found["is_example"]) == ("5", True)
    before = saved_money({(DAY - timedelta(days=1), "m"): 1_000_000}, prices)
    assert before is not None
    assert (before["amount"], before["is_example"]) == ("1.5", False)


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["m", "n"]), tokens), max_size=30))
def test_parts_of_a_window_save_together_what_the_window_does(rows: list[tuple[int, str, int]]) -> None:
    prices = [price(day=DAY + timedelta(days=5)), price("n", DAY, of_input="0.000000001", cached="0")]
    by_day: dict[tuple[date, str], int] = {}
    for days, model, cached in rows:
        key = (DAY + timedelta(days=days), model)
        by_day[key] = by_day.get(key, 0) + cached
    parts = [saved_money({(DAY + timedelta(days=days), model): cached}, prices) for days, model, cached in rows]
    whole = saved_money(by_day, prices)
    amount = total(Decimal(one["amount"]) for one in parts if one is not None)
    assert text(amount) == (whole["amount"] if whole is not None else "0")


def test_without_a_price_there_is_no_amount_and_without_tokens_it_is_nothing() -> None:
    assert saved_money({(DAY, "m"): 5}, []) is None
    assert saved_money({}, []) is None
    assert saved_money({(DAY, "m"): 5}, [price("n")]) is None
    assert saved_money({(DAY, "m"): 5}, [price(day=DAY + timedelta(days=1))]) is None
    nothing = saved_money({}, [price(is_example=True)])
    assert nothing is not None
    assert (nothing["currency"], nothing["amount"], nothing["rounded"]) == ("EUR", "0", "0.00")
    assert (nothing["is_example"], nothing["without_price"]) == (True, [])


def test_two_currencies_have_no_sum() -> None:
    with pytest.raises(MixedCurrencies, match="EUR, USD"):
        saved_money({(DAY, "m"): 5}, [price(), price("m", currency="USD")])
    assert currency_of([]) is None


def test_people_see_what_can_be_paid_in_and_never_nothing_for_something(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str, str]] = [
        ("0", "EUR", "0.00"),
        ("1.005", "EUR", "1.01"),
        ("1.004999999999999", "EUR", "1.00"),
        ("0.01", "EUR", "0.01"),
        ("0.00989", "EUR", "0.0099"),
        ("0.000314159", "EUR", "0.00031"),
        ("0.000000000000001", "EUR", "0.0000000000000010"),
        ("12345678901234567890.125", "EUR", "12345678901234567890.13"),
        ("1234.5", "JPY", "1235"),
        ("0.25", "JPY", "0.25"),
        ("1.0005", "KWD", "1.001"),
        ("1.5", "XXX", "1.50"),
    ]
    for amount, currency, shown in cases:
        with subtests.test(msg=f"{amount!r}, {currency!r}"):
            assert displayed(Decimal(amount), currency) == shown


@pytest.mark.parametrize("amount", ["0", "0.000000000000001", "100", "1000000000000000000000000000000", "1.50"])
def test_an_exact_amount_is_written_without_an_exponent(amount: str) -> None:
    assert Decimal(text(Decimal(amount))) == Decimal(amount)
    assert "E" not in text(Decimal(amount))
