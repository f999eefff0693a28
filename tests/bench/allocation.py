"""Memory of the requests in flight, minute by minute: in the block manager's pages, and reserved in one piece each.

A step is one token for every request in flight. Prefix caching is off, so that no page counts for two requests and none
is kept for later: what is compared is how memory is handed out, not what is in it.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from engine_agent.cache.manager import Admitted, BlockManager
from engine_agent.cache.policy import NamespacePolicy
from engine_agent.cache.pool import Arena
from engine_agent.cache.sequences import Sequence as Blocks
from engine_agent.tools.replay.running import KV_FORMAT, MODEL, Clock
from engine_agent.tools.replay.tokens import prompt_tokens
from engine_agent.tools.replay.trace import Request

STEP_SECONDS = 0.02
STEPS_A_SAMPLE = 50
SAMPLES_A_MINUTE = round(60 / STEP_SECONDS / STEPS_A_SAMPLE)
PAGE_TOKENS = 16
POOL_TOKENS = 2**26  # more than is ever in flight: nobody waits, so both ways of allocating serve the same requests
NAMESPACE = "trace"
KEY = bytes(32)
Sizes = Mapping[str, Callable[[Request], int]]  # how many tokens' room a way of allocating reserves for a request


@dataclass(slots=True)
class Minute:
    """Tokens of K and V that were written, and those there was room for, summed over its samples."""

    in_flight: list[int] = field(default_factory=list)
    written: int = 0
    paged: int = 0
    reserved: dict[str, int] = field(default_factory=dict)

    def waste_percent(self, room: int) -> float:
        return 100 * (1 - self.written / room)


@dataclass(slots=True)
class Flight:
    request: Request
    blocks: Blocks
    left: int  # tokens to generate


def minutes_of(requests: Sequence[Request], sizes: Sizes, *, block_tokens: int) -> list[Minute]:
    """The minutes of the trace in which something was in flight."""
    return Traffic(requests, sizes, block_tokens).run()


class Traffic:
    def __init__(self, requests: Sequence[Request], sizes: Sizes, block_tokens: int) -> None:
        self._clock = Clock()
        arena = Arena(POOL_TOKENS, {KV_FORMAT: PAGE_TOKENS})
        self._manager = BlockManager(arena, clock=self._clock, block_tokens=PAGE_TOKENS)
        self._manager.set_namespace(NAMESPACE, key=KEY, epoch=1, policy=NamespacePolicy(prefix_caching=False))
        self._coming = deque(requests)
        self._flights: list[Flight] = []
        self._sizes, self._block_tokens = sizes, block_tokens
        self._minute = Minute()
        self._minutes: list[Minute] = []

    def run(self) -> list[Minute]:
        step = 0
        while self._coming or self._flights:
            self._clock.now = step * STEP_SECONDS
            self._step()
            if step % STEPS_A_SAMPLE == 0:
                self._sample()
            step += 1
        return [minute for minute in [*self._minutes, self._minute] if minute.paged]

    def _step(self) -> None:
        manager = self._manager
        for flight in self._flights:
            manager.fill(flight.blocks, len(flight.blocks.tokens))  # computed since the last step
            if flight.left:
                assert manager.grow(flight.blocks, (1,)) is None
                flight.left -= 1
            else:
                manager.release(flight.blocks)
        self._flights = [flight for flight in self._flights if flight.blocks.state == "admitted"]
        while self._coming and self._coming[0].at_seconds <= self._clock.now:
            self._admit(self._coming.popleft())
        manager.take_operations()

    def _admit(self, request: Request) -> None:
        tokens = prompt_tokens(request, 0, self._block_tokens)
        blocks = self._manager.sequence(NAMESPACE, tokens, kv_format=KV_FORMAT, model_revision=MODEL)
        assert isinstance(self._manager.admit(blocks), Admitted)
        self._flights.append(Flight(request, blocks, request.output_tokens))

    def _sample(self) -> None:
        minute, flights = self._minute, self._flights
        minute.in_flight.append(len(flights))
        minute.written += sum(one.request.input_tokens + one.request.output_tokens - one.left for one in flights)
        minute.paged += sum(len(one.blocks.pages) for one in flights) * PAGE_TOKENS
        for name, size in self._sizes.items():
            minute.reserved[name] = minute.reserved.get(name, 0) + sum(size(one.request) for one in flights)
        if len(minute.in_flight) == SAMPLES_A_MINUTE:
            self._minutes.append(minute)
            self._minute = Minute()


def mean_in_flight(minutes: Sequence[Minute]) -> float:
    return fmean(count for minute in minutes for count in minute.in_flight)
