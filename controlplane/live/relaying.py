"""Receive messages of other processes to all fleet pages from Redis, once for each process rather than each socket."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from channels.layers import get_channel_layer

from controlplane.live.listeners import FLEET_GROUP

log = logging.getLogger("luminet.live")
RETRY_SECONDS = 2.0


class Relay:
    def __init__(self, on_message: Callable[[dict[str, Any]], None]) -> None:
        self._told = on_message
        self.subscribed = asyncio.Event()

    async def run(self) -> None:
        while True:
            try:
                await self._relay()
            except Exception as error:  # retry after any error, such as Redis being away
                log.warning("fleet pages hear nothing from Redis", extra={"why": str(error)})
            finally:
                self.subscribed.clear()
            await asyncio.sleep(RETRY_SECONDS)

    async def _relay(self) -> None:
        layer = get_channel_layer()
        if layer is None:
            raise RuntimeError("no channel layer is configured")
        channel = await layer.new_channel()
        await layer.group_add(FLEET_GROUP, channel)
        try:
            self.subscribed.set()
            while True:
                self._told((await layer.receive(channel))["message"])
        finally:
            await layer.group_discard(FLEET_GROUP, channel)
