"""C1 and C2: the cache's bookkeeping for one prompt, beside vLLM's in alternating processes."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from controlplane.stack.environments import Unavailable
from controlplane.stack.vllm_env import VERSION, VLLM
from tests.bench import Bench, Target, row
from tests.bench.cache_rounds import BLOCK_TOKENS, FULL_HIT, NEW_PROMPT, POOL_BLOCKS, PROMPT_TOKENS, TENANTS, WHOLE
from tests.bench.engine_serving import THEIR_ENVIRONMENT
from tests.bench.workers import Worker, worker_running

ROUNDS = 20  # in each sample, which is their median
SAMPLES = 20
WARM_UP = 2
HALF = Target("<=", 0.5)
THEIRS = f"vLLM {VERSION}"
OUR_WORKER, THEIR_WORKER = "tests.bench.cache_worker", "tests.bench.vllm_worker"
SIZES = {
    "tokens": PROMPT_TOKENS,
    "block": BLOCK_TOKENS,
    "pool, blocks": POOL_BLOCKS,
    "tenants": TENANTS,
    "repetitions in a sample": ROUNDS,
}


@row(
    "C1",
    title="Cache bookkeeping for a new 4,096-token prompt: hash, look up, allocate, evict",
    target="≤ 0.5 ×",
    beside=f"{THEIRS} KVCacheManager with sha256",
)
def new_prompt(bench: Bench) -> None:
    _beside_vllm(bench, NEW_PROMPT)


@row(
    "C2",
    title="Cache bookkeeping for a full hit of 4,096 tokens: look up, allocate, free",
    target="≤ 0.5 ×",
    beside=f"{THEIRS} KVCacheManager",
)
def full_hit(bench: Bench) -> None:
    _beside_vllm(bench, FULL_HIT)


class Side:
    """One of the two processes, and all it answered."""

    def __init__(self, name: str, worker: Worker, measure: str) -> None:
        self._name, self._worker, self._measure = name, worker, measure
        self._answers: list[dict[str, Any]] = []

    def sample(self) -> float:
        self._answers.append(self._worker.ask(measure=self._measure, rounds=ROUNDS))
        return float(self._answers[-1]["µs"][WHOLE])

    def record(self, bench: Bench, samples: int) -> None:
        """The parts of what was measured, and what shows that it was."""
        kept, name = self._answers[-samples:], self._name
        for part in kept[0]["µs"]:
            if part != WHOLE:
                values = [answer["µs"][part] for answer in kept]
                bench.record(f"{self._measure}, {name}: {part}", unit="µs", values=values)
        evicted = [blocks for answer in kept for blocks in answer["evicted_blocks"]]
        hit = [tokens for answer in kept for tokens in answer["hit_tokens"]]
        bench.note(
            f"{name}: each of {len(evicted):,} repetitions evicted {_range(evicted)} of {POOL_BLOCKS:,} blocks and had "
            f"{_range(hit)} hit tokens of {PROMPT_TOKENS:,}"
        )
        bench.note(f"{name}: Python {self._worker.facts['python']}; garbage collector {self._worker.facts['gc']}")


def _range(values: Sequence[int]) -> str:
    least, most = min(values), max(values)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _beside_vllm(bench: Bench, measure: str) -> None:
    vllm = _vllm_python()
    with _side("ours", sys.executable, OUR_WORKER, measure) as ours:
        if isinstance(vllm, Unavailable):
            figure = bench.measure(
                measure, unit="µs", sample=ours.sample, repetitions=SAMPLES, warmup=WARM_UP, parameters=SIZES
            )
            ours.record(bench, len(figure.ours.samples))
            bench.skip(f"ours alone, because there is no {THEIRS} here to compare with: {vllm}")
        with _side(THEIRS, str(vllm), THEIR_WORKER, measure) as theirs:
            figure = bench.compare(
                measure,
                unit="µs",
                ours=ours.sample,
                theirs=theirs.sample,
                theirs_name=THEIRS,
                repetitions=SAMPLES,
                warmup=WARM_UP,
                target=HALF,
                parameters=SIZES,
            )
            for side in (ours, theirs):
                side.record(bench, len(figure.ours.samples))


def _vllm_python() -> Path | Unavailable:
    try:
        return VLLM.ready_python()
    except Unavailable as problem:
        return problem


@contextmanager
def _side(name: str, python: str, module: str, measure: str) -> Iterator[Side]:
    with worker_running((python, "-m", module), THEIR_ENVIRONMENT) as worker:
        yield Side(name, worker, measure)
