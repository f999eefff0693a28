"""What tokens cost, and what caching saved. Pure, in decimal numbers alone, and exact: a rounding would be an error.

A price holds from a whole UTC day on, until the next one of its model. Rounding is for display (`displayed`), and what
is rounded is always said beside what is exact.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import (
    ROUND_HALF_UP,
    Clamped,
    Context,
    Decimal,
    DivisionByZero,
    FloatOperation,
    Inexact,
    InvalidOperation,
    Overflow,
    Underflow,
    localcontext,
)
from typing import Final, TypedDict

EVERY_MODEL: Final = ""  # whose price is that of all models without one of their own
_MILLION: Final = 6  # prices are of so many decimal places' worth of tokens
# Enough for more tokens than there will ever be, at any price. What would not fit raises instead of being rounded.
EXACT: Final = Context(
    prec=120,
    traps=[Clamped, DivisionByZero, FloatOperation, Inexact, InvalidOperation, Overflow, Underflow],
)
ROUNDED: Final = Context(prec=120, rounding=ROUND_HALF_UP)
MINOR_PLACES: Final = 2
MINOR_PLACES_OF: Final = dict.fromkeys(
    ("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "VND", "VUV", "XAF", "XOF", "XPF"), 0
) | dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3)  # ISO 4217


@dataclass(frozen=True, slots=True)
class Price:
    """Of a million tokens: prompt tokens that were computed, prompt tokens out of the cache, generated ones."""

    model: str  # EVERY_MODEL: all that have no own
    valid_from: date
    currency: str
    input: Decimal
    cached_input: Decimal
    output: Decimal
    is_example: bool = False


@dataclass(frozen=True, slots=True)
class Tokens:
    """What is paid for, of one namespace, model and day. `prompt` includes `cached`."""

    prompt: int
    cached: int
    generated: int


@dataclass(frozen=True, slots=True)
class Cost:
    """`saved`: what the cached tokens would have cost on top of what they did."""

    amount: Decimal
    saved: Decimal


class Saved(TypedDict):
    currency: str
    amount: str
    rounded: str
    is_example: bool
    without_price: list[str]  # models of whose tokens the amount lacks some


class MixedCurrencies(ValueError):
    """Amounts of two currencies have no sum."""

    def __init__(self, currencies: Iterable[str]) -> None:
        super().__init__(f"these have no sum: {', '.join(sorted(currencies))}")


class Book:
    """Prices to be looked up many times."""

    def __init__(self, prices: Iterable[Price]) -> None:
        self._by_model: dict[str, list[Price]] = {}
        for one in sorted(prices, key=lambda one: one.valid_from):
            self._by_model.setdefault(one.model, []).append(one)

    def price_of(self, model: str, day: date) -> Price | None:
        """What is in force that day: the model's own, else everybody's."""
        return self._begun(model, day) or self._begun(EVERY_MODEL, day)

    def days_of(self, model: str) -> list[date]:
        """On which what the model costs may change."""
        found = (self._by_model.get(name, []) for name in (model, EVERY_MODEL))
        return sorted({price.valid_from for prices in found for price in prices})

    def _begun(self, model: str, day: date) -> Price | None:
        prices = self._by_model.get(model, [])
        begun = bisect_right(prices, day, key=lambda one: one.valid_from)
        return prices[begun - 1] if begun else None


def price_of(prices: Iterable[Price], model: str, day: date) -> Price | None:
    """What is in force that day: the model's own, else everybody's."""
    return Book(prices).price_of(model, day)


def currency_of(prices: Iterable[Price]) -> str | None:
    found = {one.currency for one in prices}
    if len(found) > 1:
        raise MixedCurrencies(found)
    return next(iter(found), None)


def cost(tokens: Tokens, price: Price) -> Cost:
    parts = (
        _times(tokens.prompt - tokens.cached, price.input),
        _times(tokens.cached, price.cached_input),
        _times(tokens.generated, price.output),
    )
    return Cost(total(parts), saved(tokens.cached, price))


def saved(cached_tokens: int, price: Price) -> Decimal:
    return _times(cached_tokens, EXACT.subtract(price.input, price.cached_input))


def total(amounts: Iterable[Decimal]) -> Decimal:
    with localcontext(EXACT):
        return sum(amounts, Decimal(0))


def saved_money(cached_tokens: Mapping[tuple[date, str], int], prices: Iterable[Price]) -> Saved | None:
    """What cached tokens, by UTC day and model, saved. None where nothing of them has a price."""
    known = list(prices)
    currency, book = currency_of(known), Book(known)
    found = [(book.price_of(model, day), tokens) for (day, model), tokens in cached_tokens.items()]
    used = [(price, tokens) for price, tokens in found if price is not None]
    if currency is None or (cached_tokens and not used):
        return None
    amount = total(saved(tokens, price) for price, tokens in used)
    return Saved(
        currency=currency,
        amount=text(amount),
        rounded=displayed(amount, currency),
        is_example=any(one.is_example for one in ([price for price, _ in used] or known)),
        without_price=_without_price(cached_tokens, book),
    )


def _without_price(tokens: Mapping[tuple[date, str], int], book: Book) -> list[str]:
    lacking = {model for (day, model), count in tokens.items() if count and book.price_of(model, day) is None}
    return sorted(lacking)


def text(amount: Decimal) -> str:
    """All of it, as people write numbers."""
    return format(amount.normalize(EXACT), "f")


def displayed(amount: Decimal, currency: str) -> str:
    """Rounded to what can be paid in; what is less than the least coin to two digits, so that it is not nothing."""
    places = MINOR_PLACES_OF.get(currency, MINOR_PLACES)
    if amount and abs(amount) < Decimal(1).scaleb(-places):
        places = 1 - amount.adjusted()
    return format(amount.quantize(Decimal(1).scaleb(-places), context=ROUNDED), "f")


def _times(tokens: int, price: Decimal) -> Decimal:
    with localcontext(EXACT):
        return (Decimal(tokens) * price).scaleb(-_MILLION)
