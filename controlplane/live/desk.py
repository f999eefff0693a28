"""What all live sockets of a process share: who listens, what is told to whom, and who must not listen any more.

One for each event loop; it does nothing while nobody listens. The numbers are not made here: `message` is injected, and
asked once for all sockets of a group. What touches the database runs in threads of its own, and never in the loop;
and who may listen is asked in other threads than the numbers, so that however many groups are counted, nobody waits
longer to be let in, or to be cut.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.db import InterfaceError, OperationalError

from controlplane.database.threads import P, T, run_in_thread
from controlplane.live.groups import Group
from controlplane.live.listeners import FLEET_GROUP, Checked, listeners_check, organisation_group
from controlplane.live.listening import Listening, organisations_told
from controlplane.live.outbox import Outbox
from controlplane.live.relaying import Relay

log = logging.getLogger("luminet.live")

CHECK_SECONDS = 2.0
QUIET_SECONDS = 3.0
SUBSCRIBING_SECONDS = 1.0  # with Redis away, who comes is told the rest after this long
MINUTE = 60.0
TURNED_WITHIN = 1 / 3  # of a minute: not all groups are counted at once, or whoever moves would wait behind them
CHECKING_THREADS, COUNTING_THREADS = 2, 2
Message = Callable[[str], Mapping[str, Any]]  # what the pages of a group are to be told of its numbers


class Desk:
    def __init__(self, message: Message) -> None:
        self._message = message
        self._checking = ThreadPoolExecutor(CHECKING_THREADS, thread_name_prefix="live-checks")
        self._counting = ThreadPoolExecutor(COUNTING_THREADS, thread_name_prefix="live-counts")
        self._groups: dict[str, Group] = {}
        self._listening = Listening(self._told)
        self._relay = Relay(self._relayed)
        self._ahead_seconds = 0.0  # the database's clock, before ours
        self._is_failing = False
        self._tasks: list[asyncio.Task[None]] = []

    async def in_database(self, deed: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> T:
        """What must not wait: who may listen, and what a page has missed."""
        return await run_in_thread(self._checking, deed, *args, **named)

    async def join(self, outbox: Outbox) -> None:
        """From here on it gets what is told, and first of all how things stand."""
        name = outbox.listener.group
        if name not in self._groups:
            self._groups[name] = Group(name, self._counted)
        self._groups[name].add(outbox)
        if not self._tasks:
            self._begin(self._listening.run(), self._relay.run(), self._check_on(), self._turn_on())

    async def subscribed(self) -> None:
        """Until what others tell all fleet pages does reach us: what was told before, one has to look up."""
        try:
            async with asyncio.timeout(SUBSCRIBING_SECONDS):
                await self._relay.subscribed.wait()
        except TimeoutError:
            log.debug("went on without Redis")

    def leave(self, outbox: Outbox) -> None:
        group = self._groups.get(outbox.listener.group)
        if group is None:
            return
        group.outboxes.discard(outbox)
        if not group.outboxes:
            self._groups.pop(group.name).close()
        if not self._groups:
            self._end()

    def _begin(self, *deeds: Coroutine[Any, Any, None]) -> None:
        self._tasks = [asyncio.create_task(one) for one in deeds]

    def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    async def _counted(self, group: str) -> Mapping[str, Any]:
        return await run_in_thread(self._counting, self._message, group)

    def _told(self, payload: str) -> None:
        """By the database: of these organisations something was counted, and so of the fleet."""
        moved = organisations_told(payload)
        names = list(self._groups) if moved is None else [FLEET_GROUP, *map(organisation_group, moved)]
        for name in names:
            if name in self._groups:
                self._groups[name].moved()

    def _relayed(self, message: dict[str, Any]) -> None:
        if FLEET_GROUP in self._groups:
            self._groups[FLEET_GROUP].relay(message)

    async def _turn_on(self) -> None:
        """With every minute of the database's clock all windows move on."""
        while True:
            await asyncio.sleep(MINUTE - (time.time() + self._ahead_seconds) % MINUTE)
            await self._turn()

    async def _turn(self) -> None:
        """One after the other, evenly: each of them once, unless it has been left by then."""
        names = list(self._groups)
        for name in names:
            if name in self._groups:
                self._groups[name].moved()
            await asyncio.sleep(MINUTE * TURNED_WITHIN / len(names))

    async def _check_on(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            outboxes = [outbox for group in self._groups.values() for outbox in group.outboxes]
            try:
                checked = await self.in_database(listeners_check, [outbox.listener for outbox in outboxes])
            except (OperationalError, InterfaceError) as error:
                self._went_wrong(error)
            except Exception as error:  # or nobody would ever be cut again
                self._went_wrong(error)
            else:
                self._is_failing = False
                self._act_on(checked, outboxes)

    def _act_on(self, checked: Checked, outboxes: list[Outbox]) -> None:
        for outbox in outboxes:
            if outbox.listener in checked.refused:
                outbox.cut(checked.refused[outbox.listener])
        if not outboxes:
            return
        self._ahead_seconds = checked.at_ms / 1000 - time.time()
        if self._listening.is_connected:
            for group in self._groups.values():
                group.tell_still({"type": "still", "seq": checked.at_ms}, quiet_seconds=QUIET_SECONDS)

    def _went_wrong(self, error: Exception) -> None:
        """Told once, not every two seconds."""
        if not self._is_failing:
            log.error("listeners cannot be checked", extra={"why": str(error)}, exc_info=error)
        self._is_failing = True


class Desks:
    """That of this event loop. A server has one for all its life."""

    def __init__(self, message: Message) -> None:
        self._message = message
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def here(self) -> Desk:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._desk = loop, Desk(self._message)
        return self._desk
