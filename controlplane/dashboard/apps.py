"""The Django app of the dashboard, with the short label `dashboard`."""

from django.apps import AppConfig


class DashboardConfig(AppConfig):
    name = "controlplane.dashboard"
    label = "dashboard"
