"""What a long-running process keeps of the memory that it has freed: little, however many threads allocated it."""

import ctypes

ARENAS = 2
LARGE_BYTES = 256 * 1024
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # M_… of glibc's malloc.h


def allocator_bound() -> None:
    """Bound what glibc keeps; any other allocator stays as it is. Call this before threads start.

    By default each thread gets an arena, up to eight for each core, and each arena keeps its own free memory. A web
    process, which has a thread for each request, kept twice of what it used. What is large goes back to the system when
    it is freed: by default glibc stops doing that after the first large block.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(_ARENA_MAX, ARENAS)
    mallopt(_MMAP_THRESHOLD, LARGE_BYTES)
    mallopt(_TRIM_THRESHOLD, LARGE_BYTES)
