"""Registers the app under its short name, and what it has to say to publishing."""

from django.apps import AppConfig


class RolloutsConfig(AppConfig):
    name = "controlplane.rollouts"
    label = "rollouts"

    def ready(self) -> None:
        from controlplane.rollouts.checks import formats_check
        from controlplane.rollouts.services import levels_published
        from controlplane.rollouts.waking import after_commit
        from tenants import hooks

        hooks.after_commit.append(after_commit)
        hooks.publish_checks.append(formats_check)
        hooks.levels_published.append(levels_published)
