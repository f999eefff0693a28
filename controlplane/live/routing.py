"""The routes of live sockets."""

from typing import Any, cast

from django.urls import path, re_path

from controlplane.live.consumers import LiveSocket, no_such_socket
from controlplane.live.desk import Desks, Message
from controlplane.live.listeners import fleet_listener, organisation_listener


def socket_routes(message: Message) -> list[Any]:
    """Return the routes. `message` returns a group's statistics, and may query the database."""
    hubs = Desks(message)
    # Channels routes applications with functions that Django's types reserve for views.
    return [
        path("ws/live/fleet", cast(Any, LiveSocket(hubs, fleet_listener))),
        path("ws/live/orgs/<slug:org>", cast(Any, LiveSocket(hubs, organisation_listener))),
        re_path(r"", cast(Any, no_such_socket)),
    ]
