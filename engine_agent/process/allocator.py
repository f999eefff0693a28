"""Bound the freed memory that a long-running process keeps."""

import ctypes

ARENAS = 2
LARGE_BYTES = 256 * 1024
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # M_… of glibc's malloc.h


def allocator_bound() -> None:
    """Bound the freed memory that glibc keeps; other allocators stay unchanged. Call this before threads start.

    By default each thread gets an arena, up to eight for each core, and each arena keeps its own free memory. A web
    process with a thread for each request kept twice the memory it used. Large blocks are returned to the system when
    freed; by default glibc stops doing that after the first large block.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(_ARENA_MAX, ARENAS)
    mallopt(_MMAP_THRESHOLD, LARGE_BYTES)
    mallopt(_TRIM_THRESHOLD, LARGE_BYTES)
