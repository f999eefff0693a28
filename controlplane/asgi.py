"""The ASGI application: request ids around everything, then limits and probes before Django, and web sockets."""

import os
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings.django")

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings

from controlplane.web.handler import django_application

django_http = django_application()

from controlplane.analytics.ingest import usage_store
from controlplane.analytics.stats import live_message
from controlplane.api.body_limit import BodyLimit
from controlplane.common.request_id import REQUEST_ID_HEADER, request_id_accept, request_id_bound
from controlplane.fleet.door import AgentDoor
from controlplane.live.origins import OriginCheck
from controlplane.live.routing import socket_routes
from controlplane.rollouts.serving import snapshot_for
from controlplane.rollouts.watching import watched_scopes
from controlplane.web.probes import Application, Probes, Receive, Scope, Send


class RequestId:
    """Binds the caller's request id, or a new one, and returns it with the response."""

    def __init__(self, inner: Application) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        offered = dict(scope.get("headers", ())).get(REQUEST_ID_HEADER.encode(), b"").decode("latin-1")
        request_id = request_id_accept(offered)

        async def send_with_id(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), (REQUEST_ID_HEADER.encode(), request_id.encode())]
                message = {**message, "headers": headers}
            await send(message)

        with request_id_bound(request_id):
            await self._inner(scope, receive, send_with_id)


application = RequestId(
    ProtocolTypeRouter(
        {
            "http": AgentDoor(
                BodyLimit(Probes(django_http)), snapshots=snapshot_for, watched=watched_scopes, usage=usage_store
            ),
            "websocket": OriginCheck(
                AuthMiddlewareStack(URLRouter(socket_routes(live_message))), settings.ENVIRONMENT.origins
            ),
        }
    )
)
