"""Which socket answers at which path."""

from typing import Any, cast

from django.urls import path

from controlplane.live.consumers import FleetConsumer

# Channels routes applications with the function Django's types reserve for views.
socket_routes: list[Any] = [path("ws/live/fleet", cast(Any, FleetConsumer.as_asgi()))]
