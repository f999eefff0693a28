"""When blocks stop being: two clocks for each run, and who is due next, found without looking at the pool.

Sliding: an idle run ends `ttl_seconds` after its last release, and any run `max_age_seconds` after its creation.
Absolute: `ttl_seconds` after creation, used or not. A request's own TTL caps either for the runs it created. Nothing
stores a deadline that a policy could change: runs are kept in the order of release and of creation, and a deadline is
that time and what the policy says now. So a new policy holds for the blocks already there, at no cost.
"""

import heapq
import math
from collections.abc import Callable
from typing import Generic, Literal, Protocol, TypeVar

from engine_agent.cache.errors import ClockStandsStill, ClockWentBack, InvalidValue
from engine_agent.cache.index import Run
from engine_agent.cache.policy import NamespacePolicy


class SteadyClock:
    """A clock that may be trusted: it goes on, and never back."""

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
    """When the run stops matching if nothing else happens to it. A pinned run lasts."""
    if run.pins:
        return math.inf
    return min(age_ends(run, policy), math.inf if run.holders else idle_ends(run, policy))


def age_ends(run: Run, policy: NamespacePolicy) -> float:
    """By its first block, which is its oldest; without that one the others cannot match either."""
    seconds = policy.age_seconds()
    return run.created[0] + (min(seconds, run.cap_seconds) if policy.ttl_mode == "absolute" else seconds)


def idle_ends(run: Run, policy: NamespacePolicy) -> float:
    """For a run that nobody uses."""
    return run.released + min(policy.idle_seconds(), run.cap_seconds) if policy.ttl_mode == "sliding" else math.inf


def cap_ends(run: Run, policy: NamespacePolicy) -> float:
    """When the request's own TTL ends what it created; infinity while that clock does not run."""
    if policy.ttl_mode == "absolute":
        return run.created[0] + run.cap_seconds
    return math.inf if run.holders else run.released + run.cap_seconds


class ByTime:
    """Runs of a namespace, each at most once, by when to look at it: never later than its end, perhaps earlier.

    Who takes one out either ends it or puts it back with the time that is true then.
    """

    __slots__ = ("_count", "_heap", "_noted")

    def __init__(self, noted: Literal["age_entry", "cap_entry"]) -> None:
        self._heap: list[tuple[float, int, Run]] = []
        self._count = 0
        self._noted = noted  # where a run says with which time it is here

    def add(self, at: float, run: Run) -> None:
        if at < getattr(run, self._noted):
            setattr(run, self._noted, at)
            self._count += 1
            heapq.heappush(self._heap, (at, self._count, run))

    def first_at(self) -> float:
        return self._heap[0][0] if self._heap else math.inf

    def take_first(self) -> Run | None:
        """The run at the front; none where that entry was void."""
        at, _, run = heapq.heappop(self._heap)
        if getattr(run, self._noted) != at:
            return None
        setattr(run, self._noted, math.inf)
        return run

    def __len__(self) -> int:
        return len(self._heap)

    def tidy(self, runs: int) -> None:
        """Runs that went early leave entries behind. Once those are most of it, they go."""
        if len(self._heap) > 2 * runs + 64:
            kept = []
            for entry in self._heap:
                at, _, run = entry
                if run.is_hollow:
                    setattr(run, self._noted, math.inf)
                elif getattr(run, self._noted) == at:
                    kept.append(entry)
            self._heap = kept
            heapq.heapify(self._heap)

    def clear(self) -> None:
        self._heap.clear()


class Due(Protocol):
    """Somebody who has something to do at a time."""

    due_at: float  # the one appointment that counts; math.inf: none


D = TypeVar("D", bound=Due)


class Appointments(Generic[D]):
    """Whose turn it is next. An appointment is moved forward by making a second one; the later one is then void."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, D]] = []
        self._count = 0
        self._tidy_at = 64
        self.next_at = math.inf

    def make(self, who: D, at: float) -> None:
        if at < who.due_at:
            who.due_at = at
            self._count += 1
            heapq.heappush(self._heap, (at, self._count, who))
            if len(self._heap) > self._tidy_at:
                self._heap = [entry for entry in self._heap if entry[0] == entry[2].due_at]
                heapq.heapify(self._heap)
                self._tidy_at = 2 * len(self._heap) + 64
            self.next_at = min(self.next_at, at)

    def __len__(self) -> int:
        return len(self._heap)

    def take_due(self, now: float) -> D | None:
        """One whose time has come. It makes its next appointment itself."""
        found = None
        while self._heap and found is None and self._heap[0][0] <= now:
            at, _, who = heapq.heappop(self._heap)
            if at == who.due_at:
                who.due_at = math.inf
                found = who
        self.next_at = self._heap[0][0] if self._heap else math.inf
        return found
