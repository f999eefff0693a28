"""V1 and V2: what our scheduler costs in vLLM, beside vLLM's own in alternating processes of the same virtualenv.

V1 has no model: requests from when they are made to when they are forgotten, and steps of answers under way. V2 serves
the beginning of the public trace through vLLM's engine on a CPU. Prefix caching is on at both.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from controlplane.stack.environments import Unavailable
from controlplane.stack.vllm_env import VERSION, VLLM
from tests.bench import Bench, Target, row
from tests.bench.engine_serving import THEIR_ENVIRONMENT
from tests.bench.figures import Parameters
from tests.bench.rows.cache import SIZES
from tests.bench.vllm_asked import (
    DECODED_PROMPT,
    DECODING,
    FULL_HIT,
    NEW_PROMPT,
    OURS,
    SCALE,
    SERVED_POOL_BYTES,
    STEP,
    STOCK,
    TOGETHER,
    TRACE_HEAD,
)
from tests.bench.workers import Worker, worker_running
from tests.unit.replay.examples import PUBLIC_TRACE

THEIRS = f"vLLM {VERSION}'s own scheduler"
OVERHEAD = 0.05
BOOKKEEPING, TRACE = "tests.bench.vllm_scheduling_worker", "tests.bench.vllm_trace_worker"
SAMPLES, WARM_UP = 20, 2
ROUNDS, STEPS = 20, 200  # in a sample
REQUESTS = {key: value for key, value in SIZES.items() if key != "repetitions in a sample"} | {"in a sample": ROUNDS}
DECODED: Parameters = {"answers at once": DECODING, "prompt tokens": DECODED_PROMPT, "steps in a sample": STEPS}
SERVED: Parameters = {
    "requests of the trace": TRACE_HEAD,
    "lengths": f"× {SCALE}",
    "at once": TOGETHER,
    "pool, MiB": SERVED_POOL_BYTES / 2**20,
    "model": "demo",
}
FRESH_AND_HIT = ((NEW_PROMPT, "a new prompt of 4,096 tokens"), (FULL_HIT, "a full hit of 4,096 tokens"))


@row(
    "V1",
    title="vLLM's scheduling of a request and of a step, without a model, under policies ÷ without",
    target="≤ 1.05 ×",
    beside=THEIRS,
)
def scheduling(bench: Bench) -> None:
    with _sides(bench, BOOKKEEPING) as (ours, theirs):
        for measure, name in FRESH_AND_HIT:
            samples = _compared(bench, name, measure, ours, theirs, ROUNDS, REQUESTS)
            for side in (ours, theirs):
                side.record_parts(bench, name, samples)
        _compared(bench, f"a step of {DECODING} answers", STEP, ours, theirs, STEPS, DECODED)
    bench.note(
        "a request: made, scheduled, ended; its blocks are hashed while it is made (vLLM's) or scheduled (ours), and "
        "vLLM makes requests in a thread beside its loop"
    )


@row(
    "V2",
    title="The public trace served by vLLM's engine on a CPU with the demo model, under policies ÷ without",
    target="≥ 0.95 × requests/s",
    beside=THEIRS,
)
def trace(bench: Bench) -> None:
    if not PUBLIC_TRACE.exists():
        bench.skip("the public trace is not in ../shared/traces")
    with _sides(bench, TRACE) as (ours, theirs):
        figure = bench.compare(
            "requests served",
            unit="requests/s",
            ours=ours.serve,
            theirs=theirs.serve,
            theirs_name=THEIRS,
            target=Target(">=", 1 - OVERHEAD),
            parameters=SERVED,
        )
        for side in (ours, theirs):
            side.record_served(bench, len(figure.ours.samples))


class Side:
    """One of the two processes, and all it answered."""

    def __init__(self, name: str, worker: Worker) -> None:
        self.name, self._worker = name, worker
        self._answers: list[dict[str, Any]] = []

    def microseconds(self, measure: str, rounds: int) -> float:
        self._answers.append(self._worker.ask(measure=measure, rounds=rounds))
        return float(self._answers[-1]["µs"])

    def record_parts(self, bench: Bench, name: str, samples: int) -> None:
        kept = self._answers[-samples:]
        for part in ("making", "scheduling"):
            bench.record(f"{name}, {self.name}: {part}", unit="µs", values=[one[f"{part} µs"] for one in kept])
        hit = sorted({tokens for one in kept for tokens in one["hit_tokens"]})
        bench.note(f"{name}, {self.name}: hit {' or '.join(f'{tokens:,}' for tokens in hit)} tokens each time")

    def serve(self) -> float:
        """Of each sample the prompts are new, and the same at both sides."""
        asked = {"trace": str(PUBLIC_TRACE), "requests": TRACE_HEAD, "seed": len(self._answers)}
        self._answers.append(self._worker.ask(**asked))
        return float(self._answers[-1]["requests"] / self._answers[-1]["seconds"])

    def record_served(self, bench: Bench, samples: int) -> None:
        kept = self._answers[-samples:]
        values = [one["tokens"] / one["seconds"] for one in kept]
        bench.record(f"tokens, {self.name}", unit="tokens/s", values=values)
        one = kept[-1]
        bench.note(
            f"{self.name}: {one['requests']} requests in {one['steps']} steps, {one['hit_tokens']:,} of "
            f"{one['tokens']:,} tokens hit, in the last sample"
        )


def _compared(bench: Bench, name: str, measure: str, ours: Side, theirs: Side, rounds: int, sizes: Parameters) -> int:
    figure = bench.compare(
        name,
        unit="µs",
        ours=lambda: ours.microseconds(measure, rounds),
        theirs=lambda: theirs.microseconds(measure, rounds),
        theirs_name=THEIRS,
        repetitions=SAMPLES,
        warmup=WARM_UP,
        target=Target("<=", 1 + OVERHEAD),
        parameters=sizes,
    )
    return len(figure.ours.samples)


@contextmanager
def _sides(bench: Bench, module: str) -> Iterator[tuple[Side, Side]]:
    python = vllm_python(bench)
    ours, theirs = ((str(python), "-m", module, side) for side in (OURS, STOCK))
    with worker_running(ours, THEIR_ENVIRONMENT) as first, worker_running(theirs, THEIR_ENVIRONMENT) as second:
        yield Side("ours", first), Side(THEIRS, second)


def vllm_python(bench: Bench) -> Path:
    try:
        return VLLM.ready_python()
    except Unavailable as problem:
        bench.skip(f"there is no vLLM {VERSION} here to be scheduled by either: {problem}")
