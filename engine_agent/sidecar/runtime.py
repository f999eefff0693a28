"""Run one sidecar: carry out the effects of its state machine (`state.py`) on any holder.

It runs in one event loop; Celery's threads hand commands in. Effects run in order, and a write to disk completes before
the next effect starts. An effect that waits for another process runs in the background; its result or failure comes
back as an event.
"""

import asyncio
import contextlib
import itertools
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, ParamSpec, TypeVar

from engine_agent.contracts.protocol import ProtocolError, Snapshot
from engine_agent.contracts.wire import Report
from engine_agent.sidecar import effects as asked
from engine_agent.sidecar import events as told
from engine_agent.sidecar.clock import ControlPlaneClock, learnt_encode, learnt_read
from engine_agent.sidecar.commands import command_read
from engine_agent.sidecar.config import SidecarConfig
from engine_agent.sidecar.credentials import Credentials, credentials_keep, with_token
from engine_agent.sidecar.effects import Effect, Held
from engine_agent.sidecar.errors import ControlPlaneAway, ControlPlaneRefused
from engine_agent.sidecar.events import Event
from engine_agent.sidecar.holder import Holder, HolderAway, HolderError, HolderMismatch, HolderRejected
from engine_agent.sidecar.home import home_lock
from engine_agent.sidecar.levels import LevelTeller
from engine_agent.sidecar.link import Link
from engine_agent.sidecar.metrics import UNSETTLED, SidecarMetrics
from engine_agent.sidecar.operating import operation_outcome
from engine_agent.sidecar.pins import PinKeeper
from engine_agent.sidecar.reporting import Reporter
from engine_agent.sidecar.shelf import Shelf
from engine_agent.sidecar.spool import Spool, SpoolFile, replace_file
from engine_agent.sidecar.state import EMPTY, Sidecar
from engine_agent.sidecar.store import Store
from engine_agent.sidecar.usage import MARK, MOST_UNACKNOWLEDGED, UsageReader
from engine_agent.sidecar.worker import CommandWorker

log = logging.getLogger("luminet.sidecar")
UNSETTLED_SECONDS = 45.0  # longest time for a command, longer than any command is valid
DISK_SECONDS = 1.0  # between two attempts to write to a full or failing disk
SHORTEST_SECONDS = 0.001  # shortest wait for an event, so that other tasks of the loop can run
ONLY_NEWEST = (told.HolderSeen, told.AboutSeen)
CLOCK_STEP_SECONDS = 0.05  # smaller changes are not passed to the holder
CLOCK_PATIENCE_SECONDS = 2.0  # wait for the first answer: it just came with a snapshot, or will not come for long
KEEP_CLOCK_SECONDS = 5.0
LEVELS_LOOK_SECONDS = 1.0
P = ParamSpec("P")
T = TypeVar("T")


class Runtime:
    def __init__(self, config: SidecarConfig, credentials: Credentials, holder: Holder) -> None:
        """Lock the home folder and read its state. Raise BadHome if another process uses it."""
        self.config, self.credentials, self._holder = config, credentials, holder
        self._lock = home_lock(config.home)
        self.clock = ControlPlaneClock(learnt_read(config.home / "clock"))
        self.link = Link(credentials.url, credentials.token, self.clock)
        self.metrics = SidecarMetrics()
        self._keys = credentials.command_keys()
        self._store = Store(config.home, agent=credentials.agent, key=credentials.sealing_key)
        self.shelf = Shelf(self._store)
        self.spool = Spool(SpoolFile(config.home / "spool"))
        if self.spool.problem:
            log.error("%s: %s", config.home / "spool", self.spool.problem)
        self.machine = self._machine()
        self._reporter = Reporter(self.machine, self.spool, self.link, holder, self.metrics, stand=self._stand)
        self._pins = PinKeeper(holder, self.link)
        self._usage = UsageReader(
            holder,
            self.spool.marks.get(MARK),
            tell=self._spool_besides,
            may_tell=self._may_tell_usage,
            waits=lambda: self.spool.waiting("usage") > 0,
        )
        self._levels = LevelTeller(
            holder,
            tell=self._spool_besides,
            waiting=self.spool.waiting,
            traffic=self._usage.traffic,
            at=self.clock.now,
        )
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._newest: dict[type[Any], Event] = {}  # latest waiting event of each kind in ONLY_NEWEST
        self._deliveries: dict[int, Future[str]] = {}
        self._numbers = itertools.count(1)
        self._deeds: set[asyncio.Task[None]] = set()
        self._worker: CommandWorker | None = None
        self._must_look = asyncio.Event()
        self._clock_told: tuple[str, float] | None = None
        self._offset_kept: float | None = None

    @property
    def heard_at(self) -> float | None:
        """Return the monotonic time of the control plane's last answer, or None before the first."""
        return self._reporter.heard_at

    def _machine(self) -> Sidecar:
        stored = self.shelf.stored
        return Sidecar(
            self.credentials.agent,
            boot=uuid.uuid4().hex,
            held=None if stored is None else Held(stored.generation, stored.snapshot.hash),
            ledger=self._store.read_ledger(),
            proofs_told=self.spool.proofs_told,
            spooled=len(self.spool),
        )

    def snapshot(self) -> Snapshot | None:
        """Return the last snapshot that the holder applied."""
        return None if self.shelf.stored is None else self.shelf.stored.snapshot

    async def run(self, until: asyncio.Event) -> None:
        """Run until the event is set.

        Then take no more commands, and send the remaining reports within a time limit.
        """
        self._loop = asyncio.get_running_loop()
        loops = (
            self._on_events,
            self._look_on,
            self._look_at_about,
            self._bring_pins,
            self._take_commands,
            self._tell_usage,
            self._tell_levels,
            self._keep_clock,
        )
        tasks = [asyncio.create_task(loop()) for loop in loops]
        try:
            self.tell(told.Started())
            await _first(until, tasks)
            await self._finish()
        finally:
            for task in (*tasks, *self._deeds):
                task.cancel()
            await asyncio.gather(*tasks, *self._deeds, return_exceptions=True)
            await self._close()

    def tell(self, event: Event) -> None:
        """Queue an event. Call it in the runtime's event loop.

        Of polls only the latest is queued, because the queue can stand still for long while the disk is full.
        """
        kind = type(event)
        if kind in ONLY_NEWEST:
            is_waiting = kind in self._newest
            self._newest[kind] = event
            if is_waiting:
                return
        self._events.put_nowait(event)

    async def report(self, reports: Sequence[Report]) -> None:
        """Spool reports of another component of this process. They are on disk when it returns."""
        await self._spool_besides(reports)

    def look(self) -> None:
        """Poll the holder at once, because its state has changed."""
        self._must_look.set()

    async def _finish(self) -> None:
        await self._stop_worker()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.stop_seconds):
                while self._deliveries or self.spool:  # noqa: ASYNC110 (two things to wait for, once, at the end)
                    await asyncio.sleep(0.02)

    async def _stop_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            with self._survived("its worker"):
                await asyncio.to_thread(worker.stop)

    async def _close(self) -> None:
        for settled in self._deliveries.values():
            settled.cancel()
        await self._stop_worker()
        await self.link.close()
        self._lock.close()

    # Events

    async def _on_events(self) -> None:
        while True:
            event = await self._next_event()
            for effect in self.machine.on(event, now=time.monotonic(), at=self.clock.now()):
                await self._do(effect)

    async def _next_event(self) -> Event:
        if not self._events.empty():
            return self._newest_of(self._events.get_nowait())
        try:
            async with asyncio.timeout(max(SHORTEST_SECONDS, self.machine.due_at() - time.monotonic())):
                return self._newest_of(await self._events.get())
        except TimeoutError:
            return told.Ticked()

    def _newest_of(self, event: Event) -> Event:
        return self._newest.pop(type(event), event)

    async def _take_commands(self) -> None:
        """Start the worker once the control plane's clock is known.

        By the local clock, valid commands may look expired.
        """
        await self.clock.learnt.wait()
        broker = self.credentials.broker
        self._worker = CommandWorker(url=broker["url"], prefix=broker["prefix"], queue=broker["queue"], take=self._take)
        self._worker.start()
        await asyncio.Event().wait()

    def _take(self, sealed: object, is_redelivered: bool) -> None:
        """Handle a message in a worker thread. When it returns, the broker may forget the message."""
        began, settled = time.perf_counter(), Future[str]()
        delivery = next(self._numbers)
        event = command_read(sealed, self._keys, delivery=delivery, is_redelivered=is_redelivered)

        def hand_in() -> None:
            self._deliveries[delivery] = settled
            self.tell(event)

        try:
            self._loop.call_soon_threadsafe(hand_in)
            outcome = settled.result(UNSETTLED_SECONDS)
        # The control plane repeats the command, or the agent pulls.
        except (TimeoutError, CancelledError, RuntimeError):
            outcome = UNSETTLED
        self.metrics.command(outcome, time.perf_counter() - began)

    async def _look_on(self) -> None:
        while True:
            self.tell(await self._looked())
            self._must_look.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(self.config.look_seconds, self.machine.cadence_seconds / 2)):
                    await self._must_look.wait()

    async def _looked(self) -> told.HolderSeen:
        try:
            state = await self._holder.state()
        except HolderError as problem:
            return told.HolderSeen(None, str(problem)[:300])
        except Exception as problem:
            log.exception("%s: the holder's state cannot be read", self.credentials.agent)
            return told.HolderSeen(None, f"its state cannot be read: {type(problem).__name__}: {problem}"[:300])
        with self._survived("its clock"):  # a failure here must not hide the holder's state
            await self._tell_clock(state.boot)
        return told.HolderSeen(state)

    async def _tell_clock(self, boot: str) -> None:
        """Send the clock offset to the holder, which checks identities and dates proofs by that clock."""
        offset = self.clock.offset_seconds
        is_told = self._clock_told and self._clock_told[0] == boot
        is_close = is_told and self._clock_told and abs(self._clock_told[1] - offset) < CLOCK_STEP_SECONDS
        if self.clock.is_known and not is_close:
            await self._holder.set_clock(offset)
            self._clock_told = (boot, offset)

    async def _tell_clock_first(self, boot: str) -> None:
        """Set the holder's clock before its first snapshot.

        Without a snapshot the holder serves no requests, so none of its records is dated by the wrong clock.
        """
        if self._clock_told and self._clock_told[0] == boot:
            return
        with contextlib.suppress(TimeoutError):
            if not self.clock.is_known:
                await asyncio.wait_for(self.clock.learnt.wait(), CLOCK_PATIENCE_SECONDS)
        with self._survived("its clock"):
            await self._tell_clock(boot)

    async def _look_at_about(self) -> None:
        while True:
            with self._survived("about"):
                self.tell(told.AboutSeen(await self._holder.about()))
            await asyncio.sleep(self.config.about_seconds)

    async def _keep_clock(self) -> None:
        """Save the clock's estimate for the next start, when the control plane may be unreachable."""
        while True:
            await self.clock.learnt.wait()
            learnt = self.clock.kept()
            saved_offset = self._offset_kept
            if saved_offset is None or abs(saved_offset - learnt.offset_seconds) > CLOCK_STEP_SECONDS:
                with self._survived("its clock"):
                    await asyncio.to_thread(replace_file, self.config.home / "clock", learnt_encode(learnt))
                    self._offset_kept = learnt.offset_seconds
            await asyncio.sleep(KEEP_CLOCK_SECONDS)

    async def _tell_usage(self) -> None:
        while True:
            with self._survived("its journal"):
                await self._usage.look()
            await asyncio.sleep(self.machine.cadence_seconds)

    async def _tell_levels(self) -> None:
        await self.clock.learnt.wait()
        while True:
            with self._survived("its levels"):
                await self._levels.look(time.monotonic(), is_busy=self._usage.is_busy)
            await asyncio.sleep(LEVELS_LOOK_SECONDS)

    def _may_tell_usage(self) -> bool:
        """Return whether usage may be spooled.

        If the control plane does not accept it now, it can wait in the journal.
        """
        is_taken = self.clock.is_learnt and self.link.takes_usage
        return is_taken and self.spool.waiting("usage") < MOST_UNACKNOWLEDGED

    async def _stand(self, boot: str, upto: int) -> None:
        await self._usage.stand(boot, upto)

    async def _spool_besides(self, reports: Sequence[Report], marks: Mapping[str, Any] | None = None) -> None:
        """Spool reports that do not come from the state machine. They are on disk when it returns."""
        await self._on_disk(self.spool.tell, reports, None, marks)
        self.metrics.told(reports, len(self.spool))
        if reports:
            self.tell(told.Spooled(len(reports)))

    async def _bring_pins(self) -> None:
        while True:
            await asyncio.sleep(self.config.pins_seconds)
            with self._survived("pins"):
                await self._bring()

    async def _bring(self, *, again: bool = False) -> None:
        holder = self.machine.holder
        await self._pins.bring(holder.boot if holder else "", again=again)

    @contextlib.contextmanager
    def _survived(self, activity: str) -> Iterator[None]:
        """Log any error of a holder or broker, so that it does not end the process."""
        try:
            yield
        except HolderError as problem:
            log.debug("%s: %s: %s", self.credentials.agent, activity, problem)
        except Exception:
            log.exception("%s: %s: it went wrong", self.credentials.agent, activity)

    # Effects

    async def _do(self, effect: Effect) -> None:
        match effect:
            case asked.Keep():
                await self._on_disk(self._store.keep_ledger, effect.ledger)
            case asked.Tell():
                await self._on_disk(self.spool.tell, effect.reports, effect.proofs_told)
                self.metrics.told(effect.reports, len(self.spool))
            case asked.Settle():
                if settled := self._deliveries.pop(effect.delivery, None):
                    settled.set_result(effect.outcome)
            case asked.Log():
                getattr(log, effect.level)("%s: %s", self.credentials.agent, effect.line)
            case _:
                action, failed = self._deeds_of(effect)
                self._begin(action, failed)

    def _deeds_of(self, effect: Effect) -> tuple[Awaitable[Event], Callable[[str], Event]]:
        """Return the coroutine that answers the effect, and a function that builds the answer after an error."""
        match effect:
            case asked.Apply():
                return self._apply(effect), lambda reason: _apply_failed(effect, "away", reason)
            case asked.Restore():
                return self._restore(effect), lambda reason: told.Restored("", "away", reason)
            case asked.Pull():
                return self._pull(effect), told.PullFailed
            case asked.Prove():
                return self._prove(effect), lambda reason: told.Proved(None)
            case asked.Operate():
                return self._operate(effect), lambda reason: told.Operated(effect.operation, False, {"why": reason})
            case asked.Send():
                return self._reporter.send(), told.SendFailed
        raise AssertionError(f"an effect that nobody does: {effect!r}")

    def _begin(self, action: Awaitable[Event], failed: Callable[[str], Event]) -> None:
        async def done() -> None:
            try:
                event = await action
            except Exception as problem:
                log.exception("%s: it went wrong", self.credentials.agent)
                event = failed(f"{type(problem).__name__}: {problem}"[:300])
            self.tell(event)

        task = asyncio.create_task(done())
        self._deeds.add(task)
        task.add_done_callback(self._deeds.discard)

    async def _on_disk(self, write: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Write to disk, retrying until it succeeds: nothing is sent or forgotten before it is on disk.

        Meanwhile heartbeats report the problem.
        """
        async with self._reporter.spooling:
            while True:
                try:
                    return await asyncio.to_thread(write, *args, **named)
                except OSError as problem:
                    log.error("%s: cannot be written: %s", self.config.home, problem)
                    await self._beat(f"cannot write {self.config.home}: {problem}")
                    await asyncio.sleep(max(DISK_SECONDS, self.machine.cadence_seconds))

    async def _beat(self, reason: str) -> None:
        newest = self._newest.get(told.HolderSeen)
        is_down = isinstance(newest, told.HolderSeen) and newest.state is None
        with self._survived("a heartbeat"):
            await self._reporter.beat(reason, is_down=is_down)

    async def _apply(self, effect: asked.Apply) -> Event:
        began, boot = time.perf_counter(), self.machine.holder.boot if self.machine.holder else ""
        try:
            snapshot = await self.shelf.after(effect)
            await self._tell_clock_first(boot)
            if effect.content is not None:
                await self._hand_over(snapshot, effect.content)
            await self.shelf.put(effect.generation, snapshot)
        except ProtocolError as problem:
            return _apply_failed(effect, "malformed", str(problem))
        except HolderMismatch as problem:
            return _apply_failed(effect, "mismatch", str(problem))
        except HolderRejected as problem:
            return _apply_failed(effect, "rejected", str(problem))
        except (HolderAway, OSError) as problem:
            return _apply_failed(effect, "away", str(problem))
        seconds = time.perf_counter() - began
        self.metrics.applied(effect.generation, seconds)
        return told.Applied(effect.generation, snapshot.hash, boot, seconds)

    async def _hand_over(self, snapshot: Snapshot, news: bytes) -> None:
        """Send the content to the holder.

        If the holder has another base, send the whole snapshot, unless the holder's state could be newer.
        """
        try:
            applied_hash = await self._holder.apply(news)
        except HolderMismatch:
            is_empty = (await self._holder.state()).hash in EMPTY
            if not is_empty and not self.machine.has_pulled:
                raise
            applied_hash = await self._holder.apply(await self.shelf.encoded(snapshot))
        if applied_hash != snapshot.hash:
            raise HolderMismatch(f"it says that it holds {applied_hash}")

    async def _restore(self, effect: asked.Restore) -> Event:
        boot = ""
        try:
            boot = (await self._holder.state()).boot
            await self._tell_clock_first(boot)
            if stored := self.snapshot():
                await self._holder.apply(await self.shelf.encoded(stored))
            if effect.is_draining:
                await self._holder.operate("drain", {})
        except HolderAway as problem:
            return told.Restored(boot, "away", str(problem))
        except HolderError as problem:
            return told.Restored(boot, "rejected", str(problem))
        return told.Restored(boot)

    async def _pull(self, effect: asked.Pull) -> Event:
        try:
            snapshot = await self.link.snapshot(effect.have)
        except (ControlPlaneAway, ControlPlaneRefused) as problem:
            return told.PullFailed(str(problem))
        return told.Pulled(snapshot.generation, snapshot.hash, snapshot.content)

    async def _prove(self, effect: asked.Prove) -> Event:
        try:
            return told.Proved(await self._holder.proofs(effect.boot, effect.after))
        except HolderError:
            return told.Proved(None)

    async def _operate(self, effect: asked.Operate) -> Event:
        try:
            if effect.deed == "rotate_token":
                result: Mapping[str, Any] = await self._rotate_token()
            else:
                if effect.deed == "warm_pins":
                    await self._bring(again=True)
                result = await self._holder.operate(effect.deed, effect.arguments)
        except (HolderAway, ControlPlaneAway) as problem:
            return told.Operated(effect.operation, False, {"why": str(problem)[:300]}, is_away=True)
        except (HolderError, ControlPlaneRefused) as problem:
            return told.Operated(effect.operation, False, {"why": str(problem)[:300]})
        self.look()
        return told.Operated(effect.operation, *operation_outcome(effect.deed, result))

    async def _rotate_token(self) -> Mapping[str, Any]:
        """Save the new token before it is used, because its first use invalidates the old one."""
        answer = await self.link.credentials(rotate=True)
        token = answer.get("token")
        if not isinstance(token, str) or not token:
            return {"ok": False, "why": "the control plane gave no other token"}
        credentials = with_token(self.credentials, token)
        await self._on_disk(credentials_keep, self.config.home, credentials)
        self.credentials, self.link.token = credentials, token
        return {}


def _apply_failed(effect: asked.Apply, kind: told.FailureKind, reason: str) -> Event:
    return told.ApplyFailed(effect.generation, effect.target, kind, reason)


async def _first(until: asyncio.Event, tasks: "list[asyncio.Task[None]]") -> None:
    """Wait for `until`. If one of the `tasks` ends first, raise its error."""
    waiting = asyncio.create_task(until.wait())
    done, _ = await asyncio.wait({waiting, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    for task in done - {waiting}:
        task.result()
