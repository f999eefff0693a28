"""Q2: whether the engine's greedy tokens are those of `transformers`, on random models of every family, in float32."""

import sys

from tests.bench import Bench, Target, row
from tests.bench.workers import worker_running

WORKER = "tests.bench.equality_worker"
# tests/engines/families.py says what each is; it loads torch, which is the worker's to do.
CONFIGURATIONS = (
    "llama",
    "llama-biases-mha",
    "llama-scaled",
    "llama-yarn-mqa",
    "mistral",
    "mistral-window",
    "qwen2",
    "qwen2-window",
    "qwen3",
    "qwen3-window",
)
PROMPTS = (1, 15, 16, 17, 65, 90)  # tokens: around a page's end, within a piece and beyond it
ANSWER_TOKENS = 64
LEAST_PROMPTS = 50


@row(
    "Q2",
    title="Greedy tokens equal to those of transformers on random Llama, Mistral, Qwen2 and Qwen3 models, fp32",
    target="100 % of ≥ 50 prompts × 64 tokens",
    beside="transformers, one forward pass over prompt and answer",
)
def equality(bench: Bench) -> None:
    prompts = 0
    with worker_running((sys.executable, "-m", WORKER), {"OMP_NUM_THREADS": "1"}) as worker:
        for number, name in enumerate(CONFIGURATIONS, 1):
            bench.step("configurations", number, len(CONFIGURATIONS))
            found = worker.ask(configuration=name, prompts=PROMPTS, tokens=ANSWER_TOKENS)["equal"]
            prompts += len(found)
            bench.record(
                f"tokens equal, {name}",
                unit="%",
                values=[100 * equal / ANSWER_TOKENS for equal in found],
                target=Target("==", 100, of="min"),
                parameters={"tokens of an answer": ANSWER_TOKENS, "prompts, tokens": ", ".join(map(str, PROMPTS))},
            )
        bench.note(", ".join(f"{name} {version}" for name, version in worker.facts.items()))
    bench.record("prompts compared", unit="", values=[prompts], target=Target(">=", LEAST_PROMPTS))
