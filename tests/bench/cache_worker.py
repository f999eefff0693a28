"""Our side of rows C1 and C2: `BlockManager`, as the engine's scheduler uses it, without a model."""

from collections.abc import Mapping
from time import monotonic

from engine_agent.cache.manager import Admitted, BlockManager, Deferred
from engine_agent.cache.policy import NamespacePolicy
from engine_agent.cache.pool import Arena
from engine_agent.cache.sequences import Sequence
from tests.bench.answers import serve
from tests.bench.cache_rounds import (
    AFTERWARDS,
    BLOCK_BYTES,
    BLOCK_TOKENS,
    POOL_BLOCKS,
    PROMPT_TOKENS,
    TENANTS,
    Round,
    Stopwatch,
    prepared,
)

KV_FORMAT = "bf16"


class OurBookkeeping:
    """Four tenants are four namespaces, under the policy a namespace has when nobody said anything."""

    def __init__(self) -> None:
        arena = Arena(capacity_bytes=POOL_BLOCKS * BLOCK_BYTES, page_bytes={KV_FORMAT: BLOCK_BYTES})
        self._manager = BlockManager(arena, clock=monotonic, block_tokens=BLOCK_TOKENS)
        self._namespaces = [f"tenant-{number}/default" for number in range(TENANTS)]
        for number, namespace in enumerate(self._namespaces):
            self._manager.set_namespace(namespace, key=bytes([number]) * 32, epoch=1, policy=NamespacePolicy())

    def new_prompt(self, tokens: list[int], tenant: int) -> Round:
        evicted = self._evicted()
        watch = Stopwatch()
        sequence = self._sequence(tokens, tenant)
        watch.lap("hash")
        admitted = self._manager.admit(sequence)
        watch.lap("look up, allocate")
        self._manager.fill(sequence, PROMPT_TOKENS)
        watch.lap("make findable")
        afterwards = Stopwatch()
        self._manager.release(sequence)
        afterwards.lap(AFTERWARDS)
        return self._round(watch.seconds, watch.parts | afterwards.parts, evicted, admitted)

    def full_hit(self, tokens: list[int], tenant: int) -> Round:
        sequence, evicted = self._sequence(tokens, tenant), self._evicted()
        watch = Stopwatch()
        admitted = self._manager.admit(sequence)
        watch.lap("look up, allocate")
        self._manager.release(sequence)
        watch.lap("free")
        return self._round(watch.seconds, watch.parts, evicted, admitted)

    def _round(self, seconds: float, parts: Mapping[str, float], evicted: int, admitted: Admitted | Deferred) -> Round:
        assert isinstance(admitted, Admitted)
        self._manager.take_operations()
        return Round(seconds, parts, self._evicted() - evicted, admitted.cached_tokens)

    def _sequence(self, tokens: list[int], tenant: int) -> Sequence:
        return self._manager.sequence(self._namespaces[tenant], tokens, kv_format=KV_FORMAT, model_revision="m1")

    def _evicted(self) -> int:
        return sum(self._manager.stats(namespace).counters.evicted_blocks for namespace in self._namespaces)


if __name__ == "__main__":
    serve(lambda: prepared(OurBookkeeping))
