"""Zero purged pages in vLLM's workers. Imports torch when called."""

from collections.abc import Sequence
from typing import Any


def zero_worker_pages(worker: Any, pages: Sequence[int], blocks: int) -> int:
    """Return how many bytes were zeroed. `blocks`: the total, which identifies a cache's block dimension."""
    return sum(zero_pages(cache, pages, blocks) for cache in worker.model_runner.kv_caches)


def zero_pages(cache: Any, pages: Sequence[int], blocks: int) -> int:
    parts = cache if isinstance(cache, list | tuple) else [cache]
    zeroed = 0
    for part in parts:
        bits = part.view(dtype=_bits(part.element_size()))  # 8-bit floats cannot be indexed everywhere
        index = (*[slice(None)] * list(part.shape).index(blocks), list(pages))
        bits[index] = 0
        zeroed += bits[index].numel() * bits.element_size()
    return zeroed


def _bits(size: int) -> Any:
    import torch

    return {1: torch.uint8, 2: torch.int16, 4: torch.int32}[size]
