"""The waiting room: requests that do not fit now, and which of them is next when memory becomes free.

In a namespace, the lower priority number goes first, and among equals the request that came first. Between namespaces,
the one with the lowest use for its weight goes first; one that is at its own limit blocks no other. A small request may
overtake a large one of another namespace until the large one has waited too long. Then nothing overtakes it any more,
and it is served when enough running sequences have ended. Only a request that would then fit gets this protection; one
that is kept out by others' pins and reservations waits without blocking others.
"""

import heapq
import math
from bisect import bisect_right
from dataclasses import dataclass

from engine_agent.cache.books import DEVICE
from engine_agent.cache.errors import CacheError, InvalidValue, SequenceReleased, WaitingRoomFull
from engine_agent.cache.manager import Admitted, BlockManager, Deferred
from engine_agent.cache.sequences import Sequence


@dataclass(frozen=True, slots=True)
class Waiting:
    """Not admitted yet; `ahead` requests of its own namespace are before it."""

    ahead: int


@dataclass(slots=True, eq=False)
class _Place:
    sequence: Sequence
    room_for_tokens: int
    counted: bool
    priority: int
    since: float
    refused: Deferred | None = None  # the last answer
    seen: tuple[int, int] = (
        0,
        0,
    )  # (room, cached blocks) at that answer: while they are the same, so is the answer
    seats: int = 1
    lacks_seats: bool = False
    is_patient: bool = False

    @property
    def turn(self) -> tuple[int, float]:
        """Return the sort key of the request in its namespace's line."""
        return self.priority, self.since


class WaitingRoom:
    def __init__(self, manager: BlockManager, *, most: int = 10_000, patience_seconds: float = 5.0) -> None:
        if type(most) is not int or most < 1:
            raise InvalidValue("most", most, "a whole number above 0")
        if type(patience_seconds) not in (int, float) or not patience_seconds >= 0:
            raise InvalidValue("patience_seconds", patience_seconds, "seconds, 0 or more")
        self._manager = manager
        self._most = most
        self._patience_seconds = patience_seconds
        self._lines: dict[str, list[_Place]] = {}
        self._places: dict[Sequence, _Place] = {}
        self._seats: float = math.inf  # left in this round

    def __len__(self) -> int:
        return len(self._places)

    def submit(
        self,
        sequence: Sequence,
        *,
        room_for_tokens: int = 0,
        counted: bool = True,
        priority: int = 0,
        since: float | None = None,
        may_admit: bool = True,
        seats: int = 1,
        is_returning: bool = False,
        is_patient: bool = False,
    ) -> Admitted | Waiting:
        """Admit the request, or let it wait.

        Raises NeverFits, and WaitingRoomFull when the maximum number of requests waits. Without `may_admit` it always
        waits for `admit_waiting`. `seats`: how many of the seats of `admit_waiting` it takes. `is_returning`: it ran
        before, so it may always wait. `is_patient`: it never blocks others, however long it waits. `priority` counts
        within its namespace; the lower goes first. `since`: when it came, if it ran before and was stopped. For
        `counted` see `BlockManager.admit`.
        """
        now = self._manager.cache.now()
        if sequence.state != "new" or sequence in self._places:
            raise SequenceReleased("waiting" if sequence.state == "new" else sequence.state, verb="submit")
        self._manager.check_fits(sequence, room_for_tokens)
        name = sequence.namespace
        line = self._lines.get(name, [])
        since = now if since is None else since
        entry = _Place(sequence, room_for_tokens, counted, priority, since, seats=seats, is_patient=is_patient)
        ahead = bisect_right(line, entry.turn, key=lambda queued: queued.turn)
        if may_admit and not ahead and not self._held_up_by(now, besides=name):
            answer = self._try(entry)
            if isinstance(answer, Admitted):
                return answer
        if len(self._places) >= self._most and not is_returning:
            raise WaitingRoomFull(len(self._places))
        self._lines.setdefault(name, line).insert(ahead, entry)
        self._places[sequence] = entry
        return Waiting(ahead)

    def admit_waiting(self, *, seats: int | None = None) -> list[tuple[Sequence, Admitted | CacheError]]:
        """Admit the requests that fit now, in order, and reject those that never can, with the reason.

        A request can never fit when its namespace is removed or has a new policy that is too small for it. Call this
        after each release and each tick. The admitted requests take at most `seats` in total.
        """
        now = self._manager.cache.now()
        answered: list[tuple[Sequence, Admitted | CacheError]] = []
        self._seats = math.inf if seats is None else max(0, seats)
        while entry := self._held_up_by(now):
            if not self._serve(entry, answered):
                return answered + self._seatless()
        turns = [(self._use_for_weight(name), name) for name in self._lines]
        heapq.heapify(turns)
        while turns:
            _, name = heapq.heappop(turns)
            if self._serve(self._lines[name][0], answered) and name in self._lines:
                heapq.heappush(turns, (self._use_for_weight(name), name))
        return answered

    def waits(self) -> list[tuple[str, float]]:
        """Return each namespace with a waiting request, and since when the first of its line waits."""
        return [(name, line[0].since) for name, line in self._lines.items()]

    def _seatless(self) -> list[tuple[Sequence, Admitted | CacheError]]:
        """Serve requests that take no seat, which nothing blocks: the engine's own, which are small."""
        answered: list[tuple[Sequence, Admitted | CacheError]] = []
        for line in list(self._lines.values()):
            if not line[0].seats:
                self._serve(line[0], answered)
        return answered

    def withdraw(self, sequence: Sequence) -> bool:
        """Remove a request whose client has left. Return whether it was still waiting."""
        entry = self._places.get(sequence)
        if entry:
            self._leave(entry)
        return entry is not None

    def _serve(self, entry: _Place, answered: list[tuple[Sequence, Admitted | CacheError]]) -> bool:
        """Try to admit or reject a waiting request, and return whether it has left the line."""
        answer: Admitted | Deferred | CacheError
        is_known = self._manager.is_known(entry.sequence.owner)
        if is_known and entry.seats > self._seats:
            entry.lacks_seats = True
            return False
        if is_known and entry.refused and self._seen(entry) == entry.seen:
            return False
        try:
            answer = self._try(entry)
        except CacheError as problem:
            answer = problem
        if isinstance(answer, Deferred):
            return False
        self._leave(entry)
        answered.append((entry.sequence, answer))
        if isinstance(answer, Admitted):
            self._seats -= entry.seats
        return True

    def _try(self, entry: _Place) -> Admitted | Deferred:
        answer = self._manager.admit(entry.sequence, room_for_tokens=entry.room_for_tokens, counted=entry.counted)
        if isinstance(answer, Deferred):
            entry.refused = answer
            entry.seen = self._seen(entry)
            entry.is_patient |= self._manager.runs_nothing  # when nothing runs, no end of a sequence can free memory
        entry.lacks_seats = False
        return answer

    def _seen(self, entry: _Place) -> tuple[int, int]:
        """Return the values that determine the answer: the room of the kind that was short, and what the prompt may
        match.
        """
        owner = entry.sequence.owner
        account = owner.accounts[DEVICE]
        room_bytes = self._manager.room_bytes(account)
        if entry.refused and entry.refused.reason == "limit":
            room_bytes = account.shares.limit_bytes - account.resident_bytes + account.idle_bytes
        return room_bytes, owner.counters.inserted_blocks + owner.epoch

    def _use_for_weight(self, name: str) -> float:
        account = self._lines[name][0].sequence.owner.accounts[DEVICE]
        return (account.resident_bytes - account.idle_bytes) / account.shares.weight

    def _held_up_by(self, now: float, *, besides: str = "") -> _Place | None:
        """Return the request that nothing may overtake: the one that has waited longest, and too long.

        In its own line, a request still goes before those with a higher priority number.
        """
        latest = now - self._patience_seconds
        overdue = [line[0] for name, line in self._lines.items() if name != besides and line[0].since <= latest]
        overdue = [entry for entry in overdue if not entry.is_patient and (entry.refused or entry.lacks_seats)]
        if not overdue:
            return None
        kept_bytes = self._manager.kept_bytes()
        return next(
            (entry for entry in sorted(overdue, key=lambda entry: entry.since) if self._would_fit(entry, kept_bytes)),
            None,
        )

    def _would_fit(self, entry: _Place, kept_bytes: int) -> bool:
        """Return whether seats or the pool, not its own limit, keep a request out until running sequences end."""
        if entry.lacks_seats:
            return True
        if entry.refused is None or entry.refused.reason != "pool":
            return False
        sequence, manager = entry.sequence, self._manager
        need_bytes = manager.need_bytes(sequence) - manager.pinned_hit_bytes(sequence)
        return need_bytes <= manager.reachable_bytes(sequence.owner, kept_bytes=kept_bytes)

    def _leave(self, entry: _Place) -> None:
        name = entry.sequence.namespace
        line = self._lines[name]
        line.remove(entry)
        del self._places[entry.sequence]
        if not line:
            del self._lines[name]
