"""The URLs of the overview's parts."""

from django.urls import URLPattern, path

from controlplane.dashboard.overview import overview

urlpatterns: list[URLPattern] = [
    path("overview/now", overview.overview_now, name="overview-now"),
    path("overview/watched", overview.overview_watched, name="overview-watched"),
]
