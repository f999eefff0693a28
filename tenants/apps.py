"""The Django app of organisations and their policies."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    name = "tenants"
