"""Send spooled reports, as many as fit, and a heartbeat in one request, and interpret the answer."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from engine_agent.contracts.wire import MOST_REPORTS, Batch, batch_encode
from engine_agent.sidecar.errors import ControlPlaneAway, ControlPlaneRefused
from engine_agent.sidecar.events import Answered, SendFailed
from engine_agent.sidecar.holder import Holder, HolderError
from engine_agent.sidecar.link import Link
from engine_agent.sidecar.metrics import SidecarMetrics
from engine_agent.sidecar.spool import Spool
from engine_agent.sidecar.state import Sidecar

log = logging.getLogger("luminet.sidecar")
NOT_UNDERSTOOD = (400, 413)
COUNTER_SECONDS = 2.0
MOST_REFUSED_SAID = 20  # rows of one answer
MOST_BOOTS_TOLD = 100  # of one answer
Stand = Callable[[str, int], Awaitable[None]]
FASTEST_SECONDS, SLOWEST_SECONDS = 0.1, 60.0  # limits of an accepted cadence


class Reporter:
    """The sender of batches. It calls `stand` for each boot with the last record that the control plane has counted."""

    def __init__(
        self,
        machine: Sidecar,
        spool: Spool,
        link: Link,
        holder: Holder,
        metrics: SidecarMetrics,
        *,
        stand: Stand | None = None,
    ) -> None:
        self._machine, self._spool, self._link = machine, spool, link
        self._holder, self._metrics, self._stand = holder, metrics, stand
        self._most = MOST_REPORTS
        self.heard_at: float | None = None
        self.spooling = asyncio.Lock()  # taken by every reader and writer of the spool

    async def send(self) -> Answered | SendFailed:
        heartbeat = self._machine.heartbeat(await self._counters())
        async with self.spooling:
            batch = self._spool.batch(sent_at=time.time(), heartbeat=heartbeat, most=self._most)
        try:
            answer = await self._reported(batch)
            return await self._understood(answer)
        except ControlPlaneAway as problem:
            self._metrics.sent("away", len(self._spool))
            return SendFailed(str(problem), wait_seconds=problem.wait_seconds)
        except ControlPlaneRefused as problem:
            self._metrics.sent("refused", len(self._spool))
            await self._refused(batch, problem)
            return SendFailed(str(problem), is_final=problem.status in (401, 403))

    async def _reported(self, batch: Batch) -> Mapping[str, Any]:
        """Send the batch.

        If it is not understood, retry without the heartbeat, so that no report is given up for that.
        """
        try:
            return await self._link.report(batch_encode(batch))
        except ControlPlaneRefused as problem:
            if problem.status not in NOT_UNDERSTOOD or not batch.reports or batch.heartbeat is None:
                raise
            answer = await self._link.report(batch_encode(replace(batch, heartbeat=None)))
            log.error("a heartbeat is left out, because the control plane does not understand it: %s", problem)
            return answer

    async def beat(self, reason: str, *, is_down: bool) -> None:
        """Send only a heartbeat, with the holder's last known state, while the disk is not writable."""
        heartbeat = self._machine.heartbeat({})
        state = {"state": "down"} if is_down else {}
        heartbeat["engine"] = {**heartbeat["engine"], **state, "why": reason[:400]}
        with contextlib.suppress(ControlPlaneAway, ControlPlaneRefused):
            await self._link.report(batch_encode(Batch(time.time(), self._spool.id, self._spool.first, (), heartbeat)))

    async def _counters(self) -> Mapping[str, Any]:
        if not self._machine.watch or self._machine.holder is None:
            return {}
        try:
            async with asyncio.timeout(COUNTER_SECONDS):
                return await self._holder.counters(self._machine.watch)
        except (HolderError, TimeoutError):
            return {}

    async def _understood(self, answer: Mapping[str, Any]) -> Answered:
        """Parse and handle the answer. Raise ControlPlaneAway if it is malformed."""
        try:
            acknowledged, desired = int(answer["acknowledged"]), answer["desired"]
            cadence = min(SLOWEST_SECONDS, max(FASTEST_SECONDS, float(answer["cadence_seconds"])))
            watch = tuple(str(watched) for watched in answer["watch"])
            generation = None if desired is None else int(desired["generation"])
            refused = [dict(row) for row in answer.get("refused_rows", ())]
            journal = {str(boot): int(upto) for boot, upto in dict(answer.get("journal", {})).items()}
            hash_ = None if desired is None else str(desired["hash"])
        except (KeyError, TypeError, ValueError):
            raise ControlPlaneAway("an answer to reports that lacks what it must say") from None
        try:
            # First: once reports are forgotten, the sidecar must know which records are not counted.
            await self._stands(journal)
            async with self.spooling:
                await asyncio.to_thread(self._spool.acknowledge, acknowledged)
        except OSError as problem:  # the reports are sent again, and the control plane recognises them
            log.error("the spool cannot be written: %s", problem)
        self._most, self.heard_at = MOST_REPORTS, time.monotonic()
        self._say_refused(refused)
        self._metrics.sent("ok", len(self._spool))
        self._metrics.heard(time.time(), self._link.clock.offset_seconds)
        return Answered(generation, hash_, cadence, watch, len(self._spool), self._spool.kinds_waiting)

    async def _stands(self, journal: Mapping[str, int]) -> None:
        for boot, upto in list(journal.items())[:MOST_BOOTS_TOLD]:
            if self._stand is not None and upto >= 0:
                await self._stand(boot, upto)

    def _say_refused(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._metrics.rows_refused(len(rows))
        for row in rows[:MOST_REFUSED_SAID]:
            description = " ".join(
                f"{name} {str(row.get(name))[:120]}" for name in ("report", "row", "field", "problem")
            )
            log.error("the control plane refused what was told: %s", description)
        if len(rows) > MOST_REFUSED_SAID:
            log.error("and %d more", len(rows) - MOST_REFUSED_SAID)

    async def _refused(self, batch: Batch, problem: ControlPlaneRefused) -> None:
        """Send a batch that is not understood one report at a time, or it would be sent for ever.

        A single report that is not understood is given up and logged; the control plane sees from its number that it is
        missing.
        """
        if problem.status not in NOT_UNDERSTOOD or not batch.reports:
            return
        if len(batch.reports) > 1:
            self._most = 1
            return
        log.error("a report is given up, because the control plane does not understand it: %s", problem)
        async with self.spooling:
            await asyncio.to_thread(self._spool.give_up, batch.first)
