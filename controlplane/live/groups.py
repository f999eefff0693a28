"""The sockets of one group and their messages: each message is made once, and at most one of a type a second."""

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
        self._counted_at = -1e9  # when statistics were last sent
        self._tasks = [asyncio.create_task(paced.run()) for paced in (self._counting, self._relaying)]

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def add(self, outbox: Outbox) -> None:
        """Add a socket, which gets the current statistics."""
        self.outboxes.add(outbox)
        if self._newest is None or self._is_failing:  # the last message may be outdated
            self._counting.ask()
        else:
            outbox.offer(STATS, self._newest)

    def moved(self) -> None:
        """Refresh the statistics, which may have changed."""
        self._counting.ask()

    def relay(self, message: Mapping[str, Any]) -> None:
        """Send another process's message to all pages. A nudge has no `seq`: it gets one from its time."""
        self._relayed[message["type"]] = {"seq": int(message.get("at", 0) * 1000), **message}
        self._relaying.ask()

    def tell_still(self, message: Mapping[str, Any], *, quiet_seconds: float) -> None:
        """Confirm to pages that got no statistics for so long that their last ones are still current."""
        now = asyncio.get_running_loop().time()
        if now - self._counted_at >= quiet_seconds and not self._is_failing and not self._counting.is_asked:
            self._tell_numbers(message)

    def _tell_numbers(self, message: Mapping[str, Any]) -> str:
        """Send statistics and note the time. A pulse proves that messages flow, but not that statistics are current."""
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
        except Exception as error:  # after any error pages show that they are stale, and it is tried again
            if not self._is_failing:
                log.error("numbers of live pages", extra={"group": self.name, "why": str(error)}, exc_info=error)
            self._is_failing = True
            self._counting.ask()  # in a second: the next request may be a minute away
        else:
            self._is_failing = False
            self._newest = self._tell_numbers(message)
