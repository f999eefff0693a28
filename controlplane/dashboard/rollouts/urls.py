"""The URLs of the rollouts."""

from django.urls import URLPattern, path

from controlplane.dashboard.rollouts import rollouts

urlpatterns: list[URLPattern] = [
    path("rollouts", rollouts.rollouts, name="rollouts"),
    path("rollouts/<uuid:rollout>", rollouts.rollout, name="rollout"),
    path("rollouts/<uuid:rollout>/now", rollouts.rollout_part, name="rollout-now"),
    path("rollouts/<uuid:rollout>/<slug:deed>", rollouts.rollout_deed, name="rollout-deed"),
]
