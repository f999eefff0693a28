"""Bodies for invoices: exact amounts as text, each with its rounded amount."""

from datetime import date, datetime

from pydantic import ConfigDict, Field

from controlplane.api.schemas.base import Given, example

LINE = {
    "day": "2026-11-21",
    "namespace": "support-bot",
    "model": "luminet-demo",
    "requests": 3,
    "prompt_tokens": 5_000,
    "cached_tokens": 3_000,
    "generated_tokens": 500,
    "input": "0.15",
    "cached_input": "0.015",
    "output": "0.6",
    "is_example": False,
    "amount": "0.000645",
    "amount_rounded": "0.00065",
    "saved": "0.000405",
    "saved_rounded": "0.00041",
    "is_open": False,
}
_COUNTS = ("requests", "prompt_tokens", "cached_tokens", "generated_tokens")
_AMOUNTS = ("amount", "amount_rounded", "saved", "saved_rounded")
TOTALS = {name: LINE[name] for name in (*_COUNTS, *_AMOUNTS)}


class InvoiceTotals(Given):
    """Of all lines. Amounts are of those lines that have a price; null where there are lines and none has."""

    model_config = ConfigDict(json_schema_extra=example(**TOTALS))

    requests: int
    prompt_tokens: int = Field(description="Cached ones included.")
    cached_tokens: int
    generated_tokens: int
    amount: str | None = Field(description="Exactly: the sum of the lines' amounts.")
    amount_rounded: str | None = Field(description="The exact sum, rounded once; less than a cent to two digits.")
    saved: str | None = Field(description="What the cached tokens would have cost on top of what they did, exactly.")
    saved_rounded: str | None


class InvoiceLine(Given):
    """What one day's requests of a namespace to a model came to. Prices are of a million tokens on that day."""

    model_config = ConfigDict(json_schema_extra=example(**LINE))

    day: date = Field(description="In UTC.")
    namespace: str | None = Field(description="`(deleted)` once it is gone altogether; null of an invoice by model.")
    model: str
    requests: int
    prompt_tokens: int = Field(description="Cached ones included.")
    cached_tokens: int
    generated_tokens: int
    input: str | None = Field(description="Null, as are the amounts, where the model had no price.")
    cached_input: str | None
    output: str | None
    is_example: bool = Field(description="Nobody asks this price.")
    amount: str | None = Field(description="(prompt − cached) × input + cached × cached_input + generated × output.")
    amount_rounded: str | None
    saved: str | None = Field(description="cached × (input − cached_input).")
    saved_rounded: str | None
    is_open: bool = Field(description="The day is not over.")


class InvoiceShown(Given):
    """The lines' tokens are the counters', and add up to them exactly."""

    model_config = ConfigDict(
        json_schema_extra=example(
            **{"organisation": "acme", "from": "2026-11-01", "to": "2026-11-21"},
            as_of="2026-11-22T12:00:00Z",
            currency="EUR",
            is_example=False,
            is_open=False,
            may_change_from="2026-11-20",
            without_price=[],
            totals=TOTALS,
            lines=[LINE],
        )
    )

    organisation: str
    first_day: date = Field(serialization_alias="from", description="The first day, in UTC.")
    last_day: date = Field(serialization_alias="to", description="The last day; it is part of it.")
    as_of: datetime
    currency: str | None = Field(description="Null where nothing has a price.")
    is_example: bool = Field(description="Whether any line's price is an example: then nobody owes this.")
    is_open: bool = Field(description="Whether its last day is not over.")
    may_change_from: date | None = Field(
        description="The first of its days that agents may still report something of, up to 48 h late; null: none."
    )
    without_price: list[str] = Field(description="Models that had no price on some day: those lines have no amount.")
    totals: InvoiceTotals
    lines: list[InvoiceLine]
