"""The app config that replaces Django's own admin site."""

from django.contrib.admin.apps import AdminConfig


class SupportConfig(AdminConfig):
    default_site = "controlplane.dashboard.support.site.SupportSite"
