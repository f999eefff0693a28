"""Register the fleet app, its hook that adds a step for each agent to a new operation, and its metrics."""

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
