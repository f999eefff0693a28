"""vLLM's `KVCacheManager` with our block manager inside: who has which block, for how long and at whose cost is decided
in `engine_agent.cache`, and vLLM's scheduler is answered in its own words. Imports vLLM.

vLLM's hash map, its queue of free blocks and its reference counts are not used; its block objects are, for their
numbers. A request's blocks are taken when it is admitted (`admission_queue.py`), before the scheduler asks for them.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.request import Request

from engine_agent.backends.vllm.flat_pages import FlatPages
from engine_agent.cache.errors import NeverFits
from engine_agent.cache.manager import BlockManager, Deferred
from engine_agent.cache.sequences import Sequence as BlockSequence


class UnsupportedModel(Exception):
    """What this scheduler does not do; vLLM without it may."""


def flat_pages(stock: KVCacheManager, names: Iterable[str]) -> FlatPages:
    """All of vLLM's blocks but its null block. Raises UnsupportedModel."""
    groups = stock.kv_cache_config.kv_cache_groups
    kinds = [type(group.kv_cache_spec) for group in groups]
    if kinds != [FullAttentionSpec]:
        said = ", ".join(kind.__name__ for kind in kinds)
        raise UnsupportedModel(f"one kind of full attention in all layers is served under policies, found {said}")
    config = stock.kv_cache_config
    page_bytes = groups[0].kv_cache_spec.page_size_bytes * len(groups[0].layer_names)
    return FlatPages(range(1, config.num_blocks), page_bytes, tuple(names))


class PolicyKVCacheManager(KVCacheManager):  # type: ignore[misc]
    """Takes over from the one that vLLM's scheduler has made."""

    def __init__(self, stock: KVCacheManager, manager: BlockManager) -> None:
        self.__dict__.update(stock.__dict__)
        self.manager = manager
        self.sequences: dict[str, BlockSequence] = {}  # of requests that have their blocks
        self.make_room: Callable[[Request, Deferred], None] = lambda request, deferred: None
        self.cut: Callable[[Request], None] = lambda request: None  # it can never go on
        self._blocks = stock.block_pool.blocks

    # What the scheduler asks

    @property
    def usage(self) -> float:
        """As vLLM counts: what is idle is free."""
        device = self.manager.cache.books.device
        return (device.storage.used_bytes - device.evictable_bytes) / device.storage.capacity_bytes

    def get_computed_blocks(self, request: Request) -> tuple[KVCacheBlocks, int, int]:
        """What it hit was fixed, and is held, since it was admitted."""
        sequence = self.sequences[request.request_id]
        cached = sequence.cached_tokens
        return self._told(sequence.pages[: cached // self.manager.cache.block_tokens]), cached, 0

    def get_computed_blocks_for_connector(self, request: Request) -> tuple[KVCacheBlocks, int, int, bool]:
        raise UnsupportedModel("KV connectors know nothing of policies")

    def allocate_slots(
        self,
        request: Request,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: KVCacheBlocks | None = None,
        num_lookahead_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        delay_cache_blocks: bool = False,
        **others: Any,
    ) -> KVCacheBlocks | None:
        """Blocks it has not had before; None: somebody has to give way, and stands last in the scheduler's list."""
        assert not num_external_computed_tokens
        assert not delay_cache_blocks
        sequence = self.sequences[request.request_id]
        computed = request.num_computed_tokens + num_new_computed_tokens + num_new_tokens
        upto = min(computed + num_lookahead_tokens, self.max_model_len)
        if self._goes_on_within_its_last_block(sequence, min(computed, request.num_tokens), upto):
            return self.empty_kv_cache_blocks
        had = len(sequence.pages)
        try:
            deferred = self._grow(sequence, request, upto)
        except NeverFits:
            self.cut(request)
            return None
        if deferred is not None:
            self.make_room(request, deferred)
            return None
        self._fill(sequence, min(computed, request.num_tokens))
        return self._told(sequence.pages[had:])

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        """Tokens that were not known when their blocks were taken. Where there is no room for them, the next step says
        what becomes of the request.
        """
        sequence = self.sequences.get(request.request_id)
        if sequence is None:
            return
        computed = min(num_computed_tokens, request.num_tokens)
        with suppress(NeverFits):
            if self._grow(sequence, request, computed) is None:
                self._fill(sequence, computed)

    def free(self, request: Request) -> None:
        sequence = self.sequences.pop(request.request_id, None)
        if sequence is not None:
            self.manager.release(sequence)

    def get_blocks(self, request_id: str) -> KVCacheBlocks:
        return self._told(self.sequences[request_id].pages)

    def estimate_cached_tokens(self, request: Request) -> int:
        sequence = self.sequences.get(request.request_id)
        width = self.manager.cache.block_tokens
        return sequence.filled_tokens // width * width if sequence else 0

    def reset_prefix_cache(self) -> bool:
        """All namespaces, as if their caching were off for a moment. Pins are computed again."""
        cache = self.manager.cache
        if not self.manager.runs_nothing:
            return False
        for namespace in list(cache.books.namespaces.values()):
            cache.empty(namespace)
        if self.log_stats and self.prefix_cache_stats is not None:
            self.prefix_cache_stats.reset = True
        return True

    # What of vLLM's own is not used here

    def remove_skipped_blocks(
        self, request_id: str, processed_computed_tokens: int, num_prompt_tokens: int | None = None
    ) -> None:
        """With full attention none are."""

    def pop_blocks_for_free(self, request: Request) -> list[Any]:
        raise UnsupportedModel("blocks are freed in order, never later")

    def evict_blocks(self, block_ids: set[int]) -> None:
        raise UnsupportedModel("blocks leave by policy or by purge, never by number")

    def take_events(self) -> list[Any]:
        """Ours are told elsewhere (`core.py`), with their namespaces and without tokens."""
        return []

    def new_step_starts(self) -> None:
        self.manager.tick()

    def catch_up(self, requests: Iterable[Request]) -> None:
        """Every token that has room is known to its sequence: for who counts them, as steps within a block do not."""
        for request in requests:
            sequence = self.sequences.get(request.request_id)
            if sequence is not None:
                room = len(sequence.pages) * self.manager.cache.block_tokens
                fresh = request.all_token_ids[len(sequence.tokens) : min(request.num_tokens, room)]
                self.manager.grow(sequence, fresh)

    def _goes_on_within_its_last_block(self, sequence: BlockSequence, computed: int, upto: int) -> bool:
        """Most steps of most answers: no block is completed, none is lacking, and nobody lowered its limit. Its tokens
        are told with the next that matter.
        """
        width = self.manager.cache.block_tokens
        return (
            upto <= len(sequence.pages) * width
            and computed // width == sequence.filled_tokens // width
            and self.manager.is_within_limit(sequence)
        )

    def _grow(self, sequence: BlockSequence, request: Request, upto: int) -> Deferred | None:
        known = len(sequence.tokens)
        if upto <= len(sequence.pages) * self.manager.cache.block_tokens and known >= request.num_tokens:
            return None
        fresh = request.all_token_ids[known : request.num_tokens]
        room = max(0, upto - max(known, request.num_tokens))
        return self.manager.grow(sequence, fresh, room_for_tokens=room)

    def _fill(self, sequence: BlockSequence, upto: int) -> None:
        """Where that completes a block. As in vLLM, what a step computes can be hit by whoever is in the same step."""
        width = self.manager.cache.block_tokens
        if upto // width > sequence.filled_tokens // width:
            self.manager.fill(sequence, upto)

    def _told(self, pages: Sequence[int]) -> KVCacheBlocks:
        if not pages:
            return self.empty_kv_cache_blocks
        blocks = self._blocks
        return KVCacheBlocks(([blocks[page] for page in pages],))
