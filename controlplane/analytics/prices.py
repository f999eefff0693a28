"""The price list: read, and replaced as a whole. Amounts that were already invoiced do not change.

Prices apply from a whole UTC day. Days before today have been invoiced wherever they had a price, so the price of a
token on them cannot change; a day without a price may still get one. Example prices were never invoiced.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final

from controlplane.analytics import models
from controlplane.analytics.money import EVERY_MODEL, Book, Price, currency_of, text
from tenants.actor import Actor
from tenants.audit import audited
from tenants.errors import FieldProblem, InvalidFields
from tenants.revisions import Expected, revision_check

THE_LIST: Final = 1
MOST_PRICES: Final = 500
ASKED: Final = ("input", "cached_input", "output")


@dataclass(frozen=True, slots=True)
class Listed:
    """A price, and who added it to the list."""

    price: Price
    created_by: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Prices:
    revision: int
    listed: tuple[Listed, ...]  # by model, then by day

    @property
    def prices(self) -> list[Price]:
        return [entry.price for entry in self.listed]

    @property
    def currency(self) -> str | None:
        return currency_of(self.prices)

    @property
    def is_example(self) -> bool:
        return any(price.is_example for price in self.prices)


def prices_now() -> list[Price]:
    """Return every price, also past and future ones; `price_of` finds the one in force on a day."""
    return [_price(row) for row in _rows()]


def revision_now() -> int:
    """Return the revision of the list; 0 until prices are first written."""
    return models.PriceList.objects.filter(pk=THE_LIST).values_list("revision", flat=True).first() or 0


def price_list() -> Prices:
    """Return the list. Reads the revision first: if it is older than the prices, a client only reads the list once
    more."""
    revision = revision_now()
    return Prices(revision, tuple(Listed(_price(row), row.created_by, row.created_at) for row in _rows()))


def prices_put(*, actor: Actor, prices: Sequence[Price], expected: Expected, now: datetime) -> Prices:
    """Replace the list. An equal list changes nothing and makes no new revision."""
    with audited() as journal:
        locked_list = _list_lock()
        revision_check(locked_list.revision, expected)
        before = prices_now()
        _check(before, prices, today=now.astimezone(UTC).date())
        if frozenset(before) != frozenset(prices):
            _replace(before, prices, actor=actor)
            locked_list.revision += 1
            locked_list.save(update_fields=["revision"])
            journal.record(actor, "prices.set", "prices", before=_described(before), after=_described(prices))
    return price_list()


def past_problems(before: Collection[Price], after: Sequence[Price], *, today: date) -> Iterator[FieldProblem]:
    """Yield the places in the new list that change the cost of a day before today, each once."""
    fields = {(price.model, price.valid_from): f"prices.{number}" for number, price in enumerate(after)}
    reported_fields: set[str] = set()
    for model, day, old_price, new_price in _past_changes(before, after, today=today):
        field = _past_field(fields, old_price, new_price)
        if field not in reported_fields:
            reported_fields.add(field)
            yield FieldProblem(field, _past_words(model, day, old_price, is_missing=new_price is None))


def _past_field(fields: Mapping[tuple[str, date], str], old_price: Price, new_price: Price | None) -> str:
    """Return the field at fault: a number of the same price, else the price that replaces it, else the whole list."""
    if new_price is None:
        return "prices"
    field = fields[new_price.model, new_price.valid_from]
    is_itself = (new_price.model, new_price.valid_from) == (old_price.model, old_price.valid_from)
    return f"{field}.{_changed(old_price, new_price)}" if is_itself else field


def _past_changes(
    before: Collection[Price], after: Collection[Price], *, today: date
) -> Iterator[tuple[str, date, Price, Price | None]]:
    """Yield model, day, old price and new price. Checks only the days on which prices begin; others cannot differ."""
    old_book, new_book = Book(before), Book(after)
    for model in sorted({price.model for price in (*before, *after)} | {EVERY_MODEL}):
        for day in sorted({*old_book.days_of(model), *new_book.days_of(model)}):
            old_price, new_price = old_book.price_of(model, day), new_book.price_of(model, day)
            if (
                day < today
                and old_price is not None
                and not old_price.is_example
                and not _is_same(old_price, new_price)
            ):
                yield model, day, old_price, new_price


def _past_words(model: str, day: date, old_price: Price, *, is_missing: bool) -> str:
    amounts = ", ".join(f"{name} {text(getattr(old_price, name))}" for name in ASKED)
    model_phrase = f"of {model}" if model else "of every model"
    problem = "lacks" if is_missing else "would change"
    return f"{problem} the price {model_phrase} on {day}, which has been invoiced: {amounts}"


def _changed(old_price: Price, new_price: Price) -> str:
    return next((name for name in ASKED if getattr(new_price, name) != getattr(old_price, name)), "is_example")


def _check(before: Sequence[Price], after: Sequence[Price], *, today: date) -> None:
    problems = [*_own_problems(after), *_currency_problems(before, after, today=today)]
    problems = problems or list(past_problems(before, after, today=today))
    if problems:
        raise InvalidFields(problems)


def _own_problems(prices: Sequence[Price]) -> Iterator[FieldProblem]:
    seen: dict[tuple[str, date], int] = {}
    for number, price in enumerate(prices):
        first = seen.setdefault((price.model, price.valid_from), number)
        if first != number:
            yield FieldProblem(f"prices.{number}.valid_from", f"{price.valid_from} is that of prices.{first} as well")
        if price.cached_input > price.input:
            words = f"{text(price.cached_input)} is more than input, which is {text(price.input)}"
            yield FieldProblem(f"prices.{number}.cached_input", words)


def _currency_problems(before: Iterable[Price], after: Iterable[Price], *, today: date) -> Iterator[FieldProblem]:
    currencies = sorted({price.currency for price in after})
    invoiced = currency_of(price for price in before if price.valid_from < today and not price.is_example)
    if len(currencies) > 1:
        yield FieldProblem("currency", f"{' and '.join(currencies)} are more than one, and amounts of them have no sum")
    elif invoiced and currencies and currencies != [invoiced]:
        words = f"{currencies[0]} is another than {invoiced}, in which days before today have been invoiced"
        yield FieldProblem("currency", words)


def _is_same(old_price: Price, new_price: Price | None) -> bool:
    """Return whether both cost the customer the same."""
    return new_price is not None and _paid(old_price) == _paid(new_price)


def _paid(price: Price) -> tuple[Any, ...]:
    return price.input, price.cached_input, price.output, price.is_example


def _list_lock() -> models.PriceList:
    models.PriceList.objects.bulk_create([models.PriceList(pk=THE_LIST)], ignore_conflicts=True)
    return models.PriceList.objects.select_for_update(no_key=True).get(pk=THE_LIST)


def _replace(before: Sequence[Price], after: Sequence[Price], *, actor: Actor) -> None:
    """Replace the rows. Prices that stay keep their author and their time."""
    unchanged = frozenset(before) & frozenset(after)
    unchanged_keys = {(price.model, price.valid_from) for price in unchanged}
    removed_ids = [row.pk for row in _rows() if (row.model, row.valid_from) not in unchanged_keys]
    models.Price.objects.filter(pk__in=removed_ids).delete()
    models.Price.objects.bulk_create(
        models.Price(**_columns(price), created_by=actor.name) for price in after if price not in unchanged
    )


def _rows() -> "Iterable[models.Price]":
    return models.Price.objects.order_by("model", "valid_from")


def _price(row: models.Price) -> Price:
    return Price(
        row.model, row.valid_from, row.currency, row.input, row.cached_input, row.output, is_example=row.is_example
    )


def _columns(price: Price) -> Mapping[str, Any]:
    return {
        "model": price.model,
        "valid_from": price.valid_from,
        "currency": price.currency,
        "is_example": price.is_example,
        **{name: getattr(price, name) for name in ASKED},
    }


def _described(prices: Iterable[Price]) -> list[dict[str, Any]]:
    """Return the prices for the audit trail, with exact numbers as text."""
    ordered = sorted(prices, key=lambda price: (price.model, price.valid_from))
    return [
        {**_columns(price), "valid_from": str(price.valid_from), **{name: text(getattr(price, name)) for name in ASKED}}
        for price in ordered
    ]
