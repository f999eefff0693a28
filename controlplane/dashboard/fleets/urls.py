"""Where they are."""

from django.urls import path

from controlplane.dashboard.fleets import agents, fleet, joining, rollouts

urlpatterns = [
    path("fleet", fleet.fleet, name="fleet"),
    path("fleet/now", fleet.fleet_now, name="fleet-now"),
    path("fleet/join-tokens", joining.join_tokens, name="join-tokens"),
    path("fleet/agents/<slug:agent_id>", agents.agent, name="agent"),
    path("fleet/agents/<slug:agent_id>/now", agents.agent_part, name="agent-now"),
    path("fleet/agents/<slug:agent_id>/<slug:deed>", agents.agent_deed, name="agent-deed"),
    path("rollouts", rollouts.rollouts, name="rollouts"),
    path("rollouts/<uuid:rollout>", rollouts.rollout, name="rollout"),
    path("rollouts/<uuid:rollout>/now", rollouts.rollout_part, name="rollout-now"),
    path("rollouts/<uuid:rollout>/<slug:deed>", rollouts.rollout_deed, name="rollout-deed"),
]
