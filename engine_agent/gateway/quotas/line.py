"""The order of the queue for engines that are full. Pure.

Between organisations the order is fair by the turns each has had (start-time fair queueing): the next turn goes to the
one that has had least since it began to wait. Unused turns cannot be saved. Within an organisation the order is first
come, first served. Requests for one set of engines (a lane) do not block other lanes.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field

MOST_WAITING, MOST_EACH = 1_000, 200  # in total, and per organisation


class LineFull(Exception):
    """There is no room to wait: the organisation's part is full (`is_own`), or the whole queue."""

    def __init__(self, *, is_own: bool) -> None:
        self.is_own = is_own
        super().__init__()


@dataclass(eq=False, slots=True)
class Turn:
    """One waiting request."""

    who: str
    lane: Hashable
    cost: float
    number: int


@dataclass(slots=True)
class _Queue:
    """The waiting requests of one organisation."""

    tag: float  # the virtual time of its next turn
    lanes: dict[Hashable, dict[Turn, None]] = field(default_factory=dict)
    count: int = 0

    def firsts(self) -> Iterator[Turn]:
        return iter(sorted((next(iter(lane)) for lane in self.lanes.values()), key=lambda turn: turn.number))

    def last(self) -> Turn:
        return max((next(reversed(lane)) for lane in self.lanes.values()), key=lambda turn: turn.number)


class Line:
    def __init__(self, most: int = MOST_WAITING, most_each: int = MOST_EACH) -> None:
        self._most, self._most_each = most, most_each
        self._queues: dict[str, _Queue] = {}
        self._served: dict[str, float] = {}  # virtual time of the next turn, of organisations that no longer wait
        self._now = 0.0  # the virtual time of the latest turn
        self._count = self._numbers = 0

    def __len__(self) -> int:
        return self._count

    def waiting(self, organisation: str) -> int:
        return self._queues[organisation].count if organisation in self._queues else 0

    def is_waited_for(self, lane: Hashable) -> bool:
        return any(lane in queue.lanes for queue in self._queues.values())

    def join(self, organisation: str, lane: Hashable, cost: float = 1.0) -> tuple[Turn, Turn | None]:
        """Return the turn, and any it displaced: if all is full, the last of the longest queue. Raise LineFull."""
        if self.waiting(organisation) >= self._most_each:
            raise LineFull(is_own=True)
        displaced = self._pushed_out(organisation) if self._count >= self._most else None
        queue = self._queues.get(organisation)
        if queue is None:
            queue = self._queues[organisation] = _Queue(max(self._now, self._served.pop(organisation, 0.0)))
        self._numbers += 1
        turn = Turn(organisation, lane, cost, self._numbers)
        queue.lanes.setdefault(lane, {})[turn] = None
        queue.count, self._count = queue.count + 1, self._count + 1
        return turn, displaced

    def leave(self, turn: Turn) -> None:
        """Remove a turn without a trace, if it is still in the queue."""
        queue = self._queues.get(turn.who)
        lane = queue.lanes.get(turn.lane) if queue else None
        if queue is None or lane is None or turn not in lane:
            return
        del lane[turn]
        if not lane:
            del queue.lanes[turn.lane]
        queue.count, self._count = queue.count - 1, self._count - 1
        if not queue.count:
            del self._queues[turn.who]
            self._remember(turn.who, queue.tag)
        if not self._count:  # with nobody waiting, past turns no longer matter
            self._served.clear()

    def next(self, admits: Callable[[Turn], bool]) -> Iterator[Turn]:
        """Yield the turns in order, as long as `admits` accepts one. A lane whose first turn is not admitted is not
        tried again.
        """
        full: set[Hashable] = set()
        while (turn := self._first(admits, full)) is not None:
            queue = self._queues[turn.who]
            self._now = max(self._now, queue.tag)
            queue.tag = self._now + turn.cost
            self.leave(turn)
            yield turn

    def _remember(self, organisation: str, tag: float) -> None:
        if len(self._served) >= self._most:
            self._served = {organisation: tag for organisation, tag in self._served.items() if tag > self._now}
        if tag > self._now:
            self._served[organisation] = tag

    def _first(self, admits: Callable[[Turn], bool], full: set[Hashable]) -> Turn | None:
        for queue in sorted(self._queues.values(), key=lambda queue: max(queue.tag, self._now)):
            for turn in queue.firsts():
                if turn.lane in full:
                    continue
                if admits(turn):
                    return turn
                full.add(turn.lane)
        return None

    def _pushed_out(self, organisation: str) -> Turn:
        longest = max(self._queues.values(), key=lambda queue: queue.count)
        if self.waiting(organisation) + 1 >= longest.count:
            raise LineFull(is_own=False)
        displaced = longest.last()
        self.leave(displaced)
        return displaced
