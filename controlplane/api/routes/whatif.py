"""The operation that forecasts the effect of another TTL or limit on a namespace."""

from typing import Annotated

from ninja import Query

from controlplane.analytics.whatif import what_if
from controlplane.api.routing import Answer, Call, Group
from controlplane.api.schemas.whatif import WhatIfShown
from engine_agent.contracts.policy_fields import WEEK_SECONDS, TtlMode
from tenants import access

group = Group("Numbers")

Ttl = Annotated[
    int | None, Query(None, ge=1, le=WEEK_SECONDS, description="Seconds a block would stay matchable; else as it is.")
]
Mode = Annotated[TtlMode | None, Query(None, description="Whether a hit would renew it; else as it is.")]
Share = Annotated[
    float | None,
    Query(None, ge=0, le=1, allow_inf_nan=False, description="Share of each pool it might hold; else as it is."),
]


@group.get("/orgs/{org}/namespaces/{ns}/what-if", access.STATS_READ, WhatIfShown)
def what_if_get(call: Call, ttl_seconds: Ttl = None, ttl_mode: Mode = None, limit_share: Share = None) -> Answer:
    """Foretell another TTL or limit.

    Hit ratio, memory and money a day under the policy in force and under another one, from how long this namespace's
    own blocks wait for their next use; with how far that may be off. Publishes nothing.
    """
    forecast = what_if(call.namespace, ttl_seconds=ttl_seconds, ttl_mode=ttl_mode, limit_share=limit_share)
    return Answer(WhatIfShown.model_validate(forecast))
