"""The URLs of alerts and alert rules."""

from django.urls import URLPattern, path

from controlplane.dashboard.alerts import alerts, rules

urlpatterns: list[URLPattern] = [
    path("alerts", alerts.alerts, name="alerts"),
    path("alerts/now", alerts.alerts_now, name="alerts-now"),
    path("alerts/rules", rules.alert_rules, name="alert-rules"),
    path("alerts/rules/<uuid:rule>", rules.alert_rule, name="alert-rule"),
    path("alerts/<uuid:alert>", alerts.alert, name="alert"),
]
