"""Operations for prices: one list for the fleet, which its customers read and operators replace."""

from django.utils import timezone

from controlplane.analytics import prices
from controlplane.analytics.money import Price
from controlplane.analytics.prices import Listed, Prices
from controlplane.api.routing import Answer, Call, Group
from controlplane.api.schemas.prices import PriceShown, PricesPut, PricesShown
from tenants import access
from tenants.actor import Actor

group = Group("Prices and invoices")


@group.get("/prices", access.STATS_READ, PricesShown, gives_etag=True)
def prices_get(call: Call) -> Answer:
    """Read the prices.

    All of them: those in force, those to come, and those that were, by which invoices can be checked. The same for
    everybody, except that only operators see who set them. Revision 0 is before the first.
    """
    return _answer(prices.price_list(), call.actor)


@group.put("/prices", access.OPERATE, PricesShown, wants_if_match=True, gives_etag=True)
def prices_put(call: Call, body: PricesPut) -> Answer:
    """Replace the prices.

    Send all that shall be there. What a day before today (UTC) cost cannot change any more: every price that would
    change it is named. Days that had no price may be given one; examples may go. Operators only; wants `If-Match`.
    """
    new_prices = [Price(currency=body.currency, **price.model_dump()) for price in body.prices]
    updated = prices.prices_put(actor=call.actor, prices=new_prices, expected=call.expected(), now=timezone.now())
    return _answer(updated, call.actor)


def _answer(price_list: Prices, actor: Actor) -> Answer:
    listed = [_shown(listed_price, actor) for listed_price in price_list.listed]
    return Answer(PricesShown.of(price_list, prices=listed), revision=price_list.revision)


def _shown(listed: Listed, actor: Actor) -> PriceShown:
    created_by = listed.created_by if actor.is_operator else None
    return PriceShown.of(listed.price, created_by=created_by, created_at=listed.created_at)
