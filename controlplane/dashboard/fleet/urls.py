"""The URLs of the fleet."""

from django.urls import URLPattern, path

from controlplane.dashboard.fleet import agents, fleet, joining

urlpatterns: list[URLPattern] = [
    path("fleet", fleet.fleet, name="fleet"),
    path("fleet/now", fleet.fleet_now, name="fleet-now"),
    path("fleet/join-tokens", joining.join_tokens, name="join-tokens"),
    path("fleet/agents/<slug:agent_id>", agents.agent, name="agent"),
    path("fleet/agents/<slug:agent_id>/now", agents.agent_part, name="agent-now"),
    path("fleet/agents/<slug:agent_id>/<slug:deed>", agents.agent_deed, name="agent-deed"),
]
