"""The cost of tokens, and what caching saved. Pure, and exact in decimal numbers: rounding would be an error.

A price applies from a whole UTC day until the next price of its model. Amounts are rounded only for display
(`displayed`), and the exact amount always appears beside the rounded one.
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

EVERY_MODEL: Final = ""  # its price applies to all models without their own
_MILLION: Final = 6  # prices are for 10 ** 6 tokens
# Enough digits for any number of tokens at any price. A result that does not fit raises instead of being rounded.
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
    """The price of a million tokens: prompt tokens computed, prompt tokens from the cache, and generated tokens."""

    model: str  # EVERY_MODEL: all models without their own price
    valid_from: date
    currency: str
    input: Decimal
    cached_input: Decimal
    output: Decimal
    is_example: bool = False


@dataclass(frozen=True, slots=True)
class Tokens:
    """The billed tokens of one namespace, model and day. `prompt` includes `cached`."""

    prompt: int
    cached: int
    generated: int


@dataclass(frozen=True, slots=True)
class Cost:
    """An amount. `saved`: how much more the cached tokens would have cost if computed."""

    amount: Decimal
    saved: Decimal


class Saved(TypedDict):
    currency: str
    amount: str
    rounded: str
    is_example: bool
    without_price: list[str]  # models with tokens that the amount leaves out


class MixedCurrencies(ValueError):
    """Amounts in two currencies cannot be added."""

    def __init__(self, currencies: Iterable[str]) -> None:
        super().__init__(f"these have no sum: {', '.join(sorted(currencies))}")


class Book:
    """Prices, indexed for many lookups."""

    def __init__(self, prices: Iterable[Price]) -> None:
        self._by_model: dict[str, list[Price]] = {}
        for price in sorted(prices, key=lambda price: price.valid_from):
            self._by_model.setdefault(price.model, []).append(price)

    def price_of(self, model: str, day: date) -> Price | None:
        """Return the price in force that day: the model's own, else that of EVERY_MODEL."""
        return self._begun(model, day) or self._begun(EVERY_MODEL, day)

    def days_of(self, model: str) -> list[date]:
        """Return the days on which the model's price may change."""
        price_lists = (self._by_model.get(name, []) for name in (model, EVERY_MODEL))
        return sorted({price.valid_from for prices in price_lists for price in prices})

    def _begun(self, model: str, day: date) -> Price | None:
        prices = self._by_model.get(model, [])
        begun_count = bisect_right(prices, day, key=lambda price: price.valid_from)
        return prices[begun_count - 1] if begun_count else None


def price_of(prices: Iterable[Price], model: str, day: date) -> Price | None:
    """Return the price in force that day: the model's own, else that of EVERY_MODEL."""
    return Book(prices).price_of(model, day)


def currency_of(prices: Iterable[Price]) -> str | None:
    currencies = {price.currency for price in prices}
    if len(currencies) > 1:
        raise MixedCurrencies(currencies)
    return next(iter(currencies), None)


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
    """Return what cached tokens, by UTC day and model, saved. None if none of them has a price."""
    price_list = list(prices)
    currency, book = currency_of(price_list), Book(price_list)
    priced_tokens = [(book.price_of(model, day), tokens) for (day, model), tokens in cached_tokens.items()]
    used = [(price, tokens) for price, tokens in priced_tokens if price is not None]
    if currency is None or (cached_tokens and not used):
        return None
    amount = total(saved(tokens, price) for price, tokens in used)
    return Saved(
        currency=currency,
        amount=text(amount),
        rounded=displayed(amount, currency),
        is_example=any(price.is_example for price in ([price for price, _ in used] or price_list)),
        without_price=_without_price(cached_tokens, book),
    )


def _without_price(tokens: Mapping[tuple[date, str], int], book: Book) -> list[str]:
    unpriced_models = {model for (day, model), count in tokens.items() if count and book.price_of(model, day) is None}
    return sorted(unpriced_models)


def text(amount: Decimal) -> str:
    """Return the exact amount as a plain decimal number."""
    return format(amount.normalize(EXACT), "f")


def displayed(amount: Decimal, currency: str) -> str:
    """Return the amount rounded to the smallest coin; below that, with two digits, so that it is not shown as 0."""
    decimal_places = MINOR_PLACES_OF.get(currency, MINOR_PLACES)
    if amount and abs(amount) < Decimal(1).scaleb(-decimal_places):
        decimal_places = 1 - amount.adjusted()
    return format(amount.quantize(Decimal(1).scaleb(-decimal_places), context=ROUNDED), "f")


def _times(tokens: int, price: Decimal) -> Decimal:
    with localcontext(EXACT):
        return (Decimal(tokens) * price).scaleb(-_MILLION)
