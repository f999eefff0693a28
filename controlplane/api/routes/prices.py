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
    wanted = [Price(currency=body.currency, **one.model_dump()) for one in body.prices]
    found = prices.prices_put(actor=call.actor, prices=wanted, expected=call.expected(), now=timezone.now())
    return _answer(found, call.actor)


def _answer(found: Prices, actor: Actor) -> Answer:
    listed = [_shown(one, actor) for one in found.listed]
    return Answer(PricesShown.of(found, prices=listed), revision=found.revision)


def _shown(listed: Listed, actor: Actor) -> PriceShown:
    created_by = listed.created_by if actor.is_operator else None
    return PriceShown.of(listed.price, created_by=created_by, created_at=listed.created_at)
