"""Registers the app under its short name, and its agents with the operations that await them."""

from django.apps import AppConfig


class FleetConfig(AppConfig):
    name = "controlplane.fleet"
    label = "fleet"

    def ready(self) -> None:
        from controlplane.fleet.operations import steps_begin
        from tenants import hooks

        if steps_begin not in hooks.operation_begins:
            hooks.operation_begins.append(steps_begin)
