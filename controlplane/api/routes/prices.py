"""What tokens cost: one list for the fleet, read by everybody who pays by it, replaced by operators."""

from django.utils import timezone

from controlplane.analytics import prices
from controlplane.analytics.money import Price, text
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
    wanted = [
        Price(
            model=one.model,
            valid_from=one.valid_from,
            currency=body.currency,
            input=one.input,
            cached_input=one.cached_input,
            output=one.output,
            is_example=one.is_example,
        )
        for one in body.prices
    ]
    found = prices.prices_put(actor=call.actor, prices=wanted, expected=call.expected(), now=timezone.now())
    return _answer(found, call.actor)


def _answer(found: Prices, actor: Actor) -> Answer:
    shown = PricesShown(
        revision=found.revision,
        currency=found.currency,
        is_example=found.is_example,
        prices=[_shown(one, actor) for one in found.listed],
    )
    return Answer(shown, revision=found.revision)


def _shown(listed: Listed, actor: Actor) -> PriceShown:
    price = listed.price
    return PriceShown(
        model=price.model,
        valid_from=price.valid_from,
        input=text(price.input),
        cached_input=text(price.cached_input),
        output=text(price.output),
        is_example=price.is_example,
        created_by=listed.created_by if actor.is_operator else None,
        created_at=listed.created_at,
    )
