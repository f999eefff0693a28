"""Admission: which requests get blocks and a place in the batch, both new and preempted ones.

The waiting room decides between namespaces. This module limits how many answers run at once, records the result of each
admission, and holds preempted requests back until their return cannot cost another request its blocks.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from engine_agent.cache.books import DEVICE, Namespace
from engine_agent.cache.errors import CacheError, NeverFits, UnknownNamespace, WaitingRoomFull
from engine_agent.cache.manager import Admitted, BlockManager
from engine_agent.cache.reasons import MissReason
from engine_agent.cache.sequences import Sequence
from engine_agent.cache.waiting import WaitingRoom
from engine_agent.engine.errors import EngineFailed, Overloaded, Overlong, RequestError, UnknownTenant
from engine_agent.engine.held import Tenant
from engine_agent.engine.outputs import Admission
from engine_agent.engine.request import Request

TAIL = "tail"
UNMOVED: tuple[MissReason, ...] = ("none", "disabled")  # no block was missed, or caching is off
PATIENCE_SECONDS = 5.0  # how long a preempted request is held back at most, whatever others need next
SEAT_SECONDS = 1.0  # how long a namespace without a running request waits before another gives it a seat


class Admissions:
    def __init__(
        self,
        manager: BlockManager,
        *,
        most_running: int,
        most_waiting: int,
        sequence: Callable[[Request, list[int]], Sequence],
        tenant: Callable[[Request], Tenant | None],
    ) -> None:
        self._manager = manager
        self._room = WaitingRoom(manager, most=most_waiting)
        self._most_running = most_running
        self._sequence = sequence
        self._tenant = tenant
        self._in_room: dict[Sequence, Request] = {}
        self._held_back: list[Request] = []
        self.running: dict[Request, None] = {}  # in the order of admission

    @property
    def waiting(self) -> int:
        return len(self._in_room) + len(self._held_back)

    @property
    def answers(self) -> int:
        """Return the number of answers in the batch, or about to be."""
        return sum(request.seats for request in self.running)

    def without_a_seat(self, now: float) -> str | None:
        """Return a namespace that has no running request and has waited long enough, if all seats are taken."""
        if self.answers < self._most_running:
            return None
        seated = {request.namespace for request in self.running}
        unseated = [(since, name) for name, since in self._room.waits() if name not in seated]
        since, name = min(unseated, default=(now, ""))
        return name if now - since >= SEAT_SECONDS else None

    def waiting_requests(self) -> list[Request]:
        return [*self._in_room.values(), *self._held_back]

    def enter(self, request: Request, *, is_known: bool = False) -> None:
        """Put a request into its namespace's line. Raises Overloaded, Overlong."""
        sequence = self._sequence(request, [])
        try:
            self._put(request, sequence, is_known=is_known)
        except (NeverFits, WaitingRoomFull) as problem:
            raise _refusal(request, problem) from problem

    def hold_back(self, request: Request) -> None:
        """Let a preempted request wait again. Its arrival decides its position."""
        self.running.pop(request, None)
        request.state, request.is_ready = "waiting", False
        request.held_since = self._manager.cache.now()
        self._held_back.append(request)

    def can_return(self, request: Request, owner: Namespace) -> bool:
        """Return whether the blocks that a request needs by now could ever be available again."""
        blocks = request.blocks(self._manager.cache.block_tokens)
        return can_return(self._manager, owner, blocks * self._manager.page_bytes(request.kv_format))

    def announce(self, request: Request) -> Admission | None:
        """Mark a request as ready, since all its blocks are loaded. Return its admission if this is the first."""
        request.is_ready = True
        sequence, answer = request.live[0].sequence, request.answer
        if request.admission is not None or sequence is None or answer is None:
            return None
        if request.is_counted:
            self._manager.count(sequence)
        tenant = self._tenant(request)
        request.admission = Admission(
            prompt_tokens=len(request.prompt),
            cached_tokens=answer.cached_tokens,
            kv_dtype=request.kv_format,
            policy_revision=tenant.revision if tenant else 0,
            miss_reason=answer.miss_reason,
            missed=missed_tokens(sequence, answer),
            organisation_id=tenant.organisation_id if tenant else "",
        )
        return request.admission

    def leave(self, request: Request) -> None:
        """Remove the request from the lines and from the running requests."""
        self.running.pop(request, None)
        if request in self._held_back:
            self._held_back.remove(request)
        if request.waiting is not None:
            self._room.withdraw(request.waiting)
            self._in_room.pop(request.waiting, None)
            request.waiting = None

    def admit(self) -> list[tuple[Request, RequestError | None]]:
        """Return the requests that run from now on, and those that never will, with the reason."""
        answered: list[tuple[Request, RequestError | None]] = self._bring_back()
        if not self._in_room:
            return answered
        for sequence, answer in self._room.admit_waiting(seats=self._most_running - self.answers):
            request = self._in_room.pop(sequence)
            request.waiting = None
            if isinstance(answer, Admitted):
                self._run(request, sequence, answer)
                answered.append((request, None))
            else:
                answered.append((request, _refusal(request, answer)))
        return answered

    def _put(self, request: Request, sequence: Sequence, *, is_known: bool) -> None:
        """Submit a request to the waiting room. `is_known`: it waited or ran before, so it is not counted again."""
        room = 0
        if request.params.max_tokens and not request.preemptions:  # each answer has its own last block
            room = request.most_tokens * request.params.n + (request.params.n - 1) * self._manager.cache.block_tokens
        self._room.submit(
            sequence,
            room_for_tokens=room,
            counted=False,  # `announce` counts it when its blocks are loaded
            priority=request.priority,
            since=request.arrived,
            may_admit=False,
            seats=request.seats,
            is_returning=is_known,
            is_patient=not request.is_counted,
        )
        self._in_room[sequence] = request
        request.waiting = sequence

    def _bring_back(self) -> list[tuple[Request, RequestError | None]]:
        """Let preempted requests wait again once they leave others what they need, or were held back long enough."""
        failed: list[tuple[Request, RequestError | None]] = []
        for request in sorted(self._held_back, key=lambda candidate: (candidate.arrived, candidate.place)):
            try:
                request.returning = request.returning or self._sequence(request, request.kept_tokens())
                if not self._may_return(request, request.returning):
                    continue
                self._put(request, request.returning, is_known=True)
            except CacheError as problem:
                failed.append((request, _refusal(request, problem)))
            except RequestError as problem:
                failed.append((request, problem))
            request.returning = None
            self._held_back.remove(request)
        return failed

    def _may_return(self, request: Request, sequence: Sequence) -> bool:
        """Return whether a returning request would leave running ones the blocks they need next."""
        if not self.running or self._manager.cache.now() - request.held_since >= PATIENCE_SECONDS:
            return True
        blocks = request.blocks(self._manager.cache.block_tokens) + self.answers
        runs_own = any(running_request.namespace == request.namespace for running_request in self.running)
        need_bytes = blocks * self._manager.page_bytes(request.kv_format)
        return may_return(self._manager, sequence.owner, need_bytes, runs_own=runs_own)

    def _run(self, request: Request, sequence: Sequence, answer: Admitted) -> None:
        request.state = "running"
        request.live[0].sequence = sequence
        self.running[request] = None
        if request.admission is None:
            request.answer = as_told(answer, request.elsewhere_tokens, sequence.identity.block_tokens)


def as_told(answer: Admitted, elsewhere_tokens: int, block_tokens: int) -> Admitted:
    """Return the admission with the reason "other-agent" if another engine has the first missed block cached."""
    is_elsewhere = answer.cached_tokens + block_tokens <= elsewhere_tokens
    if is_elsewhere and answer.miss_reason not in UNMOVED:
        return replace(answer, miss_reason="other-agent", evicted_by=None)
    return answer


def missed_tokens(sequence: Sequence, answer: Admitted) -> Mapping[str, int]:
    """Return all missed full blocks under the first one's reason, the rest under "tail"."""
    width = sequence.identity.block_tokens
    blocks = (sequence.matchable_blocks - answer.cached_blocks) * width
    tail = len(sequence.tokens) - answer.cached_tokens - blocks
    missed = {str(answer.miss_reason): blocks, TAIL: tail}
    return MappingProxyType({reason: tokens for reason, tokens in missed.items() if tokens})


def can_return(manager: BlockManager, owner: Namespace, need_bytes: int) -> bool:
    """Return whether a namespace could ever have this much again."""
    return need_bytes <= min(owner.accounts[DEVICE].shares.limit_bytes, manager.reachable_bytes(owner))


def may_return(manager: BlockManager, owner: Namespace, need_bytes: int, *, runs_own: bool) -> bool:
    """Return whether this much is available now. `runs_own`: its namespace has other running requests."""
    account = owner.accounts[DEVICE]
    within_limit = account.shares.limit_bytes - account.resident_bytes + account.idle_bytes
    return need_bytes <= manager.room_bytes(account) and (need_bytes <= within_limit or not runs_own)


def refusal(problem: CacheError, *, prompt_tokens: int, is_bounded: bool) -> RequestError:
    """Return the client's error when the block manager rejects its request. `is_bounded`: it set `max_tokens`."""
    if isinstance(problem, NeverFits):
        mib = problem.wanted_bytes / 2**20, problem.most_bytes / 2**20
        shortfall = f"{prompt_tokens:,} tokens and the answer take {mib[0]:,.1f} MiB of {mib[1]:,.1f} MiB"
        return Overlong("max_tokens" if is_bounded else "prompt", shortfall)
    if isinstance(problem, WaitingRoomFull):
        return Overloaded("", f"{problem.value:,} requests wait already: try again in a moment")
    if isinstance(problem, UnknownNamespace):
        return UnknownTenant("", "the namespace is gone")
    return EngineFailed("", f"no blocks: {problem}")


def _refusal(request: Request, problem: CacheError) -> RequestError:
    return refusal(problem, prompt_tokens=len(request.prompt), is_bounded=bool(request.params.max_tokens))
