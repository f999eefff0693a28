"""Operations for an organisation's invoices, as JSON and as CSV."""

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Final, Literal

from django.http import HttpResponse
from django.utils import timezone
from ninja import Query
from pydantic import BeforeValidator

from controlplane.analytics import invoices
from controlplane.analytics.invoices import By, Invoice, Line
from controlplane.analytics.money import Cost, Tokens, displayed, text
from controlplane.api.routing import Answer, Call, Group
from controlplane.api.schemas.invoices import InvoiceShown
from controlplane.api.schemas.prices import day_only
from controlplane.common.csv_text import csv_response
from tenants import access

group = Group("Prices and invoices")
From = Annotated[
    date | None,
    BeforeValidator(day_only),
    Query(None, alias="from", description="The first day, in UTC; else that of this month."),
]
To = Annotated[
    date | None, BeforeValidator(day_only), Query(None, alias="to", description="The last day, in UTC; else today.")
]
LinesBy = Annotated[
    By, Query("namespace", description="A line for each namespace and model, or for each model in all of them.")
]
Format = Annotated[
    Literal["json", "csv"], Query("json", description="`csv`: the lines alone, as text/csv, with exact amounts.")
]
COLUMNS: Final = (
    "day", "namespace", "model", "requests", "prompt_tokens", "cached_tokens", "generated_tokens", "currency", "input",
    "cached_input", "output", "amount", "saved", "is_example", "is_open",
)  # fmt: skip


@group.get("/orgs/{org}/invoice", access.STATS_READ_WHOLE, InvoiceShown, csv_heads=COLUMNS)
def invoice_get(
    call: Call, first_day: From = None, last_day: To = None, by: LinesBy = "namespace", format: Format = "json"
) -> Answer | HttpResponse:
    """Read what an organisation's requests came to.

    Whole days of UTC, 400 at most, of the last 800. A request is counted on the day in which its headers left; probes
    and pins are not counted. `is_open`: of today, so far.
    """
    today = timezone.now().date()
    last = last_day or today
    invoice = invoices.invoice(call.organisation, first_day or last.replace(day=1), last, by=by)
    if format == "csv":
        name = f"invoice-{invoice.organisation}-{invoice.first_day}-{invoice.last_day}"
        return csv_response(COLUMNS, map(_row, invoice.lines), name=name)
    return Answer(_shown(invoice))


def _shown(invoice: Invoice) -> InvoiceShown:
    totals = {"requests": invoice.requests, **_counts(invoice.tokens), **_amounts(invoice.cost, invoice.currency)}
    return InvoiceShown.of(invoice, totals=totals, lines=[*map(_line, invoice.lines)])


def _line(line: Line) -> dict[str, Any]:
    price = line.price
    return {
        "day": line.day,
        "namespace": line.namespace,
        "model": line.model,
        "requests": line.requests,
        **_counts(line.tokens),
        "input": None if price is None else text(price.input),
        "cached_input": None if price is None else text(price.cached_input),
        "output": None if price is None else text(price.output),
        "is_example": price is not None and price.is_example,
        **_amounts(line.cost, None if price is None else price.currency),
        "is_open": line.is_open,
    }


def _row(line: Line) -> list[Any]:
    fields = {**_line(line), "currency": line.price and line.price.currency}
    return [fields[name] for name in COLUMNS]


def _counts(tokens: Tokens) -> Mapping[str, int]:
    return {
        "prompt_tokens": tokens.prompt,
        "cached_tokens": tokens.cached,
        "generated_tokens": tokens.generated,
    }


def _amounts(cost: Cost | None, currency: str | None) -> Mapping[str, str | None]:
    """Return the amounts as text, or None without a cost. Zero may lack a currency; it looks the same in all."""
    if cost is None:
        return dict.fromkeys(("amount", "amount_rounded", "saved", "saved_rounded"))
    return {
        "amount": text(cost.amount),
        "amount_rounded": displayed(cost.amount, currency or ""),
        "saved": text(cost.saved),
        "saved_rounded": displayed(cost.saved, currency or ""),
    }
