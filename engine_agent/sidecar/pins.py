"""Bring pins' content to an engine that lacks it. The content is fetched once by id and never stored on disk."""

import logging
import time
from collections.abc import Callable
from typing import Protocol

from engine_agent.sidecar.errors import ControlPlaneAway, ControlPlaneRefused
from engine_agent.sidecar.holder import Holder, HolderAway, HolderError

log = logging.getLogger("luminet.sidecar")
REFUSED_SECONDS = 60.0
KINDS = ("messages", "prompt", "token_ids")


class PinSource(Protocol):
    async def pin(self, pin_id: str) -> dict[str, object]: ...


class PinKeeper:
    def __init__(self, holder: Holder, source: PinSource, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._holder, self._source, self._clock = holder, source, clock
        self._boot = ""
        self._refused: dict[str, float] = {}  # pins that the engine or the control plane refused, and when to try again

    async def bring(self, boot: str, *, again: bool = False) -> int:
        """Hand over missing content and return how many pins got it.

        `again`: include refused pins; a new boot of the engine includes them anyway.
        """
        if again or boot != self._boot:
            self._boot, self._refused = boot, {}
        try:
            pin_ids = await self._holder.pins_wanted()
            due = [pin_id for pin_id in pin_ids if self._refused.get(pin_id, 0.0) <= self._clock()]
            return sum([await self._brought(pin_id) for pin_id in due])
        except (HolderError, ControlPlaneAway) as problem:
            log.debug("pins wait: %s", problem)
            return 0

    async def _brought(self, pin_id: str) -> bool:
        try:
            pin = await self._source.pin(pin_id)
            if (kind := pin.get("kind")) not in KINDS:
                raise HolderError(f"of a kind that is not known: {str(kind)[:40]}")
            await self._holder.pin_content(pin_id, {str(kind): pin.get("content")})
        except HolderAway:
            raise
        except (ControlPlaneRefused, HolderError) as problem:
            self._refused = {name: at for name, at in self._refused.items() if at > self._clock()}
            self._refused[pin_id] = self._clock() + REFUSED_SECONDS
            log.warning("pin %s has no content here: %s", pin_id, problem)
            return False
        return True
