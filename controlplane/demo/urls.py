"""The URL routes of the demo's pages."""

from django.urls import URLPattern, path

from controlplane.demo.experiments.five_minutes import experiment_now, five_minutes
from controlplane.demo.note import switch

urlpatterns: list[URLPattern] = [
    path("demo-traffic", switch, name="demo-traffic"),
    path("five-minutes", five_minutes, name="five-minutes"),
    path("five-minutes/now/<slug:kind>", experiment_now, name="experiment-now"),
]
