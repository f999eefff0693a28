"""Expiry: two clocks for each run, and queues that find the next due run without a scan of the pool.

Sliding: an idle run ends `ttl_seconds` after its last release, and any run `max_age_seconds` after its creation.
Absolute: `ttl_seconds` after creation, used or not. A request's own TTL caps both for the runs it created. No deadline
is stored that a policy could change: runs are sorted by release and by creation, and a deadline is computed from that
time and the current policy. So a new policy applies to existing blocks at no cost.
"""

import heapq
import math
from collections.abc import Callable
from typing import Generic, Literal, Protocol, TypeVar

from engine_agent.cache.errors import ClockStandsStill, ClockWentBack, InvalidValue
from engine_agent.cache.index import Run
from engine_agent.cache.policy import NamespacePolicy


class SteadyClock:
    """A checked clock: raises if the time goes back or stands still."""

    def __init__(self, read: Callable[[], float], *, still_readings: int) -> None:
        self._read = read
        self._most_still = still_readings
        self._still = 0
        self._last = -math.inf

    def __call__(self) -> float:
        now = self._read()
        if type(now) is not float and type(now) is not int:
            raise InvalidValue("clock", type(now).__name__, "seconds")
        if now > self._last:
            if now == math.inf:
                raise ClockStandsStill(now, steps=1)
            self._last, self._still = now, 0
        elif now < self._last:
            raise ClockWentBack(last_seconds=self._last, found_seconds=now)
        else:
            self._still += 1
            if self._still > self._most_still or math.isnan(now):
                raise ClockStandsStill(now, steps=self._still)
        return now


def life_ends(run: Run, policy: NamespacePolicy) -> float:
    """Return when the run stops matching if nothing else happens to it. A pinned run does not expire."""
    if run.pins:
        return math.inf
    return min(age_ends(run, policy), math.inf if run.holders else idle_ends(run, policy))


def age_ends(run: Run, policy: NamespacePolicy) -> float:
    """Return when the maximum age ends the run: that of its first block, the oldest, which the others need to match."""
    seconds = policy.age_seconds()
    return run.created[0] + (min(seconds, run.cap_seconds) if policy.ttl_mode == "absolute" else seconds)


def idle_ends(run: Run, policy: NamespacePolicy) -> float:
    """Return when the sliding TTL ends a run that no sequence uses."""
    return run.released + min(policy.idle_seconds(), run.cap_seconds) if policy.ttl_mode == "sliding" else math.inf


def cap_ends(run: Run, policy: NamespacePolicy) -> float:
    """Return when the request's own TTL ends the run it created; infinity while that clock does not run."""
    if policy.ttl_mode == "absolute":
        return run.created[0] + run.cap_seconds
    return math.inf if run.holders else run.released + run.cap_seconds


class ByTime:
    """Runs of a namespace, each at most once, by the time of their next check, which is never later than their end.

    The caller that takes a run out either ends it or puts it back with its updated time.
    """

    __slots__ = ("_count", "_heap", "_noted")

    def __init__(self, attribute: Literal["age_entry", "cap_entry"]) -> None:
        self._heap: list[tuple[float, int, Run]] = []
        self._count = 0
        self._noted = attribute  # the attribute of a run that holds its time in this queue

    def add(self, at: float, run: Run) -> None:
        if at < getattr(run, self._noted):
            setattr(run, self._noted, at)
            self._count += 1
            heapq.heappush(self._heap, (at, self._count, run))

    def first_at(self) -> float:
        return self._heap[0][0] if self._heap else math.inf

    def take_first(self) -> Run | None:
        """Return the first run, or None if its entry is out of date."""
        at, _, run = heapq.heappop(self._heap)
        if getattr(run, self._noted) != at:
            return None
        setattr(run, self._noted, math.inf)
        return run

    def __len__(self) -> int:
        return len(self._heap)

    def tidy(self, runs: int) -> None:
        """Drop out-of-date entries, which runs that ended early leave behind, once they are the majority."""
        if len(self._heap) > 2 * runs + 64:
            current_entries = []
            for entry in self._heap:
                at, _, run = entry
                if run.is_hollow:
                    setattr(run, self._noted, math.inf)
                elif getattr(run, self._noted) == at:
                    current_entries.append(entry)
            self._heap = current_entries
            heapq.heapify(self._heap)

    def clear(self) -> None:
        self._heap.clear()


class Due(Protocol):
    """An object with a timer."""

    due_at: float  # the one timer that counts; math.inf: none


D = TypeVar("D", bound=Due)


class Appointments(Generic[D]):
    """Timers, earliest first. To move a timer forward, set a second one; the later one is then void."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, D]] = []
        self._count = 0
        self._tidy_at = 64
        self.next_at = math.inf

    def make(self, owner: D, at: float) -> None:
        if at < owner.due_at:
            owner.due_at = at
            self._count += 1
            heapq.heappush(self._heap, (at, self._count, owner))
            if len(self._heap) > self._tidy_at:
                self._heap = [entry for entry in self._heap if entry[0] == entry[2].due_at]
                heapq.heapify(self._heap)
                self._tidy_at = 2 * len(self._heap) + 64
            self.next_at = min(self.next_at, at)

    def __len__(self) -> int:
        return len(self._heap)

    def take_due(self, now: float) -> D | None:
        """Return an object whose timer is due, or None. The object sets its next timer itself."""
        due_owner = None
        while self._heap and due_owner is None and self._heap[0][0] <= now:
            at, _, owner = heapq.heappop(self._heap)
            if at == owner.due_at:
                owner.due_at = math.inf
                due_owner = owner
        self.next_at = self._heap[0][0] if self._heap else math.inf
        return due_owner
