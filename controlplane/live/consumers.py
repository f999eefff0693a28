"""The live sockets. A page that reconnects with `?since=seq` gets what it missed before anything new."""

import time
from importlib import import_module
from typing import Any
from urllib.parse import parse_qs

from channels.auth import get_user
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.conf import settings

from controlplane.live.selectors import pulse_latest, pulses_since
from controlplane.live.services import FLEET_GROUP, pulse_message
from controlplane.metrics import sockets_open

NOT_SIGNED_IN = 4401
NOT_ALLOWED = 4403
NOT_FOUND = 4404
RECHECK_SECONDS = 10


class FleetConsumer(AsyncJsonWebsocketConsumer):
    """What moves in the fleet, for operators."""

    checked_at = 0.0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Counted for exactly as long as it lives, however it ends."""
        sockets_open.inc()
        try:
            await super().__call__(scope, receive, send)
        finally:
            sockets_open.dec()

    async def disconnect(self, code: int) -> None:
        await self.channel_layer.group_discard(FLEET_GROUP, self.channel_name)

    async def connect(self) -> None:
        refusal = _refusal(self.scope["user"])
        await self.accept()
        if refusal is not None:
            # Closed after accepting, because browsers hide the reason of a refused handshake from the page.
            await self.close(code=refusal)
            return
        self.checked_at = time.monotonic()
        # Join before replaying: a pulse between the two is sent twice rather than lost, and pages ignore old numbers.
        await self.channel_layer.group_add(FLEET_GROUP, self.channel_name)
        for message in await _missed(_since(self.scope)):
            await self.send_json(message)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any) -> None:
        """Pages only listen: whatever a client sends is ignored, so it need not be JSON, or text, or anything."""

    async def relay(self, event: dict[str, Any]) -> None:
        refusal = await self._recheck()
        if refusal is not None:
            await self.close(code=refusal)
        else:
            await self.send_json(event["message"])

    async def _recheck(self) -> int | None:
        """A socket outlives its handshake: who signed out or lost the role elsewhere must not go on listening."""
        if time.monotonic() - self.checked_at < RECHECK_SECONDS:
            return None
        self.checked_at = time.monotonic()
        store = import_module(settings.SESSION_ENGINE).SessionStore
        scope: Any = {"session": store(self.scope["session"].session_key)}
        return _refusal(await get_user(scope))


class NoSuchSocket(AsyncJsonWebsocketConsumer):
    """Says so with a code, where Channels would log a traceback for every stranger who tries a path."""

    async def connect(self) -> None:
        await self.accept()
        await self.close(code=NOT_FOUND)


def _refusal(user: Any) -> int | None:
    if not user.is_authenticated:
        return NOT_SIGNED_IN
    return None if user.is_operator else NOT_ALLOWED


def _since(scope: Any) -> int | None:
    value = parse_qs(scope["query_string"].decode("latin-1")).get("since", [""])[0]
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 19 else None


@database_sync_to_async
def _missed(since: int | None) -> list[dict[str, object]]:
    if since is not None:
        return [pulse_message(pulse) for pulse in pulses_since(since)]
    latest = pulse_latest()
    return [] if latest is None else [pulse_message(latest)]
