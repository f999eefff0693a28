"""Register the app under its short name, its checks and hooks for publishing, and its metrics."""

from django.apps import AppConfig


class RolloutsConfig(AppConfig):
    name = "controlplane.rollouts"
    label = "rollouts"

    def ready(self) -> None:
        from controlplane.common.metrics import before_reading
        from controlplane.rollouts.checks import formats_check
        from controlplane.rollouts.enforcement import enforcement_check
        from controlplane.rollouts.gauges import gauges_refresh
        from controlplane.rollouts.services import levels_published
        from controlplane.rollouts.waking import after_commit
        from tenants import hooks

        if gauges_refresh not in before_reading:
            before_reading.append(gauges_refresh)
            hooks.after_commit.append(after_commit)
            hooks.publish_checks += [formats_check, enforcement_check]
            hooks.levels_published.append(levels_published)
