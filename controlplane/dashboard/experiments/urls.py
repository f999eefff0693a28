"""Where they are."""

from django.urls import URLPattern, path

from controlplane.dashboard.experiments.start import start
from controlplane.demo.experiments.five_minutes import experiment_now, five_minutes

urlpatterns: list[URLPattern] = [
    path("orgs/<slug:org>/start", start, name="start"),
    path("five-minutes", five_minutes, name="five-minutes"),
    path("five-minutes/now/<slug:kind>", experiment_now, name="experiment-now"),
]
