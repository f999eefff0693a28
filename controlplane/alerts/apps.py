"""Registers the app under its short name, its encrypted secrets, and its gauges for Prometheus."""

from django.apps import AppConfig


class AlertsConfig(AppConfig):
    name = "controlplane.alerts"
    label = "alerts"

    def ready(self) -> None:
        from controlplane.alerts.gauges import gauges_refresh
        from controlplane.alerts.services import webhook_secrets
        from controlplane.common.metrics import before_reading
        from tenants import hooks

        if gauges_refresh not in before_reading:
            before_reading.append(gauges_refresh)
            hooks.sealed.append(webhook_secrets)
