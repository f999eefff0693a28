"""Bodies for prices. Numbers are text in both directions, because a decimal JSON number could be rounded."""

import re
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, StringConstraints, WithJsonSchema

from controlplane.analytics.money import text
from controlplane.analytics.prices import MOST_PRICES
from controlplane.api.schemas.base import Given, Taken, example
from controlplane.api.schemas.tenants import WHEN
from tenants.policy import MODEL_PATTERN
from tenants.validation import PATTERNS

AMOUNT_PATTERN = r"^[0-9]{1,9}(\.[0-9]{1,9})?$"
_AMOUNT = re.compile(AMOUNT_PATTERN.removesuffix("$"), re.ASCII)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MODEL = re.compile(MODEL_PATTERN.removesuffix("$"), re.ASCII)
DAY, MODEL = "2026-11-22", "luminet-demo"


def _amount_read(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError('must be a number as text, such as "0.15"')
    if not _AMOUNT.fullmatch(str(value)):
        raise ValueError("must be from 0 to 999999999.999999999, with up to nine digits behind the point")
    return Decimal(value)


def day_only(value: Any) -> Any:
    """Refuse anything but text: pydantic would accept numbers and times as days."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    if not isinstance(value, str) or not _DAY.fullmatch(value):
        raise ValueError("must be a day as text, such as 2026-11-22")
    return value


def _model_check(value: str) -> str:
    if value and not _MODEL.fullmatch(value):
        raise ValueError(f'{PATTERNS[MODEL_PATTERN]}; or "" for every model that has no price of its own')
    return value


Amount = Annotated[
    Decimal,
    BeforeValidator(_amount_read),
    WithJsonSchema({"type": "string", "pattern": AMOUNT_PATTERN}),
]
AmountShown = Annotated[str, BeforeValidator(text)]
Day = Annotated[date, BeforeValidator(day_only), Field(strict=False)]
Currency = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Z]{3}$"),
    Field(description="Three letters, such as EUR: one for the whole fleet, and for good once days were invoiced."),
]
PRICE = {"model": MODEL, "valid_from": DAY, "input": "0.15", "cached_input": "0.015", "output": "0.6"}
SHOWN = {**PRICE, "is_example": False, "created_by": "operator@luminet.example (ci)", "created_at": WHEN}


class PriceTaken(Taken):
    """What a million tokens of a model cost from a day on, until the next price of it."""

    model_config = ConfigDict(json_schema_extra=example(**PRICE, is_example=False))

    model: Annotated[str, AfterValidator(_model_check)] = Field(
        default="", max_length=200, description='The model\'s name; `""`: every model that has no price of its own.'
    )
    valid_from: Day = Field(description="The first day it holds, in UTC.")
    input: Amount = Field(description='Of a million prompt tokens that were computed, as text: `"0.15"`.')
    cached_input: Amount = Field(description="Of a million prompt tokens out of the cache: no more than `input`.")
    output: Amount = Field(description="Of a million generated tokens.")
    is_example: bool = Field(
        default=False, description="Nobody asks this price: answers that use it say so, and it may go at any time."
    )


class PricesPut(Taken):
    """The whole list. What is left out of it goes, unless days before today were invoiced by it."""

    model_config = ConfigDict(json_schema_extra=example(currency="EUR", prices=[PRICE]))

    currency: Currency
    prices: list[PriceTaken] = Field(
        max_length=MOST_PRICES, description="Every price: those to come, and those that were."
    )


class PriceShown(Given):
    model_config = ConfigDict(json_schema_extra=example(**SHOWN))

    model: str = Field(description="Empty: every model that has no price of its own.")
    valid_from: date
    input: AmountShown = Field(description="Of a million prompt tokens that were computed.")
    cached_input: AmountShown = Field(description="Of a million prompt tokens out of the cache.")
    output: AmountShown = Field(description="Of a million generated tokens.")
    is_example: bool = Field(description="Nobody asks this price.")
    created_by: str | None = Field(description="For operators; null for others.")
    created_at: datetime


class PricesShown(Given):
    """By model, then by day. In force on a day is the last of the model that has begun, else the last of `""`."""

    model_config = ConfigDict(json_schema_extra=example(revision=1, currency="EUR", is_example=False, prices=[SHOWN]))

    revision: int
    currency: str | None = Field(description="Of every price; null while there is none.")
    is_example: bool = Field(description="Whether any of them is an example.")
    prices: list[PriceShown]
