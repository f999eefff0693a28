"""Row V1: what one of vLLM's schedulers is asked, ours or its own, without a model. Both sides run this very code, each
in a process of its own. Imports vLLM.

Time is that of the thread on a processor: nobody else's work is in it. What was hit goes with every answer, so that a
row can show that both did the same.
"""

import gc
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from statistics import median
from time import thread_time
from types import SimpleNamespace
from typing import Any

from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.utils.torch_utils import STR_DTYPE_TO_TORCH_DTYPE
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from engine_agent.backends.vllm.asked import Asked
from engine_agent.backends.vllm.core import VllmCore
from engine_agent.backends.vllm.governor import Setup
from engine_agent.backends.vllm.launch import SCHEDULER as OUR_SCHEDULER
from engine_agent.backends.vllm.scheduler import PolicyScheduler
from engine_agent.process.config import CHECKOUT
from tests.bench.cache_rounds import BLOCK_TOKENS, POOL_BLOCKS, PROMPT_TOKENS, PROMPTS_IN_POOL, TENANTS, VOCABULARY
from tests.bench.vllm_asked import DECODED_PROMPT, DECODING, FULL_HIT, MOST_SEATS, NEW_PROMPT, OURS, STEP

DEMO = CHECKOUT / "engine_agent" / "demo" / "model"
NAMES = tuple(f"tenant-{number}" for number in range(TENANTS))
KV_FORMAT = "bf16"


class Requests:
    """As each side is asked: a tenant is a namespace here, and a salt there, whose hashes are part of a request."""

    def __init__(self, side: str, block_tokens: int) -> None:
        self._is_ours = side == OURS
        init_none_hash(sha256)
        self._hasher = None if self._is_ours else get_request_block_hasher(block_tokens, sha256)
        self._numbers = count()

    def make(self, tokens: Sequence[int], tenant: str, output_tokens: int) -> Request:
        params = SamplingParams(max_tokens=output_tokens, temperature=0.0, ignore_eos=True)
        if self._is_ours:
            params.extra_args = Asked(tenant, room_for_tokens=output_tokens, is_told=True).packed()
        name = f"request-{next(self._numbers)}"
        return Request(name, list(tokens), params, None, cache_salt=tenant, block_hasher=self._hasher)


def tenants_said() -> dict[str, dict[str, str]]:
    """Under the policy a namespace has when nobody said anything."""
    return {name: {"kv_dtype": KV_FORMAT} for name in NAMES}


@dataclass(frozen=True, slots=True)
class Lived:
    """One request alone, from when it is made to when it is forgotten."""

    making: float  # seconds, with the hashes of its blocks where a side has them made here
    scheduling: float
    hit_tokens: int


class Bookkeeping:
    """A scheduler without a model: its tokens are made up, its blocks and steps are real."""

    def __init__(self, side: str) -> None:
        config = bookkeeping_config(side)
        layer = FullAttentionSpec(
            block_size=BLOCK_TOKENS, num_kv_heads=2, head_size=64, dtype=STR_DTYPE_TO_TORCH_DTYPE["bfloat16"]
        )
        blocks = POOL_BLOCKS + 1  # one is vLLM's null block
        config.cache_config.num_gpu_blocks = blocks
        kind = PolicyScheduler if side == OURS else Scheduler
        pages = KVCacheConfig(blocks, [], [KVCacheGroupSpec(["layer"], layer)])
        self._scheduler = kind(config, pages, StructuredOutputManager(config), BLOCK_TOKENS)
        if side == OURS:
            core = SimpleNamespace(scheduler=self._scheduler, add_request=self._scheduler.add_request)
            self._core = VllmCore(core)  # what is asked of it between steps hangs on each step
            self._core.ask("govern", tenants_said())
        self._requests = Requests(side, BLOCK_TOKENS)
        self._random = random.Random(PROMPT_TOKENS)
        self._hit_tokens = 0  # of whom was scheduled first last
        self._measures: Mapping[str, Callable[[int], dict[str, Any]]] = {
            NEW_PROMPT: lambda rounds: _told(list(islice(self._new_prompts(), rounds))),
            FULL_HIT: lambda rounds: _told(list(islice(self._full_hits(), rounds))),
            STEP: self._steps,
        }
        for _ in islice(self._new_prompts(), 4 * PROMPTS_IN_POOL):
            pass

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        gc.collect()
        return self._measures[question["measure"]](question["rounds"])

    def _new_prompts(self) -> Iterator[Lived]:
        for number in count():
            yield self._live(self._prompt(), NAMES[number % TENANTS])

    def _full_hits(self) -> Iterator[Lived]:
        prompts = [self._prompt() for _ in NAMES]
        for prompt, name in zip(prompts, NAMES, strict=True):
            self._live(prompt, name)
        for number in count():
            yield self._live(prompts[number % TENANTS], NAMES[number % TENANTS])

    def _steps(self, rounds: int) -> dict[str, Any]:
        """While each of many answers goes on by a token."""
        for number in range(DECODING):
            tokens = self._prompt(DECODED_PROMPT)
            self._scheduler.add_request(self._requests.make(tokens, NAMES[number % TENANTS], rounds + DECODING))
        while len(self._scheduler.running) < DECODING or any(one.is_prefill_chunk for one in self._scheduler.running):
            self._step()
        taken = [self._step() for _ in range(rounds)]
        while self._scheduler.has_unfinished_requests():
            self._step()
        return {"µs": sum(taken) / rounds * 1e6}  # the mean: whatever is dearer at every 16th step counts

    def _live(self, tokens: list[int], tenant: str) -> Lived:
        began = thread_time()
        request = self._requests.make(tokens, tenant, 1)
        made = thread_time()
        self._scheduler.add_request(request)
        taken = thread_time() - made
        while self._scheduler.has_requests():  # once more than it has steps, as in vLLM's loop: who ended is told
            taken += self._step()
        return Lived(made - began, taken, self._hit_tokens)

    def _step(self) -> float:
        """Its seconds, without what only makes up tokens."""
        began = thread_time()
        output = self._scheduler.schedule()
        planned = thread_time()
        for fresh in output.scheduled_new_reqs:
            self._hit_tokens = fresh.num_computed_tokens
        ids = list(output.num_scheduled_tokens)
        sampled = [[] if self._scheduler.requests[one].is_prefill_chunk else [7] for one in ids]
        made = ModelRunnerOutput(
            req_ids=ids, req_id_to_index={one: place for place, one in enumerate(ids)}, sampled_token_ids=sampled
        )
        computed = thread_time()
        self._scheduler.update_from_output(output, made)
        return planned - began + thread_time() - computed

    def _prompt(self, tokens: int = PROMPT_TOKENS) -> list[int]:
        return self._random.choices(range(VOCABULARY), k=tokens)


def _told(lived: Sequence[Lived]) -> dict[str, Any]:
    return {
        "µs": median(one.making + one.scheduling for one in lived) * 1e6,
        "making µs": median(one.making for one in lived) * 1e6,
        "scheduling µs": median(one.scheduling for one in lived) * 1e6,
        "hit_tokens": [one.hit_tokens for one in lived],
    }


def bookkeeping_config(side: str) -> VllmConfig:
    sizes = {"max_model_len": 2 * PROMPT_TOKENS, "max_num_batched_tokens": 2 * PROMPT_TOKENS}
    return config_of(side, block_size=BLOCK_TOKENS, kv_cache_memory_bytes=1 << 28, **sizes)


def config_of(side: str, **fields: Any) -> VllmConfig:
    """The demo model, prefix caching on; which scheduler is all that the sides differ in."""
    config = EngineArgs(
        model=str(DEMO),
        skip_tokenizer_init=True,
        max_num_seqs=MOST_SEATS,
        enable_prefix_caching=True,
        enforce_eager=True,
        async_scheduling=False,
        disable_log_stats=True,
        generation_config="vllm",
        scheduler_cls=OUR_SCHEDULER if side == OURS else None,
        **fields,
    ).create_engine_config()
    if side == OURS:
        config.additional_config = Setup("demo", "r", (KV_FORMAT,)).packed()
    return config
