"""The demo's example prices, marked as examples and seeded once. A price list that exists is never changed."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from controlplane.analytics.money import Price
from controlplane.analytics.prices import prices_put, revision_now
from controlplane.fleet.shipped import DEMO_MODEL_NAME
from tenants.actor import Actor

CURRENCY: Final = "EUR"
# Per million tokens. Cached tokens cost a tenth of others, as with many vendors.
INPUT, CACHED_INPUT, OUTPUT = Decimal("0.50"), Decimal("0.05"), Decimal("1.50")


def demo_prices_seed(*, actor: Actor, now: datetime) -> None:
    if revision_now():
        return
    example = Price(
        model=DEMO_MODEL_NAME,
        valid_from=now.astimezone(UTC).date(),
        currency=CURRENCY,
        input=INPUT,
        cached_input=CACHED_INPUT,
        output=OUTPUT,
        is_example=True,
    )
    prices_put(actor=actor, prices=[example], expected=frozenset({0}), now=now)
