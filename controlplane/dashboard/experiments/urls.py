"""The URL of the page "Get hits"."""

from django.urls import URLPattern, path

from controlplane.dashboard.experiments.start import start

urlpatterns: list[URLPattern] = [
    path("orgs/<slug:org>/start", start, name="start"),
]
