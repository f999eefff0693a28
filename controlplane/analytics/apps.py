"""Registers the app under its short name, and its metric of reconciliation for Prometheus."""

from django.apps import AppConfig


class AnalyticsConfig(AppConfig):
    name = "controlplane.analytics"
    label = "analytics"

    def ready(self) -> None:
        from controlplane.analytics.reconciliations import differences_measure
        from controlplane.common.metrics import before_reading

        if differences_measure not in before_reading:
            before_reading.append(differences_measure)
