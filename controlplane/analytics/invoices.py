"""An organisation's invoice for some UTC days: counts by day, namespace and model, at the prices of their days.

The lines' tokens are those of the counters, and their amounts are exact; nothing here rounds.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, Literal

from controlplane.analytics import prices, selectors
from controlplane.analytics.columns import CUSTOMER_KIND
from controlplane.analytics.money import Book, Cost, Price, Tokens, cost, currency_of, total
from controlplane.analytics.rolling import LEVELS
from controlplane.analytics.rows import OLDEST_SECONDS
from controlplane.analytics.sums import Scope, counts_by
from controlplane.analytics.windows import DAY_SECONDS, Span, Window
from tenants.consistent_reads import consistent_read
from tenants.errors import FieldProblem, InvalidFields
from tenants.models import Organisation

By = Literal["namespace", "model"]
DELETED: Final = "(deleted)"  # the name of a namespace whose row is gone; no slug looks like it
MOST_DAYS: Final = 400
MOST_LINES: Final = 50_000
KEPT_DAYS: Final = LEVELS[DAY_SECONDS].kept_days
LATEST: Final = timedelta(seconds=OLDEST_SECONDS)  # agents may report this late
_Key = tuple[date, str | None, str]


@dataclass(frozen=True, slots=True)
class Line:
    """One day of one namespace and model; if `namespace` is None, of the model in all namespaces."""

    day: date
    namespace: str | None
    model: str
    requests: int
    tokens: Tokens
    price: Price | None
    cost: Cost | None  # None without a price
    is_open: bool  # the day is not over


@dataclass(frozen=True, slots=True)
class Invoice:
    organisation: str
    first_day: date
    last_day: date
    as_of: datetime
    lines: tuple[Line, ...]  # by day, namespace, model

    @property
    def currency(self) -> str | None:
        return currency_of(self._prices())

    @property
    def is_example(self) -> bool:
        return any(price.is_example for price in self._prices())

    @property
    def is_open(self) -> bool:
        return self.last_day >= self.as_of.date()

    @property
    def may_change_from(self) -> date | None:
        """The first of its days for which an agent may still report something, or None."""
        reported_until = (self.as_of - LATEST).date()
        return None if reported_until > self.last_day else max(reported_until, self.first_day)

    @property
    def without_price(self) -> list[str]:
        """The models of the lines without an amount."""
        return sorted({line.model for line in self.lines if line.price is None})

    @property
    def requests(self) -> int:
        return sum(line.requests for line in self.lines)

    @property
    def tokens(self) -> Tokens:
        return _added(line.tokens for line in self.lines)

    @property
    def cost(self) -> Cost | None:
        """The cost of all lines with a price; None if there are lines but none has a price."""
        costs = [line.cost for line in self.lines if line.cost is not None]
        if self.lines and not costs:
            return None
        return Cost(total(cost.amount for cost in costs), total(cost.saved for cost in costs))

    def _prices(self) -> Iterator[Price]:
        return (line.price for line in self.lines if line.price is not None)


def invoice(organisation: Organisation, first_day: date, last_day: date, *, by: By = "namespace") -> Invoice:
    """Return the invoice, all of it as of one moment."""
    with consistent_read():
        as_of = selectors.database_now()
        days_check(first_day, last_day, today=as_of.date())
        counted = _counted(organisation.pk, first_day, last_day, by)
        book = Book(prices.prices_now())
    if len(counted) > MOST_LINES:
        words = f"makes {len(counted)} lines, and {MOST_LINES} are the most: ask for fewer days, or by model"
        raise InvalidFields([FieldProblem("to", words)])
    ordered = sorted(counted.items(), key=lambda entry: (entry[0][0], entry[0][1] or "", entry[0][2]))
    lines = (_line(key, *counts, book, today=as_of.date()) for key, counts in ordered)
    return Invoice(organisation.slug, first_day, last_day, as_of, tuple(lines))


def days_check(first_day: date, last_day: date, *, today: date) -> None:
    if last_day < first_day:
        raise InvalidFields([FieldProblem("to", f"{last_day} is before from, which is {first_day}")])
    if (last_day - first_day).days >= MOST_DAYS:
        raise InvalidFields([FieldProblem("to", f"{last_day} makes more than {MOST_DAYS} days from {first_day}")])
    if (today - first_day).days >= KEPT_DAYS:
        words = f"{first_day} is not one of the last {KEPT_DAYS} days: what was counted then is not kept"
        raise InvalidFields([FieldProblem("from", words)])


def _counted(organisation: int, first_day: date, last_day: date, by: By) -> dict[_Key, tuple[int, Tokens]]:
    """Return requests and tokens. A deleted namespace shares its line with a new one of the same name."""
    groups = ("day", "model") if by == "model" else ("day", "model", "namespace")
    rows = list(counts_by(Scope(organisation), _spans(first_day, last_day), *groups, kinds=(CUSTOMER_KIND,)))
    names = selectors.names_of("namespace", {key[2] for key, _ in rows}) if by == "namespace" else {}
    totals: dict[_Key, tuple[int, Tokens]] = {}
    for (day, model, *namespace), counts in rows:
        name = _name(names.get(namespace[0])) if namespace else None
        tokens = Tokens(counts["prompt_tokens"], counts["cached_tokens"], counts["generated_tokens"])
        previous_requests, previous_tokens = totals.get((day, name, model), (0, Tokens(0, 0, 0)))
        totals[day, name, model] = (previous_requests + counts["requests"], _added((previous_tokens, tokens)))
    return {key: counts for key, counts in totals.items() if counts != (0, Tokens(0, 0, 0))}


def _name(namespace: selectors.Named | None) -> str:
    return DELETED if namespace is None else namespace.slug


def _spans(first_day: date, last_day: date) -> list[Span]:
    first, last = (datetime.combine(day, time(), UTC) for day in (first_day, last_day))
    return selectors.spans_of(Window("", first, last + timedelta(days=1), is_open=False), is_fleet=False)


def _line(key: _Key, requests: int, tokens: Tokens, book: Book, *, today: date) -> Line:
    day, namespace, model = key
    price = book.price_of(model, day)
    line_cost = None if price is None else cost(tokens, price)
    return Line(day, namespace, model, requests, tokens, price, line_cost, is_open=day >= today)


def _added(token_counts: Iterable[Tokens]) -> Tokens:
    prompt = cached = generated = 0
    for tokens in token_counts:
        prompt, cached, generated = prompt + tokens.prompt, cached + tokens.cached, generated + tokens.generated
    return Tokens(prompt, cached, generated)
