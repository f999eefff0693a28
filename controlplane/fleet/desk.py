"""The state that all requests of the agent API share: known agents, waiting batches, and values for every answer.

There is one `Desk` for each event loop. Database access runs in separate threads, never in the loop. While agents
report, their heartbeats are written once a second, and the agents' current rows are read back for the answers.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from django.db import InterfaceError, OperationalError
from django.utils import timezone

from controlplane.common.metrics import agent_commit_seconds
from controlplane.database.threads import P, T, run_in_thread
from controlplane.fleet.cadence import SLOWEST_SECONDS, cadence_seconds
from controlplane.fleet.committing import GroupCommit
from controlplane.fleet.heartbeats import Beat, Newest, Written, heartbeats_write
from controlplane.fleet.known_agents import AgentNow
from controlplane.fleet.recognising import Asked, Outcome, Recognition, recognised
from controlplane.fleet.recording import Batches, Stored, Usage, batches_store
from controlplane.fleet.roster import Roster
from engine_agent.contracts.wire import Batch
from tenants.crypto import secret_hash

log = logging.getLogger("luminet.fleet")

TICK_SECONDS = 1.0
ASKING_THREADS = 2
Watched = Callable[[], Sequence[str]]


class Desk:
    def __init__(self, watched: Watched, usage: Usage | None = None) -> None:
        self._watched_now, self._usage = watched, usage
        # Each kind of work has its own threads, or a rush of one kind would block all the others.
        self._committing = ThreadPoolExecutor(1, thread_name_prefix="door-commits")
        self._looking = ThreadPoolExecutor(1, thread_name_prefix="door-looks")
        self._recognising = ThreadPoolExecutor(1, thread_name_prefix="door-recognises")
        self._asking = ThreadPoolExecutor(ASKING_THREADS, thread_name_prefix="door-asks")
        self._roster = Roster()
        self._newest = Newest()
        self._commits = GroupCommit(self._store)
        self._recognition = Recognition(self._recognised)
        self._ticking: asyncio.Task[None] | None = None
        self._has_ticked = asyncio.Event()
        self._is_failing = False
        self.cadence_seconds = SLOWEST_SECONDS
        self.watched: Sequence[str] = ()

    async def in_database(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await run_in_thread(self._asking, function, *args, **kwargs)

    async def identified(self, token: str) -> AgentNow:
        """Return the agent that this token belongs to, or raise AgentRefused."""
        known = self._roster.find(secret_hash(token), now=time.monotonic())
        if known is None:
            requested_at = time.monotonic()
            known = await self._recognition.agent(token)
            self._roster.put(known, read_at=requested_at, heard_at=requested_at)
        if self._ticking is None or self._ticking.done():
            self._has_ticked.clear()
            self._ticking = asyncio.create_task(self._tick_on())
        await self._has_ticked.wait()  # the first answers need values that the first tick reads
        return known

    def heard(self, beat: Beat) -> None:
        self._newest.offer(beat)

    async def reported(self, agent: str, batch: Batch, *, size: int) -> Stored | None:
        """Return the result once the batch is committed, or None if the agent is revoked. Raise TooMuchWaits."""
        stored = await self._commits.stored(agent, batch, size=size)
        if stored is not None:
            self._roster.acknowledged(
                agent,
                spool=stored.intake.arrival.received.spool,
                number=stored.intake.arrival.received.number,
                desired_hash=stored.desired_hash,
                desired_generation=stored.desired_generation,
            )
        return stored

    def now_known(self, agent: AgentNow) -> AgentNow:
        return self._roster.get(agent.id) or agent

    async def _store(self, batches: Batches) -> dict[str, Stored]:
        with agent_commit_seconds.time():
            return await run_in_thread(self._committing, batches_store, batches, now=timezone.now(), usage=self._usage)

    async def _recognised(self, tokens: Asked) -> dict[bytes, Outcome]:
        return await run_in_thread(self._recognising, recognised, tokens)

    async def _tick_on(self) -> None:
        """Tick every second while there are known agents or unwritten heartbeats."""
        while self._roster or self._newest:
            await self._tick()
            self._has_ticked.set()
            await asyncio.sleep(TICK_SECONDS)

    async def _tick(self) -> None:
        beats, agent_ids, requested_at = self._newest.take(), self._roster.ids(), time.monotonic()
        try:
            written, self.watched = await run_in_thread(self._looking, self._written, beats, agent_ids)
        except (OperationalError, InterfaceError) as error:
            self._newest.put_back(beats.values())
            self._went_wrong(error)
        except Exception as error:  # new heartbeats arrive soon, and the roster's entries expire
            self._went_wrong(error)
        else:
            self._is_failing = False
            self._newest.put_back(beats[agent] for agent in written.passed_over)
            self._roster.refresh(agent_ids, written.agents, now=requested_at)
            if written.fleet_size is not None:
                self.cadence_seconds = cadence_seconds(written.fleet_size)

    def _written(self, beats: dict[str, Beat], agent_ids: Sequence[str]) -> tuple[Written, Sequence[str]]:
        return heartbeats_write(beats, agent_ids), tuple(self._watched_now())

    def _went_wrong(self, error: Exception) -> None:
        """Log the first failure in a row, not one every second."""
        if not self._is_failing:
            log.error("heartbeats cannot be written", extra={"why": str(error)}, exc_info=error)
        self._is_failing = True
