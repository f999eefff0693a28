"""One side of row V2: `python -m tests.bench.vllm_trace_worker ours|stock`, in vLLM's virtualenv. vLLM's `EngineCore`
in this process, with the demo model, asked for what a trace asks. Imports vLLM.
"""

import platform
import sys
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

from vllm.config import set_current_vllm_config
from vllm.v1.engine.core import EngineCore
from vllm.v1.executor import Executor

from engine_agent.tools.loadgen.workloads import Asked, Vocabulary, trace_prompts
from engine_agent.tools.replay.trace import read_trace
from tests.bench.answers import serve
from tests.bench.cache_rounds import settle_garbage
from tests.bench.vllm_asked import (
    CONTEXT_TOKENS,
    OURS,
    SCALE,
    SERVED_BLOCK_TOKENS,
    SERVED_POOL_BYTES,
    TOGETHER,
    TRACE_BLOCK_TOKENS,
)
from tests.bench.vllm_sides import NAMES, Requests, config_of, tenants_said

VOCABULARY = Vocabulary(3, 2047)


class Served:
    def __init__(self, side: str) -> None:
        config = config_of(
            side,
            block_size=SERVED_BLOCK_TOKENS,
            max_model_len=CONTEXT_TOKENS,
            max_num_batched_tokens=2048,
            kv_cache_memory_bytes=SERVED_POOL_BYTES,
        )
        with set_current_vllm_config(config):
            self._core = EngineCore(config, Executor.get_class(config), False)
        if side == OURS:
            self._core.luminet("govern", [tenants_said()])
        self._requests = Requests(side, SERVED_BLOCK_TOKENS)
        self._hit_tokens = 0
        self._schedule = self._core.scheduler.schedule
        self._core.scheduler.schedule = self._counting

    def _counting(self, *args: Any) -> Any:
        output = self._schedule(*args)
        self._hit_tokens += sum(fresh.num_computed_tokens for fresh in output.scheduled_new_reqs)
        return output

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """As many at once as `TOGETHER`, the next as soon as one has ended, until all have."""
        with open(question["trace"], encoding="utf-8") as lines:
            head = read_trace(lines, block_tokens=TRACE_BLOCK_TOKENS, head=question["requests"])
        wanted = trace_prompts(
            head,
            block_tokens=TRACE_BLOCK_TOKENS,
            scale=SCALE,
            vocabulary=VOCABULARY,
            seed=question["seed"],
        )
        return self._serve([one for one in wanted if len(one.tokens) + one.output_tokens <= CONTEXT_TOKENS])

    def _serve(self, wanted: Sequence[Asked]) -> dict[str, Any]:
        core, left = self._core, list(reversed(list(enumerate(wanted))))
        running = generated = steps = self._hit_tokens = 0
        began = perf_counter()
        while left or running:
            while left and running < TOGETHER:
                number, one = left.pop()
                core.add_request(self._requests.make(one.tokens, NAMES[number % len(NAMES)], one.output_tokens))
                running += 1
            outputs, _ = core.step()
            steps += 1
            for output in (one for found in outputs.values() for one in found.outputs):
                generated += len(output.new_token_ids)
                running -= output.finish_reason is not None
        seconds = perf_counter() - began
        return {
            "seconds": seconds,
            "requests": len(wanted),
            "tokens": sum(len(one.tokens) for one in wanted) + generated,
            "hit_tokens": self._hit_tokens,
            "steps": steps,
        }


def prepared() -> tuple[dict[str, Any], Any]:
    side = Served(sys.argv[1])
    return {"python": platform.python_version(), "gc": settle_garbage()}, side.answer


if __name__ == "__main__":
    serve(prepared)
