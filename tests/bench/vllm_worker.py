"""vLLM's side of rows C1 and C2: its `KVCacheManager` and `Request`, as its scheduler uses them, without a model.

Runs in the virtualenv of `controlplane.stack.vllm_env`, where none of our packages are.
"""

from itertools import count

from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.utils.torch_utils import STR_DTYPE_TO_TORCH_DTYPE
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request

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


class VllmBookkeeping:
    """Four tenants are four salts. `allocate_slots` also makes the blocks findable."""

    def __init__(self) -> None:
        init_none_hash(sha256)
        dtype = STR_DTYPE_TO_TORCH_DTYPE["bfloat16"]
        spec = FullAttentionSpec(block_size=BLOCK_TOKENS, num_kv_heads=2, head_size=64, dtype=dtype)
        assert spec.page_size_bytes == BLOCK_BYTES
        config = KVCacheConfig(
            num_blocks=POOL_BLOCKS + 1,  # one is vLLM's null block
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        )
        self._manager = KVCacheManager(
            config, max_model_len=2 * PROMPT_TOKENS, scheduler_block_size=BLOCK_TOKENS, hash_block_size=BLOCK_TOKENS
        )
        self._hasher = get_request_block_hasher(BLOCK_TOKENS, sha256)
        self._sampling = SamplingParams(max_tokens=16)
        self._salts = [f"tenant-{number}" for number in range(TENANTS)]
        self._ids = (f"request-{number}" for number in count())

    def new_prompt(self, tokens: list[int], tenant: int) -> Round:
        request_id, findable = next(self._ids), self._findable()
        watch = Stopwatch()
        request = self._request(request_id, tokens, tenant)
        watch.lap("hash")
        found, hit_tokens, _ = self._manager.get_computed_blocks(request)
        watch.lap("look up")
        taken = self._manager.allocate_slots(request, PROMPT_TOKENS - hit_tokens, hit_tokens, found)
        watch.lap("allocate")
        evicted = findable + len(taken.blocks[0]) - self._findable()
        afterwards = Stopwatch()
        self._manager.free(request)
        afterwards.lap(AFTERWARDS)
        return Round(watch.seconds, watch.parts | afterwards.parts, evicted, hit_tokens)

    def full_hit(self, tokens: list[int], tenant: int) -> Round:
        request, findable = self._request(next(self._ids), tokens, tenant), self._findable()
        watch = Stopwatch()
        found, hit_tokens, _ = self._manager.get_computed_blocks(request)
        watch.lap("look up")
        self._manager.allocate_slots(request, PROMPT_TOKENS - hit_tokens, hit_tokens, found)
        watch.lap("allocate")
        self._manager.free(request)
        watch.lap("free")
        return Round(watch.seconds, watch.parts, findable - self._findable(), hit_tokens)

    def _request(self, request_id: str, tokens: list[int], tenant: int) -> Request:
        salt = self._salts[tenant]
        return Request(request_id, tokens, self._sampling, None, cache_salt=salt, block_hasher=self._hasher)

    def _findable(self) -> int:
        """How many different blocks can be found. A recomputed last block is kept twice and counts once."""
        return len(self._manager.block_pool.cached_block_hash_to_block)


if __name__ == "__main__":
    serve(lambda: prepared(VllmBookkeeping))
