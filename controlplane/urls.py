"""The URL routes of pages and REST API. probes.py answers `/healthz`, `/readyz` and `/metrics` before these."""

from django.apps import apps
from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("", include("controlplane.dashboard.urls")),
    *([path("", include("controlplane.demo.urls"))] if apps.is_installed("controlplane.demo") else []),
    path("admin/", admin.site.urls),
    path("api/v1/", include("controlplane.api.urls")),
]
handler400 = "controlplane.dashboard.frame.problems.bad_request"
handler403 = "controlplane.dashboard.frame.problems.forbidden"
handler404 = "controlplane.dashboard.frame.problems.not_found"
handler500 = "controlplane.dashboard.frame.problems.server_error"
