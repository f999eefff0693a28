"""Among vLLM's workers: what was purged is zeroed. Imports torch when called."""

from collections.abc import Sequence
from typing import Any


def zero_worker_pages(worker: Any, pages: Sequence[int], blocks: int) -> int:
    """How many bytes. `blocks`: how many there are, by which their dimension of a layer's cache is known."""
    return sum(zero_pages(cache, pages, blocks) for cache in worker.model_runner.kv_caches)


def zero_pages(cache: Any, pages: Sequence[int], blocks: int) -> int:
    parts = cache if isinstance(cache, list | tuple) else [cache]
    zeroed = 0
    for part in parts:
        bits = part.view(dtype=_bits(part.element_size()))  # floats of eight bits cannot be indexed everywhere
        index = (*[slice(None)] * list(part.shape).index(blocks), list(pages))
        bits[index] = 0
        zeroed += bits[index].numel() * bits.element_size()
    return zeroed


def _bits(size: int) -> Any:
    import torch

    return {1: torch.uint8, 2: torch.int16, 4: torch.int32}[size]
