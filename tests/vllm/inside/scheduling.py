"""vLLM's real scheduler under our policies, without a model: tokens are made up, blocks and counts are real."""

import itertools
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.engine import EngineCoreOutput
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from engine_agent.backends.vllm.asked import FIELD, Asked
from engine_agent.backends.vllm.core import VllmCore
from engine_agent.backends.vllm.governor import Setup
from engine_agent.backends.vllm.scheduler import PolicyAsyncScheduler, PolicyScheduler
from engine_agent.backends.vllm.zeroing import zero_worker_pages
from engine_agent.cache.sequences import Sequence as BlockSequence
from engine_agent.process.config import CHECKOUT

BLOCK = 16
DEMO = CHECKOUT / "engine_agent" / "demo" / "model"
FORMATS = ("fp8_e4m3", "fp8")


@cache
def vllm_config(*, budget: int, seats: int) -> VllmConfig:
    arguments = EngineArgs(
        model=str(DEMO),
        max_model_len=512,
        block_size=BLOCK,
        max_num_batched_tokens=budget,
        max_num_seqs=seats,
        enable_prefix_caching=True,
        enforce_eager=True,
        kv_cache_dtype="fp8",
        kv_cache_memory_bytes=1 << 24,
        async_scheduling=False,
    )
    return arguments.create_engine_config()


class Clock:
    """Stands until a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Workers:
    """As far as pages go: who wrote what into which, and that nothing is zeroed that whoever has it has written."""

    def __init__(self) -> None:
        self.sequences: Mapping[str, BlockSequence] = {}
        self.zeroed: list[int] = []
        self._writers: dict[int, str] = {}

    def compute(self, table: Sequence[int], request_id: str, begin: int, tokens: int) -> None:
        self._writers |= dict.fromkeys(table[begin // BLOCK : -(-(begin + tokens) // BLOCK)], request_id)

    def collective_rpc(self, method: object, args: tuple[Sequence[int], int]) -> list[int]:
        assert method is zero_worker_pages
        owners = {page: request_id for request_id, one in self.sequences.items() for page in one.pages}
        for page in args[0]:
            written = self._writers.pop(page, None)
            assert written is None or written != owners.get(page), f"page {page} of {written} was zeroed in use"
        self.zeroed += args[0]
        return [len(args[0])]


class World:
    """One scheduler with so many blocks, and namespaces with policies, or none: then a test's snapshot has them."""

    def __init__(
        self,
        policies: Mapping[str, Mapping[str, Any]],
        *,
        blocks: int = 64,
        budget: int = 512,
        seats: int = 32,
        runs_ahead: bool = False,
        most_waiting: int = 1000,
    ) -> None:
        config = vllm_config(budget=budget, seats=seats)
        config.cache_config.num_gpu_blocks = blocks + 1
        setup = Setup("demo", "r", FORMATS, "boot-1", most_waiting=most_waiting)
        config.additional_config = setup.packed()
        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=32, dtype=torch.float8_e4m3fn)
        kv_config = KVCacheConfig(blocks + 1, [], [KVCacheGroupSpec(["layer"], spec)])
        kind = PolicyAsyncScheduler if runs_ahead else PolicyScheduler
        self.clock = Clock()
        by_hand = type("SchedulerByHand", (kind,), {"clock": self.clock})
        self.scheduler = by_hand(config, kv_config, StructuredOutputManager(config), BLOCK)
        self.workers = Workers()
        around = {"model_executor": self.workers, "add_request": self.scheduler.add_request}
        self.core = VllmCore(SimpleNamespace(scheduler=self.scheduler, **around))
        self.workers.sequences = self.scheduler.kv_cache_manager.sequences
        governor = self.scheduler.governor
        self.governor, self.manager = governor, governor.manager
        self.told: list[EngineCoreOutput] = []
        self.scheduler.tell = lambda client, outputs: self.told.extend(outputs)
        self._numbers = itertools.count()
        self._most_ahead = 1 if runs_ahead else 0
        self._ahead: deque[tuple[SchedulerOutput, ModelRunnerOutput]] = deque()
        self.tables: dict[str, list[int]] = {}
        self._policies = dict(policies)
        if policies:
            self._govern()

    # Namespaces

    def set_policy(self, name: str, policy: Mapping[str, Any]) -> None:
        self._policies[name] = policy
        self._govern()

    def purge(self, name: str) -> None:
        assert "ok" in self.core.ask("purge", [name])

    def _govern(self) -> None:
        assert "ok" in self.core.ask("govern", self._policies)

    # Requests

    def request(self, tokens: Sequence[int], name: str = "acme", *, max_tokens: int = 1, **asked: Any) -> Request:
        """In line from here on."""
        extra = Asked(name, is_told=True, **asked).packed()
        params = SamplingParams(max_tokens=max_tokens, temperature=0, ignore_eos=True, extra_args=extra)
        request = Request(f"request-{next(self._numbers)}", list(tokens), params, None)
        self.scheduler.add_request(request)
        return request

    def run(self, tokens: Sequence[int], name: str = "acme", **fields: Any) -> dict[str, Any]:
        """From the first step to the last. Its admission."""
        request = self.request(tokens, name, **fields)
        self.until_idle()
        return self.admission(request)

    def until_idle(self, *, steps: int = 1000) -> None:
        while self.scheduler.has_unfinished_requests():
            steps -= 1
            assert steps, "it never ends"
            self.step()

    def step(self) -> SchedulerOutput:
        """What the workers have in their tables is checked against what is told: a table only grows."""
        output = self.scheduler.schedule()
        self._follow(output)
        ids = list(output.num_scheduled_tokens)
        sampled = [[] if self.scheduler.requests[one].is_prefill_chunk else [7] for one in ids]
        made = ModelRunnerOutput(
            req_ids=ids, req_id_to_index={one: place for place, one in enumerate(ids)}, sampled_token_ids=sampled
        )
        self._ahead.append((output, made))
        while len(self._ahead) > self._most_ahead or (self._ahead and not ids):
            self.scheduler.update_from_output(*self._ahead.popleft())
        self.check()
        return output

    def _follow(self, output: SchedulerOutput) -> None:
        for fresh in output.scheduled_new_reqs:
            self.tables[fresh.req_id] = list(fresh.block_ids[0])
        cached = output.scheduled_cached_reqs
        for request_id, blocks in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if request_id in cached.resumed_req_ids:
                self.tables[request_id] = list(blocks[0]) if blocks else []
            elif blocks:
                self.tables[request_id] += blocks[0]
        for request_id, tokens in output.num_scheduled_tokens.items():
            sequence = self.scheduler.kv_cache_manager.sequences[request_id]
            assert self.tables[request_id] == sequence.pages, "the workers have another table"
            request = self.scheduler.requests[request_id]
            assert len(sequence.pages) * BLOCK >= request.num_computed_tokens
            assert 0 not in sequence.pages, "vLLM's null block is nobody's"
            self.workers.compute(sequence.pages, request_id, request.num_computed_tokens - tokens, tokens)

    def abort(self, request: Request) -> None:
        self.scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)

    # What came of it

    def admission(self, request: Request) -> dict[str, Any]:
        (found,) = (one for one in self._said(request) if "admission" in one)
        return dict(found["admission"])

    def refusal(self, request: Request) -> list[str]:
        (found,) = (one for one in self._said(request) if "refused" in one)
        return list(found["refused"])

    def _said(self, request: Request) -> list[dict[str, Any]]:
        told = [one for one in self.told if one.request_id == request.request_id and one.kv_transfer_params]
        return [one.kv_transfer_params[FIELD] for one in told]

    def cached(self, tokens: Sequence[int], name: str = "acme") -> int:
        """How many tokens a prompt would find now. Renews nothing."""
        sequence = self.governor.sequence(Asked(name), list(tokens))
        found = self.manager.cache.match(sequence.owner, sequence.chain, sequence.matchable_blocks)
        return int(found.depth) * BLOCK

    def resident(self, name: str = "acme") -> int:
        return int(self.manager.stats(name).resident_blocks)

    def check(self) -> None:
        problems = self.manager.check_integrity()
        assert not problems, problems


def prompt(blocks: int, *, seed: int = 0, extra: int = 1) -> list[int]:
    """Whole blocks and some tokens more, so that every whole block can match; another seed shares no block."""
    return [(seed * 100_003 + place) % 900 + 50 * (seed % 2) for place in range(blocks * BLOCK + extra)]
