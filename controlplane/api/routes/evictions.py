"""Who evicts whom: of a namespace, and of the fleet."""

from collections.abc import Sequence
from typing import Any

from controlplane.analytics.evictions import Pair, Taken, pairs_by_taker, pairs_by_victim, pairs_of_fleet, taken
from controlplane.analytics.selectors import database_now
from controlplane.analytics.windows import Window, window_of
from controlplane.api.routes.stats import OfWindow
from controlplane.api.routing import Answer, Call, Group
from controlplane.api.schemas.evictions import FleetEvictions, NamespaceEvictions
from tenants import access

group = Group("Numbers")


@group.get("/orgs/{org}/namespaces/{ns}/evictions", access.STATS_READ, NamespaceEvictions)
def evictions_get(call: Call, window: OfWindow = "24h") -> Answer:
    """Say for whom a namespace's blocks gave way.

    As engines' own ledgers have it, in steps of five minutes: its own traffic, or the pressure of others'. To
    operators also who that was.
    """
    read, pk = window_of(window, database_now()), call.namespace.pk
    lost, is_operator = taken(read, [pk]).get(pk, Taken()), call.actor.is_operator
    told = {
        **_times(read),
        "by_own_traffic": {"blocks": lost.own_blocks, "bytes": lost.own_bytes},
        "by_fleet_pressure": {"blocks": lost.others_blocks, "bytes": lost.others_bytes},
        "evicted_by": _pairs(pairs_by_victim(read, pk)) if is_operator else None,
        "evicts": _pairs(pairs_by_taker(read, pk)) if is_operator else None,
    }
    return Answer(NamespaceEvictions.model_validate(told))


@group.get("/fleet/evictions", access.OPERATE_STATS_READ, FleetEvictions)
def fleet_evictions_get(call: Call, window: OfWindow = "24h") -> Answer:
    """List who evicted whom, most first.

    Only where requests of one namespace took blocks of another. Operators only.
    """
    read = window_of(window, database_now())
    return Answer(FleetEvictions.model_validate({**_times(read), "pairs": _pairs(pairs_of_fleet(read))}))


def _times(window: Window) -> dict[str, Any]:
    return {"window_seconds": window.seconds, "from": window.start, "to": window.end}


def _pairs(found: Sequence[Pair]) -> list[dict[str, Any]]:
    names = ("victim", "by", "cause", "blocks", "bytes", "last_at")
    return [{name: getattr(one, name) for name in names} for one in found]
