"""The state that all live sockets of a process share: the listeners, their messages, and checks of their access.

There is one `Desk` for each event loop; it is idle while no socket is open. It computes no statistics: `message` is
injected, and called once for all sockets of a group. Database access runs in separate threads, never in the loop.
Access checks and statistics have different threads, so that sockets are admitted and closed in time, however many
groups are computed.
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
SUBSCRIBING_SECONDS = 1.0  # with Redis away, a new socket waits this long for its first pulses
MINUTE = 60.0
TURNED_WITHIN = 1 / 3  # of a minute: computing all groups at once would delay groups with new usage
CHECKING_THREADS, COUNTING_THREADS = 2, 2
Message = Callable[[str], Mapping[str, Any]]  # returns the statistics for a group's pages


class Desk:
    def __init__(self, message: Message) -> None:
        self._message = message
        self._checking = ThreadPoolExecutor(CHECKING_THREADS, thread_name_prefix="live-checks")
        self._counting = ThreadPoolExecutor(COUNTING_THREADS, thread_name_prefix="live-counts")
        self._groups: dict[str, Group] = {}
        self._listening = Listening(self._told)
        self._relay = Relay(self._relayed)
        self._ahead_seconds = 0.0  # how far the database's clock is ahead of ours
        self._is_failing = False
        self._tasks: list[asyncio.Task[None]] = []

    async def in_database(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run work that must not wait behind statistics: access checks, and reading missed pulses."""
        return await run_in_thread(self._checking, function, *args, **kwargs)

    async def join(self, outbox: Outbox) -> None:
        """Add a socket to its group. It first gets the current statistics."""
        name = outbox.listener.group
        if name not in self._groups:
            self._groups[name] = Group(name, self._counted)
        self._groups[name].add(outbox)
        if not self._tasks:
            self._begin(self._listening.run(), self._relay.run(), self._check_on(), self._turn_on())

    async def subscribed(self) -> None:
        """Wait until messages of other processes arrive here. Earlier ones must be read from the database."""
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

    def _begin(self, *coroutines: Coroutine[Any, Any, None]) -> None:
        self._tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]

    def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    async def _counted(self, group: str) -> Mapping[str, Any]:
        return await run_in_thread(self._counting, self._message, group)

    def _told(self, payload: str) -> None:
        """Handle a notification of the database: usage of these organisations, and so of the fleet, has changed."""
        organisations = organisations_told(payload)
        names = list(self._groups) if organisations is None else [FLEET_GROUP, *map(organisation_group, organisations)]
        for name in names:
            if name in self._groups:
                self._groups[name].moved()

    def _relayed(self, message: dict[str, Any]) -> None:
        if FLEET_GROUP in self._groups:
            self._groups[FLEET_GROUP].relay(message)

    async def _turn_on(self) -> None:
        """Refresh all groups with every minute of the database's clock, when all time windows move on."""
        while True:
            await asyncio.sleep(MINUTE - (time.time() + self._ahead_seconds) % MINUTE)
            await self._turn()

    async def _turn(self) -> None:
        """Refresh the groups that still have sockets, one after the other, at even intervals."""
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
            except Exception as error:  # or no socket would ever be closed again
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
        """Log the first failure in a row, not one every two seconds."""
        if not self._is_failing:
            log.error("listeners cannot be checked", extra={"why": str(error)}, exc_info=error)
        self._is_failing = True


class Desks:
    """Provides the `Desk` of the running event loop. A server has one loop for its whole life."""

    def __init__(self, message: Message) -> None:
        self._message = message
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def here(self) -> Desk:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._desk = loop, Desk(self._message)
        return self._desk
