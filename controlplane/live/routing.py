"""Which socket answers at which path."""

from typing import Any, cast

from django.urls import path, re_path

from controlplane.live.consumers import FleetConsumer, NoSuchSocket

# Channels routes applications with the functions Django's types reserve for views.
socket_routes: list[Any] = [
    path("ws/live/fleet", cast(Any, FleetConsumer.as_asgi())),
    re_path(r"", cast(Any, NoSuchSocket.as_asgi())),
]
