"""How often Python looks for garbage that refers to itself: less often than by default, which suits small programs.

By default it looks after 700 allocations. A start, which allocates and keeps almost everything, spent a fifth of its
time on that, and decoding a batch of reports, a hundred thousand small objects, a third.
"""

import gc
from typing import Final

ALLOCATIONS: Final = 50_000  # between two looks at what is young


def collect_less_often() -> None:
    gc.set_threshold(ALLOCATIONS, 10, 10)


def freeze_what_is_loaded() -> None:
    """Whatever a process has loaded, it keeps: the collector need not look through it again."""
    gc.collect()
    gc.freeze()
