"""Operations for operators to read and switch the demo's traffic."""

from django.utils import timezone

from controlplane.analytics.demo_traffic import Switch, demo_traffic_now, demo_traffic_put, demo_traffic_state
from controlplane.api.routing import Answer, Call, Group
from controlplane.api.schemas.demo_traffic import DemoTrafficPut, DemoTrafficShown
from tenants import access

group = Group("Fleet")


@group.get("/demo-traffic", access.OPERATE_READ, DemoTrafficShown)
def demo_traffic_get(call: Call) -> Answer:
    """Look at the demo's traffic. Operators only."""
    return _answer(demo_traffic_now())


@group.put("/demo-traffic", access.OPERATE, DemoTrafficShown)
def demo_traffic_switch(call: Call, body: DemoTrafficPut) -> Answer:
    """Switch the demo's traffic on or off.

    It heeds that within seconds, and over restarts. What it has sent stays counted. Operators only.
    """
    return _answer(demo_traffic_put(actor=call.actor, is_on=body.is_on, now=timezone.now()))


def _answer(switch: Switch) -> Answer:
    state = demo_traffic_state()
    return Answer(DemoTrafficShown.of(switch, is_here=state is not None, state=state))
