"""The URL routes of the API and its description."""

from django.urls import path

from controlplane.api import views
from controlplane.api.api import api

urlpatterns = [
    path("openapi.json", views.openapi, name="openapi"),
    path("docs", views.docs, name="api-docs"),
    path("docs/objects", views.docs_objects, name="api-docs-objects"),
    path("docs/<slug:slug>", views.docs_section, name="api-docs-section"),
    path("", api.urls),
]
