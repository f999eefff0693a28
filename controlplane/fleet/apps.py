"""Registers the app under its short name, its agents with the operations that await them, and what is told of them."""

from django.apps import AppConfig


class FleetConfig(AppConfig):
    name = "controlplane.fleet"
    label = "fleet"

    def ready(self) -> None:
        from controlplane.common.metrics import before_reading
        from controlplane.fleet.gauges import gauges_refresh
        from controlplane.fleet.operations import steps_begin
        from tenants import hooks

        if steps_begin not in hooks.operation_begins:
            hooks.operation_begins.append(steps_begin)
            before_reading.append(gauges_refresh)
