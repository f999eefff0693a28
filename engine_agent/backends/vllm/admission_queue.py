"""The scheduler's queue of waiting requests, in which our waiting room decides which is next. Imports vLLM.

vLLM asks whether a request waits, looks at the first, and takes it. Here a request counts as waiting for vLLM once it
is admitted and so has its blocks and counts. Others wait in the room, and block none of another namespace.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from vllm.v1.core.sched.request_queue import RequestQueue
from vllm.v1.request import Request

from engine_agent.cache.errors import CacheError
from engine_agent.cache.manager import Admitted
from engine_agent.cache.sequences import Sequence
from engine_agent.cache.waiting import WaitingRoom


class AdmissionQueue(RequestQueue):  # type: ignore[misc]
    def __init__(
        self,
        room: WaitingRoom,
        *,
        free_seats: Callable[[], int],
        enter: Callable[[Request], Sequence | None],
        admitted: Callable[[Request, Sequence, Admitted], None],
        refused: Callable[[Request, CacheError], None],
    ) -> None:
        """`enter`: puts a request's sequence into the room; None if it was refused."""
        self._room, self._free_seats = room, free_seats
        self._enter, self._admitted, self._refused = enter, admitted, refused
        self._in_room: dict[Sequence, Request] = {}
        self._sequences: dict[str, Sequence] = {}  # those in the room, by request
        self._front: deque[Request] = deque()  # admitted, not yet taken
        self._held_back: list[Request] = []  # preempted

    def add_request(self, request: Request) -> None:
        sequence = self._enter(request)
        if sequence is not None:
            self._in_room[sequence], self._sequences[request.request_id] = request, sequence

    def pop_request(self) -> Request:
        return self._front.popleft()

    def peek_request(self) -> Request:
        return self._front[0]

    def prepend_request(self, request: Request) -> None:
        """Hold back a preempted request, until its new admission would not immediately cost another its blocks."""
        self._held_back.append(request)

    def let_return(self, may_return: Callable[[Request], bool]) -> None:
        for request in [waiting for waiting in self._held_back if may_return(waiting)]:
            self._held_back.remove(request)
            self.add_request(request)

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        """Put requests back that were skipped in this step and have their blocks."""
        self._front.extendleft(requests)

    def remove_request(self, request: Request) -> None:
        self.remove_requests([request])

    def remove_requests(self, requests: Iterable[Request]) -> None:
        removed_ids = {request.request_id for request in requests}
        for request_id in removed_ids & self._sequences.keys():
            sequence = self._sequences.pop(request_id)
            self._room.withdraw(sequence)
            del self._in_room[sequence]
        self._front = deque(request for request in self._front if request.request_id not in removed_ids)
        self._held_back = [request for request in self._held_back if request.request_id not in removed_ids]

    def __bool__(self) -> bool:
        if not self._front and self._in_room:
            self._admit()
        return bool(self._front)

    def __len__(self) -> int:
        return len(self._front) + len(self._in_room) + len(self._held_back)

    def __iter__(self) -> Iterator[Request]:
        return iter([*self._front, *self._in_room.values(), *self._held_back])

    def _admit(self) -> None:
        """Admit one request at a time: its hits are looked up when the step has tokens left for it, so that it can hit
        blocks computed for the requests before it.
        """
        for sequence, answer in self._room.admit_waiting(seats=min(1, self._free_seats())):
            request = self._in_room.pop(sequence)
            del self._sequences[request.request_id]
            if isinstance(answer, Admitted):
                self._admitted(request, sequence, answer)
                self._front.append(request)
            else:
                self._refused(request, answer)
