"""An installation that is a demonstration: with its app, and with its pages. Outside it, tests are of none."""

from dataclasses import replace

from django.conf import settings
from django.test import override_settings
from django.urls import include, path

from controlplane import urls
from controlplane.urls import handler400, handler403, handler404, handler500

__all__ = ["demonstration", "handler400", "handler403", "handler404", "handler500", "urlpatterns"]
urlpatterns = [path("", include("controlplane.demo.urls")), *urls.urlpatterns]


def demonstration() -> override_settings:
    return override_settings(
        ENVIRONMENT=replace(settings.ENVIRONMENT, is_demo=True),
        INSTALLED_APPS=[*settings.INSTALLED_APPS, "controlplane.demo"],
        ROOT_URLCONF="tests.web.demonstration",
    )
