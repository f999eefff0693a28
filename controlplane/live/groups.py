"""The sockets of one group, and what they are told: each message made once, and at most one of a type a second."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from controlplane.live.outbox import Outbox
from controlplane.live.pacing import Paced

log = logging.getLogger("luminet.live")

SECONDS_BETWEEN = 1.0
STATS = "stats"
Compute = Callable[[str], Awaitable[Mapping[str, Any]]]


class Group:
    def __init__(self, name: str, compute: Compute) -> None:
        self.name = name
        self.outboxes: set[Outbox] = set()
        self._compute = compute
        self._newest: str | None = None
        self._relayed: dict[str, Mapping[str, Any]] = {}
        self._counting = Paced(self._count, seconds=SECONDS_BETWEEN)
        self._relaying = Paced(self._tell_relayed, seconds=SECONDS_BETWEEN)
        self._is_failing = False
        self._counted_at = -1e9  # when its pages were told last how the numbers stand
        self._tasks = [asyncio.create_task(one.run()) for one in (self._counting, self._relaying)]

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def add(self, outbox: Outbox) -> None:
        """Who comes is told how things stand."""
        self.outboxes.add(outbox)
        if self._newest is None or self._is_failing:  # what was told last may not hold any more
            self._counting.ask()
        else:
            outbox.offer(STATS, self._newest)

    def moved(self) -> None:
        """Its numbers may have changed."""
        self._counting.ask()

    def relay(self, message: Mapping[str, Any]) -> None:
        """What others told all pages. A nudge has only a time, which is its number."""
        self._relayed[message["type"]] = {"seq": int(message.get("at", 0) * 1000), **message}
        self._relaying.ask()

    def tell_still(self, message: Mapping[str, Any], *, quiet_seconds: float) -> None:
        """To who has heard nothing of the numbers for so long: what they were told last is true to this moment."""
        now = asyncio.get_running_loop().time()
        if now - self._counted_at >= quiet_seconds and not self._is_failing and not self._counting.is_asked:
            self._tell_numbers(message)

    def _tell_numbers(self, message: Mapping[str, Any]) -> str:
        """A pulse proves that something moves, and nothing of the numbers: so these have a time of their own."""
        self._counted_at = asyncio.get_running_loop().time()
        return self._tell(message)

    def _tell(self, message: Mapping[str, Any]) -> str:
        text = json.dumps(message, cls=DjangoJSONEncoder, separators=(",", ":"))
        for outbox in self.outboxes:
            outbox.offer(message["type"], text)
        return text

    async def _tell_relayed(self) -> None:
        messages, self._relayed = self._relayed, {}
        for message in messages.values():
            self._tell(message)

    async def _count(self) -> None:
        try:
            message = await self._compute(self.name)
        except Exception as error:  # whatever it is: pages say that they are stale, and it is tried again
            if not self._is_failing:
                log.error("numbers of live pages", extra={"group": self.name, "why": str(error)}, exc_info=error)
            self._is_failing = True
            self._counting.ask()  # in a second: nobody else may ask for a minute
        else:
            self._is_failing = False
            self._newest = self._tell_numbers(message)
