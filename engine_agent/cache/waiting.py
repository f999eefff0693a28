"""Requests that do not fit now: who waits, and who is next when memory comes free.

In a namespace first come, first served. Between namespaces the one goes first that uses least for its weight; one that
is at its own limit holds up nobody else. A small request may overtake a large one as long as the large one has not
waited too long: then nobody overtakes it any more, and it is served when enough of what runs now has ended. That is
asked only for who would then fit; whoever is kept out by others' pins and reservations waits without holding anybody
up.
"""

import heapq
from collections import deque
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
    since: float
    refused: Deferred | None = None  # what it was told last, and
    seen: tuple[int, int] = (
        0,
        0,
    )  # the room there was then, and what its namespace had cached: the same, the same answer


class WaitingRoom:
    def __init__(self, manager: BlockManager, *, most: int = 10_000, patience_seconds: float = 5.0) -> None:
        if type(most) is not int or most < 1:
            raise InvalidValue("most", most, "a whole number above 0")
        if type(patience_seconds) not in (int, float) or not patience_seconds >= 0:
            raise InvalidValue("patience_seconds", patience_seconds, "seconds, 0 or more")
        self._manager = manager
        self._most = most
        self._patience_seconds = patience_seconds
        self._lines: dict[str, deque[_Place]] = {}
        self._places: dict[Sequence, _Place] = {}

    def __len__(self) -> int:
        return len(self._places)

    def submit(self, sequence: Sequence, *, room_for_tokens: int = 0) -> Admitted | Waiting:
        """Admit it, or let it wait. Raises NeverFits, and WaitingRoomFull when as many wait as may."""
        now = self._manager.cache.now()
        if sequence.state != "new" or sequence in self._places:
            raise SequenceReleased("waiting" if sequence.state == "new" else sequence.state, verb="submit")
        self._manager.check_fits(sequence, room_for_tokens)
        line = self._lines.get(sequence.namespace)
        place = _Place(sequence, room_for_tokens, now)
        if not line and not self._held_up_by(now):
            answer = self._try(place)
            if isinstance(answer, Admitted):
                return answer
        if len(self._places) >= self._most:
            raise WaitingRoomFull(len(self._places))
        ahead = len(line or ())
        self._lines.setdefault(sequence.namespace, deque()).append(place)
        self._places[sequence] = place
        return Waiting(ahead)

    def admit_waiting(self) -> list[tuple[Sequence, Admitted | CacheError]]:
        """Whoever fits now, in the order they may run, and whoever cannot any more, with the reason: its namespace is
        gone, or has a policy now under which it never fits. For after each release and each tick.
        """
        now = self._manager.cache.now()
        answered: list[tuple[Sequence, Admitted | CacheError]] = []
        while place := self._held_up_by(now):
            if not self._serve(place, answered):
                return answered
        turns = [(self._use_for_weight(name), name) for name in self._lines]
        heapq.heapify(turns)
        while turns:
            _, name = heapq.heappop(turns)
            if self._serve(self._lines[name][0], answered) and name in self._lines:
                heapq.heappush(turns, (self._use_for_weight(name), name))
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
        if place.refused and self._seen(place) == place.seen:
            return False
        try:
            answer = self._try(place)
        except CacheError as problem:
            answer = problem
        if isinstance(answer, Deferred):
            return False
        self._leave(place)
        answered.append((place.sequence, answer))
        return True

    def _try(self, place: _Place) -> Admitted | Deferred:
        answer = self._manager.admit(place.sequence, room_for_tokens=place.room_for_tokens)
        if isinstance(answer, Deferred):
            place.refused = answer
            place.seen = self._seen(place)
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

    def _held_up_by(self, now: float) -> _Place | None:
        """Whom nobody may overtake any more: who has waited longest of those that have waited too long."""
        heads = (line[0] for line in self._lines.values())
        late = [place for place in heads if now - place.since >= self._patience_seconds and self._would_fit(place)]
        return min(late, key=lambda place: place.since, default=None)

    def _would_fit(self, place: _Place) -> bool:
        """Whether the pool, not its own limit, keeps it out, and would not once all that runs has ended."""
        if place.refused is None or place.refused.reason != "pool":
            return False
        sequence = place.sequence
        return self._manager.need_bytes(sequence) <= self._manager.reachable_bytes(sequence.owner)

    def _leave(self, place: _Place) -> None:
        name = place.sequence.namespace
        line = self._lines[name]
        line.remove(place)
        del self._places[place.sequence]
        if not line:
            del self._lines[name]
