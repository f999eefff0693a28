"""Whose turn it is where engines are full. Pure.

Between organisations it is fair by what each has been given (start-time fair queueing): of those who wait, the one goes
next that had least since it began to wait. Whoever was not able to use a turn saves none up. Within an organisation the
first is first. Who waits for one set of engines (a lane) keeps nobody from another.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field

MOST_WAITING, MOST_EACH = 1_000, 200  # in all, and of one organisation


class LineFull(Exception):
    """No room to wait for `whose`: its own part is full (`is_own`), or everything is."""

    def __init__(self, *, is_own: bool) -> None:
        self.is_own = is_own
        super().__init__()


@dataclass(eq=False, slots=True)
class Turn:
    """One who waits."""

    who: str
    lane: Hashable
    cost: float
    number: int


@dataclass(slots=True)
class _Queue:
    """Of one organisation."""

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
        self._served: dict[str, float] = {}  # of those who wait no more: when their next turn would have been
        self._now = 0.0  # virtual: the turn that was given last
        self._count = self._numbers = 0

    def __len__(self) -> int:
        return self._count

    def waiting(self, who: str) -> int:
        return self._queues[who].count if who in self._queues else 0

    def is_waited_for(self, lane: Hashable) -> bool:
        return any(lane in queue.lanes for queue in self._queues.values())

    def join(self, who: str, lane: Hashable, cost: float = 1.0) -> tuple[Turn, Turn | None]:
        """Its turn, and who had to go for it: where all is full, the newest of whoever has most. Raises LineFull."""
        if self.waiting(who) >= self._most_each:
            raise LineFull(is_own=True)
        out = self._pushed_out(who) if self._count >= self._most else None
        queue = self._queues.get(who)
        if queue is None:
            queue = self._queues[who] = _Queue(max(self._now, self._served.pop(who, 0.0)))
        self._numbers += 1
        turn = Turn(who, lane, cost, self._numbers)
        queue.lanes.setdefault(lane, {})[turn] = None
        queue.count, self._count = queue.count + 1, self._count + 1
        return turn, out

    def leave(self, turn: Turn) -> None:
        """Without a trace. Whoever is not in it any more may leave again."""
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
        if not self._count:  # nobody is kept waiting by what was
            self._served.clear()

    def next(self, admits: Callable[[Turn], bool]) -> Iterator[Turn]:
        """Whose turns it is, one after the other, as long as somebody can use one. A lane of which one could not is not
        tried again.
        """
        full: set[Hashable] = set()
        while (turn := self._first(admits, full)) is not None:
            queue = self._queues[turn.who]
            self._now = max(self._now, queue.tag)
            queue.tag = self._now + turn.cost
            self.leave(turn)
            yield turn

    def _remember(self, who: str, tag: float) -> None:
        if len(self._served) >= self._most:
            self._served = {one: until for one, until in self._served.items() if until > self._now}
        if tag > self._now:
            self._served[who] = tag

    def _first(self, admits: Callable[[Turn], bool], full: set[Hashable]) -> Turn | None:
        for queue in sorted(self._queues.values(), key=lambda one: max(one.tag, self._now)):
            for turn in queue.firsts():
                if turn.lane in full:
                    continue
                if admits(turn):
                    return turn
                full.add(turn.lane)
        return None

    def _pushed_out(self, who: str) -> Turn:
        longest = max(self._queues.values(), key=lambda one: one.count)
        if self.waiting(who) + 1 >= longest.count:
            raise LineFull(is_own=False)
        out = longest.last()
        self.leave(out)
        return out
