"""Register the app under its short name."""

from django.apps import AppConfig


class LiveConfig(AppConfig):
    name = "controlplane.live"
    label = "live"
