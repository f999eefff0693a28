"""The URLs of the analytics."""

from django.urls import URLPattern, path

from controlplane.dashboard.analytics import analytics

urlpatterns: list[URLPattern] = [
    path("orgs/<slug:org>/analytics", analytics.analytics, name="analytics"),
    path("orgs/<slug:org>/analytics/now", analytics.analytics_now, name="analytics-now"),
    path("orgs/<slug:org>/analytics.csv", analytics.stats_csv, name="stats-csv"),
    path("orgs/<slug:org>/analytics-parts.csv", analytics.stats_parts_csv, name="stats-parts-csv"),
]
