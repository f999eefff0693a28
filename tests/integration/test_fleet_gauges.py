"""What Prometheus is told of the fleet and of rollouts is what the Fleet page says, also where that is nobody."""

from datetime import timedelta

import pytest
from django.utils import timezone
from prometheus_client import REGISTRY

from controlplane.fleet import gauges as fleet
from controlplane.fleet.health import AGENT_STATES
from controlplane.rollouts import gauges as rollouts
from tenants.levels import Place
from tests.fleet.rollouts import make_canary
from tests.fleet.seen_agents import make_agent
from tests.web.api import make_organisation

pytestmark = pytest.mark.django_db


def agents(kind: str) -> dict[str, float]:
    found = {one: REGISTRY.get_sample_value("luminet_agents", {"kind": kind, "state": one}) for one in AGENT_STATES}
    return {state: count for state, count in found.items() if count}


def apart(kind: str) -> float | None:
    return REGISTRY.get_sample_value("luminet_agents_out_of_sync", {"kind": kind})


def under_way() -> dict[str, float | None]:
    return {one: REGISTRY.get_sample_value("luminet_rollouts", {"state": one}) for one in ("running", "paused")}


def test_members_are_counted_by_kind_and_state_and_who_left_is_none() -> None:
    now = timezone.now()
    make_agent("agent-1")
    make_agent("agent-2", is_draining=True, desired_hash="b" * 64)
    make_agent("agent-3", last_seen_at=now - timedelta(hours=1))
    make_agent("agent-4", revoked_at=now)
    make_agent("gateway", kind="gateway", applied_hash="b" * 64)
    fleet.gauges_refresh(now=now)
    assert agents("engine") == {"ready": 1, "draining": 1, "stale": 1}
    assert agents("gateway") == {"ready": 1}
    assert (apart("engine"), apart("gateway")) == (1, 1)


def test_what_is_gone_is_nought_and_not_what_it_was() -> None:
    agent = make_agent("agent-1", desired_hash="b" * 64)
    fleet.gauges_refresh()
    assert (agents("engine"), apart("engine")) == ({"ready": 1}, 1)
    agent.delete()
    fleet.gauges_refresh()
    assert (agents("engine"), apart("engine")) == ({}, 0)


def test_rollouts_are_counted_while_they_are_under_way() -> None:
    rollouts.gauges_refresh()
    assert under_way() == {"running": 0, "paused": 0}
    make_canary(Place(make_organisation("acme")), "agent-1", "agent-2")
    rollouts.gauges_refresh()
    assert under_way() == {"running": 1, "paused": 0}
