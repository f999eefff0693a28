"""One replay: requests at their times through the real block manager, including hashing, index, expiry and eviction.

A request is admitted, filled and released at its arrival, unless answers take time: then it uses its blocks until its
last token, and waits when there is no room.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from heapq import heappop, heappush

from engine_agent.cache.books import CacheLimits
from engine_agent.cache.errors import NeverFits
from engine_agent.cache.manager import Admitted, BlockManager, Deferred
from engine_agent.cache.pool import Arena
from engine_agent.cache.reasons import RUN_SIZE
from engine_agent.cache.sequences import Sequence as Blocks
from engine_agent.tools.replay.namespaces import namespaces_of
from engine_agent.tools.replay.outcome import Moment, Outcome, Tally
from engine_agent.tools.replay.policies import Setup
from engine_agent.tools.replay.tokens import answer_tokens, prompt_tokens
from engine_agent.tools.replay.trace import Request

KV_FORMAT = MODEL = "trace"
ONE_CACHE = "everybody"
OnStep = Callable[[int], None]


class Clock:
    """The trace's time."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(slots=True, eq=False)
class Asked:
    """A waiting or running request."""

    number: int
    request: Request
    blocks: Blocks | None = None  # hashed at its admission
    left: int = 0  # tokens of its answer without room yet
    admissions: int = 0


def replay(requests: Sequence[Request], setup: Setup, *, on_step: OnStep | None = None) -> Outcome:
    """Replay requests, sorted by time. `on_step` is called with the number of arrived requests."""
    began = time.perf_counter()
    run = Run(requests, setup)
    for number, request in enumerate(requests, 1):
        run.arrive(number, request)
        if on_step:
            on_step(number)
    run.finish()
    return Outcome(setup, run.tallies, run.moments, time.perf_counter() - began)


class Run:
    """The manager, with its waiting and running requests."""

    def __init__(self, requests: Sequence[Request], setup: Setup) -> None:
        self.moments: list[Moment] = []
        self._setup = setup
        self._clock = Clock()
        self._arena = _arena(requests, setup)
        self.manager = BlockManager(
            self._arena, clock=self._clock, block_tokens=setup.block_tokens, limits=_limits(requests)
        )
        names = namespaces_of(requests)
        self.tallies = {name: Tally() for name in names}
        self._waiting: dict[str, deque[Asked]] = {}
        for name in [ONE_CACHE] if setup.is_one_cache else names:
            key = sha256(name.encode()).digest()  # only a replay's, so not a secret
            self.manager.set_namespace(name, key=key, epoch=1, policy=setup.policy_of(name))
            self._waiting[name] = deque()
        self._served: dict[tuple[int, int], Asked] = {}  # by number and admission, in the order of admission
        self._due: list[tuple[float, tuple[int, int]]] = []  # the times at which requests have their next tokens

    def arrive(self, number: int, request: Request) -> None:
        self._until(request.at_seconds)
        self._line(request).append(Asked(number, request))
        self._let_in()

    def finish(self) -> None:
        while self._due:
            self._until(self._due[0][0])

    def _space(self, request: Request) -> str:
        return ONE_CACHE if self._setup.is_one_cache else request.namespace

    def _line(self, request: Request) -> deque[Asked]:
        return self._waiting[self._space(request)]

    def _until(self, seconds: float) -> None:
        """Advance the time, and give the room of requests that end meanwhile to waiting ones."""
        while self._due and self._due[0][0] <= seconds:
            at, admission_key = heappop(self._due)
            self._move_clock(at)
            if job := self._served.get(admission_key):
                self._go_on(job)
        self._move_clock(seconds)

    def _move_clock(self, seconds: float) -> None:
        if seconds > self._clock.now:
            self._clock.now = seconds
            self.manager.tick()

    def _let_in(self) -> None:
        """Admit waiting requests by arrival in each namespace. Refuse those that do not fit an idle manager."""
        for line in self._waiting.values():
            while line and self._admit(line.popleft()):
                pass
        for line in self._waiting.values():
            while line and not self._served:
                self._refuse(line.popleft())

    def _admit(self, job: Asked) -> bool:
        """Admit or refuse a request. Return False if it still waits."""
        blocks = job.blocks = job.blocks or self._hashed(job)
        try:
            answer = self.manager.admit(blocks, room_for_tokens=job.left)
        except NeverFits:
            self._refuse(job)
            return True
        if isinstance(answer, Deferred):
            self._line(job.request).appendleft(job)
            return False
        job.admissions += 1
        self._served[job.number, job.admissions] = job
        if job.admissions == 1:
            self._count(job.request, answer)
        self._measure()
        self.manager.fill(blocks, job.request.input_tokens)
        return self._begin_next(job, blocks)

    def _hashed(self, job: Asked) -> Blocks:
        request, setup = job.request, self._setup
        job.left = request.output_tokens if setup.service_seconds_per_token else 0
        tokens = prompt_tokens(request, job.number, setup.block_tokens)
        return self.manager.sequence(self._space(request), tokens, kv_format=KV_FORMAT, model_revision=MODEL)

    def _go_on(self, job: Asked) -> None:
        """Handle the tokens that a request had room for. K and V of the last one are computed with the next token."""
        assert job.blocks is not None
        self.manager.fill(job.blocks, len(job.blocks.tokens) - 1)
        has_ended = not job.left
        self._begin_next(job, job.blocks)
        if has_ended or not self._served:
            self._let_in()

    def _begin_next(self, job: Asked, blocks: Blocks) -> bool:
        """End the request, or allocate its next tokens, up to the end of a block. Return False if it must restart
        later.
        """
        if not job.left:
            self._leave(job)
            return True
        size = self._setup.block_tokens
        count = min(job.left, size - len(blocks.tokens) % size)
        while refused := self.manager.grow(blocks, answer_tokens(job.number, count)):
            if self._preempt(job, refused) is job:
                return job not in self._line(job.request)
        self._measure()
        job.left -= count
        due = self._clock.now + self._setup.service_seconds_per_token * count
        heappush(self._due, (due, (job.number, job.admissions)))
        return True

    def _preempt(self, job: Asked, refused: Deferred) -> Asked:
        """Preempt the latest admitted request to make room for `job`. It will be the first to return."""
        space = self._space(job.request) if refused.reason == "limit" else None
        rivals = [rival for rival in self._served.values() if space in (None, self._space(rival.request))]
        youngest = rivals[-1]
        self._leave(youngest)
        self.tallies[youngest.request.namespace].preemptions += 1
        if len(rivals) > 1:  # otherwise no other request could ever make room for the rest of its answer
            self._line(youngest.request).appendleft(youngest)
        return youngest

    def _leave(self, job: Asked) -> None:
        assert job.blocks is not None
        self.manager.release(job.blocks)
        job.blocks = None
        del self._served[job.number, job.admissions]
        self.manager.take_operations()  # there are no bytes to copy or to zero

    def _refuse(self, job: Asked) -> None:
        if not job.admissions:
            self.tallies[job.request.namespace].refused(job.request.input_tokens)

    def _count(self, request: Request, answer: Admitted) -> None:
        tally = self.tallies[request.namespace]
        matchable = (request.input_tokens - 1) // self._setup.block_tokens * self._setup.block_tokens
        tally.admitted(request.input_tokens, matchable, answer.cached_tokens, answer.miss_reason)
        if (seconds := self._clock.now - request.at_seconds) > 0:
            tally.waited(seconds)

    def _measure(self) -> None:
        resident = self._arena.capacity_bytes - self._arena.free_bytes
        self.moments.append(Moment(self._clock.now, resident))


def _arena(requests: Sequence[Request], setup: Setup) -> Arena:
    """Return an arena with one byte per token, and one slab, so that every block of the pool can be used."""
    size = setup.block_tokens
    room = sum(-(-(request.input_tokens + request.output_tokens) // size) for request in requests)
    blocks = room if setup.pool_tokens is None else max(1, setup.pool_tokens // size)
    return Arena(blocks * size, {KV_FORMAT: size}, slab_bytes=blocks * size)


def _limits(requests: Sequence[Request]) -> CacheLimits:
    """Return limits that never forget a block of the trace, so cold means never seen, and reclaim all that expired."""
    blocks = sum(len(request.hash_ids) for request in requests) + 1
    ghosts = blocks * (1 + RUN_SIZE) * len(namespaces_of(requests))  # shared in equal parts
    return CacheLimits(ghost_blocks=ghosts, event_blocks=1, reclaimed_runs=blocks)
