"""Where the API and its description answer."""

from django.urls import path

from controlplane.api.api import api

urlpatterns = [path("", api.urls)]
