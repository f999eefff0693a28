"""The live web sockets. A page that reconnects with `?since=seq` gets the pulses it missed, or the latest one."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs

from controlplane.common.metrics import sockets_open
from controlplane.live.desk import Desk, Desks
from controlplane.live.listeners import FLEET_GROUP, NOT_FOUND, Listener, ListenerRefused
from controlplane.live.outbox import Cut, Outbox
from controlplane.live.selectors import pulse_latest, pulses_since
from controlplane.live.services import pulse_message

log = logging.getLogger("luminet.live")

TOO_SLOW = 4408
SEND_SECONDS = 5.0  # a client that takes longer to receive a message is disconnected; it may reconnect
LATE_MS = 5_000  # a pulse may become visible late, so this much before `since` is sent again
LATEST_SINCE = 253_402_300_799_999  # the last millisecond that has a date
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Admit = Callable[..., Listener]  # takes the user, the session's row key and the path's arguments


class LiveSocket:
    """The ASGI application of one path of sockets."""

    def __init__(self, hubs: Desks, admit: Admit) -> None:
        self._desks = hubs
        self._admit = admit

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Count the socket for exactly as long as it lives, however it ends."""
        sockets_open.inc()
        try:
            await self._answer(scope, receive, send)
        finally:
            sockets_open.dec()

    async def _answer(self, scope: Any, receive: Receive, send: Send) -> None:
        hub = self._desks.here
        await receive()
        try:
            listener = await hub.in_database(self._admitted, scope)
        except ListenerRefused as refused:
            await _refuse(send, refused.code)
            return
        await send({"type": "websocket.accept"})
        with contextlib.suppress(OSError):  # the client left without closing
            if (code := await _served(hub, listener, _since(scope), receive, send)) is not None:
                async with asyncio.timeout(SEND_SECONDS):
                    await send({"type": "websocket.close", "code": code})

    def _admitted(self, scope: Any) -> Listener:
        path_arguments = scope["url_route"]["kwargs"]
        return self._admit(scope["user"], scope["session"].row_key, **path_arguments)


async def no_such_socket(scope: Any, receive: Receive, send: Send) -> None:
    """Close the socket with a code. Channels would log a traceback for every unknown path that a stranger tries."""
    await receive()
    await _refuse(send, NOT_FOUND)


async def _refuse(send: Send, code: int) -> None:
    """Accept, then close with the code: browsers hide the reason of a refused handshake from the page."""
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.close", "code": code})


async def _served(hub: Desk, listener: Listener, since: int | None, receive: Receive, send: Send) -> int | None:
    """Serve a socket until the client leaves, or return the code to close it with."""
    outbox = Outbox(listener)
    await hub.join(outbox)
    sending = asyncio.create_task(_send_on(hub, outbox, since, send))
    reading = asyncio.create_task(_gone(receive))
    try:
        await asyncio.wait({sending, reading}, return_when=asyncio.FIRST_COMPLETED)
        return sending.result() if sending.done() else None
    finally:
        hub.leave(outbox)
        for task in (sending, reading):
            task.cancel()
        await asyncio.gather(sending, reading, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    """Wait until the client disconnects. Pages only listen, so anything that a client sends is ignored."""
    while (await receive())["type"] != "websocket.disconnect":
        pass


async def _send_on(hub: Desk, outbox: Outbox, since: int | None, send: Send) -> int:
    try:
        for text in await _missed(hub, outbox.listener, since):
            await _sent(send, text)
        while True:
            for text in await outbox.taken():
                await _sent(send, text)
    except Cut as cut:
        return cut.code
    except TimeoutError:
        log.info("a live socket was too slow", extra={"group": outbox.listener.group})
        return TOO_SLOW


async def _sent(send: Send, text: str) -> None:
    async with asyncio.timeout(SEND_SECONDS):
        await send({"type": "websocket.send", "text": text})


async def _missed(hub: Desk, listener: Listener, since: int | None) -> list[str]:
    """Return the pulses since then, or the latest.

    Statistics are not replayed: a new socket gets the current ones anyway.
    """
    if listener.group != FLEET_GROUP:
        return []
    await hub.subscribed()  # before the query, so that a pulse in between is sent twice rather than lost
    return [json.dumps(message) for message in await hub.in_database(_pulses, since)]


def _pulses(since: int | None) -> list[dict[str, object]]:
    missed_pulses = [] if since is None else pulses_since(since - LATE_MS)
    latest = pulse_latest()
    return [pulse_message(pulse) for pulse in missed_pulses or ([latest] if latest else [])]


def _since(scope: Any) -> int | None:
    value = parse_qs(scope["query_string"].decode("latin-1")).get("since", [""])[0]
    since = int(value) if value.isascii() and value.isdecimal() and len(value) < 19 else None
    return since if since is not None and LATE_MS <= since <= LATEST_SINCE else None
