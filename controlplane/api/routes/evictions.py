"""Operations for evictions between namespaces: of one namespace, and of the fleet."""

from controlplane.analytics.evictions import Taken, pairs_by_taker, pairs_by_victim, pairs_of_fleet, taken
from controlplane.analytics.selectors import database_now
from controlplane.analytics.windows import window_of
from controlplane.api.routes.stats import OfWindow
from controlplane.api.routing import Answer, Call, Group
from controlplane.api.schemas.evictions import Evicted, FleetEvictions, NamespaceEvictions
from tenants import access

group = Group("Numbers")


@group.get("/orgs/{org}/namespaces/{ns}/evictions", access.STATS_READ, NamespaceEvictions)
def evictions_get(call: Call, window: OfWindow = "24h") -> Answer:
    """Say for whom a namespace's blocks gave way.

    As engines' own ledgers have it, in steps of five minutes: its own traffic, or the pressure of others'. To
    operators also who that was.
    """
    read, pk = window_of(window, database_now()), call.namespace.pk
    evicted, is_operator = taken(read, [pk]).get(pk, Taken()), call.actor.is_operator
    response = NamespaceEvictions.of(
        read,
        by_own_traffic=Evicted(blocks=evicted.own_blocks, bytes=evicted.own_bytes),
        by_fleet_pressure=Evicted(blocks=evicted.others_blocks, bytes=evicted.others_bytes),
        evicted_by=pairs_by_victim(read, pk) if is_operator else None,
        evicts=pairs_by_taker(read, pk) if is_operator else None,
    )
    return Answer(response)


@group.get("/fleet/evictions", access.OPERATE_STATS_READ, FleetEvictions)
def fleet_evictions_get(call: Call, window: OfWindow = "24h") -> Answer:
    """List who evicted whom, most first.

    Only where requests of one namespace took blocks of another. Operators only.
    """
    read = window_of(window, database_now())
    return Answer(FleetEvictions.of(read, pairs=pairs_of_fleet(read)))
