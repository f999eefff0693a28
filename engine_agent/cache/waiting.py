"""Requests that do not fit now: who waits, and who is next when memory comes free.

In a namespace the lower priority number goes first, and of equals who came first. Between namespaces the one goes
first that uses least for its weight; one that is at its own limit holds up nobody else. A small request may overtake a
large one of another namespace as long as the large one has not waited too long: then nobody overtakes it any more, and
it is served when enough of what runs now has ended. That is asked only for who would then fit; whoever is kept out by
others' pins and reservations waits without holding anybody up.
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
    """Not admitted yet; so many requests of its own namespace go before it."""

    ahead: int


@dataclass(slots=True, eq=False)
class _Place:
    sequence: Sequence
    room_for_tokens: int
    counted: bool
    priority: int
    since: float
    refused: Deferred | None = None  # what it was told last, and
    seen: tuple[int, int] = (
        0,
        0,
    )  # the room there was then, and what its namespace had cached: the same, the same answer
    seats: int = 1
    lacks_seats: bool = False
    is_patient: bool = False

    @property
    def turn(self) -> tuple[int, float]:
        """Where in its namespace's line it stands."""
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
        """Admit it, or let it wait. Raises NeverFits, and WaitingRoomFull when as many wait as may. Without `may_admit`
        it waits for `admit_waiting` in any case.

        `seats`: how many of those it takes that `admit_waiting` may give. `is_returning`: it ran before, so there is
        always room for it to wait. `is_patient`: it never holds up others, however long it waits.

        `priority` counts within its namespace, the lower goes first. `since`: when it came, if it ran before and had
        to stop. For `counted` see `BlockManager.admit`.
        """
        now = self._manager.cache.now()
        if sequence.state != "new" or sequence in self._places:
            raise SequenceReleased("waiting" if sequence.state == "new" else sequence.state, verb="submit")
        self._manager.check_fits(sequence, room_for_tokens)
        name = sequence.namespace
        line = self._lines.get(name, [])
        since = now if since is None else since
        place = _Place(sequence, room_for_tokens, counted, priority, since, seats=seats, is_patient=is_patient)
        ahead = bisect_right(line, place.turn, key=lambda other: other.turn)
        if may_admit and not ahead and not self._held_up_by(now, besides=name):
            answer = self._try(place)
            if isinstance(answer, Admitted):
                return answer
        if len(self._places) >= self._most and not is_returning:
            raise WaitingRoomFull(len(self._places))
        self._lines.setdefault(name, line).insert(ahead, place)
        self._places[sequence] = place
        return Waiting(ahead)

    def admit_waiting(self, *, seats: int | None = None) -> list[tuple[Sequence, Admitted | CacheError]]:
        """Whoever fits now, in the order they may run, and whoever cannot any more, with the reason: its namespace is
        gone, or has a policy now under which it never fits. For after each release and each tick. Those admitted take
        no more than `seats` together.
        """
        now = self._manager.cache.now()
        answered: list[tuple[Sequence, Admitted | CacheError]] = []
        self._seats = math.inf if seats is None else max(0, seats)
        while place := self._held_up_by(now):
            if not self._serve(place, answered):
                return answered + self._seatless()
        turns = [(self._use_for_weight(name), name) for name in self._lines]
        heapq.heapify(turns)
        while turns:
            _, name = heapq.heappop(turns)
            if self._serve(self._lines[name][0], answered) and name in self._lines:
                heapq.heappush(turns, (self._use_for_weight(name), name))
        return answered

    def waits(self) -> list[tuple[str, float]]:
        """Each namespace in which somebody waits, and since when the first of its line does."""
        return [(name, line[0].since) for name, line in self._lines.items()]

    def _seatless(self) -> list[tuple[Sequence, Admitted | CacheError]]:
        """Those who take no seat are held up by nobody: the engine's own, which are small."""
        answered: list[tuple[Sequence, Admitted | CacheError]] = []
        for line in list(self._lines.values()):
            if not line[0].seats:
                self._serve(line[0], answered)
        return answered

    def withdraw(self, sequence: Sequence) -> bool:
        """Its client has left. Whether it was still waiting."""
        place = self._places.get(sequence)
        if place:
            self._leave(place)
        return place is not None

    def _serve(self, place: _Place, answered: list[tuple[Sequence, Admitted | CacheError]]) -> bool:
        """Whether it need not wait any longer."""
        answer: Admitted | Deferred | CacheError
        is_known = self._manager.is_known(place.sequence.owner)
        if is_known and place.seats > self._seats:
            place.lacks_seats = True
            return False
        if is_known and place.refused and self._seen(place) == place.seen:
            return False
        try:
            answer = self._try(place)
        except CacheError as problem:
            answer = problem
        if isinstance(answer, Deferred):
            return False
        self._leave(place)
        answered.append((place.sequence, answer))
        if isinstance(answer, Admitted):
            self._seats -= place.seats
        return True

    def _try(self, place: _Place) -> Admitted | Deferred:
        answer = self._manager.admit(place.sequence, room_for_tokens=place.room_for_tokens, counted=place.counted)
        if isinstance(answer, Deferred):
            place.refused = answer
            place.seen = self._seen(place)
            place.is_patient |= self._manager.runs_nothing  # whose end would bring nothing
        place.lacks_seats = False
        return answer

    def _seen(self, place: _Place) -> tuple[int, int]:
        """What an answer depends on: the room of the kind that was short, and what a prompt might find."""
        owner = place.sequence.owner
        account = owner.accounts[DEVICE]
        room_bytes = self._manager.room_bytes(account)
        if place.refused and place.refused.reason == "limit":
            room_bytes = account.shares.limit_bytes - account.resident_bytes + account.idle_bytes
        return room_bytes, owner.counters.inserted_blocks + owner.epoch

    def _use_for_weight(self, name: str) -> float:
        account = self._lines[name][0].sequence.owner.accounts[DEVICE]
        return (account.resident_bytes - account.idle_bytes) / account.shares.weight

    def _held_up_by(self, now: float, *, besides: str = "") -> _Place | None:
        """Whom nobody may overtake any more: who has waited longest of those that have waited too long. In its own
        line a request goes before whom its priority says.
        """
        latest = now - self._patience_seconds
        late = [line[0] for name, line in self._lines.items() if name != besides and line[0].since <= latest]
        late = [place for place in late if not place.is_patient and (place.refused or place.lacks_seats)]
        if not late:
            return None
        kept_bytes = self._manager.kept_bytes()
        return next((one for one in sorted(late, key=lambda one: one.since) if self._would_fit(one, kept_bytes)), None)

    def _would_fit(self, place: _Place, kept_bytes: int) -> bool:
        """Whether seats or the pool, not its own limit, keep it out, and would not once all that runs has ended."""
        if place.lacks_seats:
            return True
        if place.refused is None or place.refused.reason != "pool":
            return False
        sequence, manager = place.sequence, self._manager
        need_bytes = manager.need_bytes(sequence) - manager.pinned_hit_bytes(sequence)
        return need_bytes <= manager.reachable_bytes(sequence.owner, kept_bytes=kept_bytes)

    def _leave(self, place: _Place) -> None:
        name = place.sequence.namespace
        line = self._lines[name]
        line.remove(place)
        del self._places[place.sequence]
        if not line:
            del self._lines[name]
