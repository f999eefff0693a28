"""Where they are."""

from django.urls import URLPattern, path

from controlplane.dashboard.numbers import analytics, overview

urlpatterns: list[URLPattern] = [
    path("overview/now", overview.overview_now, name="overview-now"),
    path("overview/watched", overview.overview_watched, name="overview-watched"),
    path("orgs/<slug:org>/analytics", analytics.analytics, name="analytics"),
    path("orgs/<slug:org>/analytics/now", analytics.analytics_now, name="analytics-now"),
    path("orgs/<slug:org>/analytics.csv", analytics.stats_csv, name="stats-csv"),
    path("orgs/<slug:org>/analytics-parts.csv", analytics.stats_parts_csv, name="stats-parts-csv"),
]
