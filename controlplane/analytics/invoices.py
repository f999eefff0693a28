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
        return any(one.is_example for one in self._prices())

    @property
    def is_open(self) -> bool:
        return self.last_day >= self.as_of.date()

    @property
    def may_change_from(self) -> date | None:
        """The first of its days for which an agent may still report something, or None."""
        told_until = (self.as_of - LATEST).date()
        return None if told_until > self.last_day else max(told_until, self.first_day)

    @property
    def without_price(self) -> list[str]:
        """The models of the lines without an amount."""
        return sorted({one.model for one in self.lines if one.price is None})

    @property
    def requests(self) -> int:
        return sum(one.requests for one in self.lines)

    @property
    def tokens(self) -> Tokens:
        return _added(one.tokens for one in self.lines)

    @property
    def cost(self) -> Cost | None:
        """The cost of all lines with a price; None if there are lines but none has a price."""
        known = [one.cost for one in self.lines if one.cost is not None]
        if self.lines and not known:
            return None
        return Cost(total(one.amount for one in known), total(one.saved for one in known))

    def _prices(self) -> Iterator[Price]:
        return (one.price for one in self.lines if one.price is not None)


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
    ordered = sorted(counted.items(), key=lambda one: (one[0][0], one[0][1] or "", one[0][2]))
    lines = (_line(key, *found, book, today=as_of.date()) for key, found in ordered)
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
    found: dict[_Key, tuple[int, Tokens]] = {}
    for (day, model, *namespace), counts in rows:
        name = _name(names.get(namespace[0])) if namespace else None
        tokens = Tokens(counts["prompt_tokens"], counts["cached_tokens"], counts["generated_tokens"])
        requests, others = found.get((day, name, model), (0, Tokens(0, 0, 0)))
        found[day, name, model] = (requests + counts["requests"], _added((others, tokens)))
    return {key: one for key, one in found.items() if one != (0, Tokens(0, 0, 0))}


def _name(namespace: selectors.Named | None) -> str:
    return DELETED if namespace is None else namespace.slug


def _spans(first_day: date, last_day: date) -> list[Span]:
    first, last = (datetime.combine(day, time(), UTC) for day in (first_day, last_day))
    return selectors.spans_of(Window("", first, last + timedelta(days=1), is_open=False), is_fleet=False)


def _line(key: _Key, requests: int, tokens: Tokens, book: Book, *, today: date) -> Line:
    day, namespace, model = key
    price = book.price_of(model, day)
    found = None if price is None else cost(tokens, price)
    return Line(day, namespace, model, requests, tokens, price, found, is_open=day >= today)


def _added(several: Iterable[Tokens]) -> Tokens:
    prompt = cached = generated = 0
    for one in several:
        prompt, cached, generated = prompt + one.prompt, cached + one.cached, generated + one.generated
    return Tokens(prompt, cached, generated)
