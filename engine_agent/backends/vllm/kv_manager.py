"""vLLM's `KVCacheManager` with our block manager inside. `engine_agent.cache` decides which request has which block and
which blocks are evicted; vLLM's scheduler sees its usual interface. Imports vLLM.

vLLM's hash map, its queue of free blocks and its reference counts are not used; its block objects are, for their
numbers. A request gets its blocks at admission (`admission_queue.py`), before the scheduler asks for them.
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
    """A model feature that this scheduler does not support; plain vLLM may."""


def flat_pages(stock: KVCacheManager, names: Iterable[str]) -> FlatPages:
    """Return all of vLLM's blocks except its null block. Raises UnsupportedModel."""
    groups = stock.kv_cache_config.kv_cache_groups
    kinds = [type(group.kv_cache_spec) for group in groups]
    if kinds != [FullAttentionSpec]:
        kind_names = ", ".join(kind.__name__ for kind in kinds)
        raise UnsupportedModel(f"one kind of full attention in all layers is served under policies, found {kind_names}")
    config = stock.kv_cache_config
    page_bytes = groups[0].kv_cache_spec.page_size_bytes * len(groups[0].layer_names)
    return FlatPages(range(1, config.num_blocks), page_bytes, tuple(names))


class PolicyKVCacheManager(KVCacheManager):  # type: ignore[misc]
    """Replaces the manager that vLLM's scheduler has made."""

    def __init__(self, stock: KVCacheManager, manager: BlockManager) -> None:
        self.__dict__.update(stock.__dict__)
        self.manager = manager
        self.sequences: dict[str, BlockSequence] = {}  # requests with blocks
        self.make_room: Callable[[Request, Deferred], None] = lambda request, deferred: None
        self.cut: Callable[[Request], None] = lambda request: None  # called for a request that can never continue
        self._blocks = stock.block_pool.blocks

    # Called by the scheduler

    @property
    def usage(self) -> float:
        """Return the used share; as in vLLM, idle blocks count as free."""
        device = self.manager.cache.books.device
        return (device.storage.used_bytes - device.evictable_bytes) / device.storage.capacity_bytes

    def get_computed_blocks(self, request: Request) -> tuple[KVCacheBlocks, int, int]:
        """Return the request's hit, which is fixed and leased since its admission."""
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
        **unused_arguments: Any,
    ) -> KVCacheBlocks | None:
        """Return the request's new blocks. Without room, move the request to preempt to the end of the list: None."""
        assert not num_external_computed_tokens
        assert not delay_cache_blocks
        sequence = self.sequences[request.request_id]
        computed = request.num_computed_tokens + num_new_computed_tokens + num_new_tokens
        upto = min(computed + num_lookahead_tokens, self.max_model_len)
        if self._goes_on_within_its_last_block(sequence, min(computed, request.num_tokens), upto):
            return self.empty_kv_cache_blocks
        pages_before = len(sequence.pages)
        try:
            deferred = self._grow(sequence, request, upto)
        except NeverFits:
            self.cut(request)
            return None
        if deferred is not None:
            self.make_room(request, deferred)
            return None
        self._fill(sequence, min(computed, request.num_tokens))
        return self._told(sequence.pages[pages_before:])

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        """Add tokens that were unknown when their blocks were allocated. Without room, the next step handles the
        request.
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
        """Drop the blocks of all namespaces, as if caching were off for a moment. Pins are recomputed."""
        cache = self.manager.cache
        if not self.manager.runs_nothing:
            return False
        for namespace in list(cache.books.namespaces.values()):
            cache.empty(namespace)
        if self.log_stats and self.prefix_cache_stats is not None:
            self.prefix_cache_stats.reset = True
        return True

    # Parts of vLLM's interface that are not used

    def remove_skipped_blocks(
        self, request_id: str, processed_computed_tokens: int, num_prompt_tokens: int | None = None
    ) -> None:
        """Do nothing: with full attention no block is skipped."""

    def pop_blocks_for_free(self, request: Request) -> list[Any]:
        raise UnsupportedModel("blocks are freed in order, never later")

    def evict_blocks(self, block_ids: set[int]) -> None:
        raise UnsupportedModel("blocks leave by policy or by purge, never by number")

    def take_events(self) -> list[Any]:
        """Return nothing: our events, with namespaces and without tokens, go through `core.py`."""
        return []

    def new_step_starts(self) -> None:
        self.manager.tick()

    def catch_up(self, requests: Iterable[Request]) -> None:
        """Add the tokens that steps within a block have skipped to their sequences, before those are counted."""
        for request in requests:
            sequence = self.sequences.get(request.request_id)
            if sequence is not None:
                room = len(sequence.pages) * self.manager.cache.block_tokens
                fresh = request.all_token_ids[len(sequence.tokens) : min(request.num_tokens, room)]
                self.manager.grow(sequence, fresh)

    def _goes_on_within_its_last_block(self, sequence: BlockSequence, computed: int, upto: int) -> bool:
        """Return whether no block becomes full or is missing, and no limit was lowered, as in most steps of most
        answers.

        Its tokens are then added with the next block.
        """
        width = self.manager.cache.block_tokens
        return (
            upto <= len(sequence.pages) * width
            and computed // width == sequence.filled_tokens // width
            and self.manager.is_within_limit(sequence)
        )

    def _grow(self, sequence: BlockSequence, request: Request, upto: int) -> Deferred | None:
        known_tokens = len(sequence.tokens)
        if upto <= len(sequence.pages) * self.manager.cache.block_tokens and known_tokens >= request.num_tokens:
            return None
        fresh = request.all_token_ids[known_tokens : request.num_tokens]
        room = max(0, upto - max(known_tokens, request.num_tokens))
        return self.manager.grow(sequence, fresh, room_for_tokens=room)

    def _fill(self, sequence: BlockSequence, upto: int) -> None:
        """Fill blocks if one became full. As in vLLM, requests in the same step can hit them."""
        width = self.manager.cache.block_tokens
        if upto // width > sequence.filled_tokens // width:
            self.manager.fill(sequence, upto)

    def _told(self, pages: Sequence[int]) -> KVCacheBlocks:
        if not pages:
            return self.empty_kv_cache_blocks
        blocks = self._blocks
        return KVCacheBlocks(([blocks[page] for page in pages],))
