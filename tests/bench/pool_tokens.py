"""Row E4: how many tokens one pool holds in each format, by taking pages until there are no more. Bookkeeping only: no
memory of the pool's size is allocated.
"""

from engine_agent.cache.pool import Arena
from kernels.formats import KV_FORMATS
from kernels.layout import PageLayout

# Llama 3.1 8B, and about what its weights leave for keys and values on cards of 24, 80 and 141 GB.
LAYERS, KV_HEADS, HEAD_SIZE = 32, 8, 128
POOLS_GIB = (6, 60, 120)


def layout_of(name: str) -> PageLayout:
    return PageLayout(KV_FORMATS[name], LAYERS, KV_HEADS, HEAD_SIZE)


def tokens_that_fit(name: str, pool_bytes: int) -> int:
    """In a pool that every offered format may use, and this one does."""
    layouts = {one: layout_of(one) for one, kv_format in KV_FORMATS.items() if kv_format.is_offered}
    arena = Arena(pool_bytes, {one: layout.page_bytes for one, layout in layouts.items()})
    most = arena.most_pages(name)
    taken = arena.take(name, most - arena.missing(name, most))
    assert arena.missing(name, 1) == 1
    return len(taken) * layouts[name].block_tokens
