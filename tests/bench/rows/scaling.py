"""C3: what a request costs the books of a small pool and of a large one, with one namespace and with ten thousand."""

import gc
import random
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from time import monotonic, perf_counter

from engine_agent.cache.manager import Admitted, BlockManager
from engine_agent.cache.policy import NamespacePolicy
from engine_agent.cache.pool import Arena
from tests.bench import Bench, Target, row

BLOCK_TOKENS, PROMPT_BLOCKS = 16, 256
PROMPT_TOKENS = BLOCK_TOKENS * PROMPT_BLOCKS
PAGE_BYTES = 1024
ROUNDS = 40  # in each sample: half of them new prompts, half full hits
SAMPLES = 20
SMALL = (10_000, 1)
LARGE = ((1_000_000, 1), (1_000_000, 10_000))
MOST = Target("<=", 1.5)


@row("C3", title="Cost of a request as the pool and the number of namespaces grow", target="≤ 1.5 ×", beside="itself")
def scaling(bench: Bench) -> None:
    small = Pool(*SMALL)
    for blocks, namespaces in LARGE:
        with _kept_from_collecting(Pool(blocks, namespaces)) as large:
            size = f"{blocks:,} blocks, {namespaces:,} namespace{'s' if namespaces > 1 else ''}"
            bench.compare(
                f"a request, half of them new, half full hits: {size}",
                unit="µs",
                ours=large.request_microseconds,
                theirs=small.request_microseconds,
                theirs_name=f"{SMALL[0]:,} blocks, one namespace",
                repetitions=SAMPLES,
                target=MOST,
                parameters={"tokens": PROMPT_TOKENS, "block": BLOCK_TOKENS, "requests in a sample": ROUNDS},
            )
            for part, spent in large.parts.items():
                bench.record(f"{size}: {part}", unit="µs", values=spent[-SAMPLES:])
            bench.record(f"{size}: integrity check", unit="ms", values=[large.check_milliseconds() for _ in range(3)])
            _note(bench, size, large)
    for part, spent in small.parts.items():
        bench.record(f"{SMALL[0]:,} blocks, one namespace: {part}", unit="µs", values=spent[-SAMPLES:])


class Pool:
    """A full pool of prompts of 4,096 tokens; requests come from all namespaces and hit any prompt that is there."""

    def __init__(self, blocks: int, namespaces: int) -> None:
        arena = Arena(blocks * PAGE_BYTES, {"bf16": PAGE_BYTES})
        self._manager = BlockManager(arena, clock=monotonic, block_tokens=BLOCK_TOKENS)
        self._names = [f"org-{number}/default" for number in range(namespaces)]
        for number, name in enumerate(self._names):
            key = number.to_bytes(32, "little")
            self._manager.set_namespace(name, key=key, epoch=1, policy=NamespacePolicy(ttl_seconds=604_800))
        self._chance = random.Random(4096)
        self._prompts = 0
        self.parts: dict[str, list[float]] = {"new prompt": [], "full hit": []}
        self.evicted = 0
        while not self.evicted:
            self._new_prompt()

    def request_microseconds(self) -> float:
        fresh = [self._new_prompt() for _ in range(ROUNDS // 2)]
        again = [self._full_hit() for _ in range(ROUNDS // 2)]
        self.parts["new prompt"].append(median(fresh) * 1e6)
        self.parts["full hit"].append(median(again) * 1e6)
        return (self.parts["new prompt"][-1] + self.parts["full hit"][-1]) / 2

    def check_milliseconds(self) -> float:
        began = perf_counter()
        problems = self._manager.check_integrity()
        assert problems == [], problems
        return (perf_counter() - began) * 1e3

    def _new_prompt(self) -> float:
        """Hash, look up, take pages, make findable, release; the pool is full, so as many blocks are evicted."""
        self._prompts += 1
        return self._serve(self._prompts, expected_tokens=0)

    def _full_hit(self) -> float:
        """Look up, take, release, of a prompt that was hashed before, somewhere in the younger half of the pool."""
        in_pool = self._manager.pool().capacity_bytes // PAGE_BYTES // (PROMPT_BLOCKS + 1)
        number = self._prompts - self._chance.randrange(max(1, in_pool // 2))
        return self._serve(number, expected_tokens=PROMPT_TOKENS - BLOCK_TOKENS)

    def _serve(self, number: int, *, expected_tokens: int) -> float:
        name = self._names[number % len(self._names)]
        tokens = list(range(number * PROMPT_TOKENS, (number + 1) * PROMPT_TOKENS))
        began = perf_counter()
        sequence = self._manager.sequence(name, tokens, kv_format="bf16", model_revision="m1")
        if expected_tokens:
            began = perf_counter()
        answer = self._manager.admit(sequence)
        if not expected_tokens:
            self._manager.fill(sequence, PROMPT_TOKENS)
        self._manager.release(sequence)
        spent = perf_counter() - began
        assert isinstance(answer, Admitted)
        assert answer.cached_tokens == expected_tokens, answer
        self.evicted = self._manager.stats(name).counters.evicted_blocks
        return spent


@contextmanager
def _kept_from_collecting(pool: Pool) -> Iterator[Pool]:
    """As a server does: what stays is not looked at by every collection."""
    gc.collect()
    gc.freeze()
    try:
        yield pool
    finally:
        gc.unfreeze()


def _note(bench: Bench, size: str, pool: Pool) -> None:
    new, hit = median(pool.parts["new prompt"]), median(pool.parts["full hit"])
    bench.note(f"{size}: a new prompt takes {new:.0f} µs with its hashing, a full hit {hit:.0f} µs without")
