"""How many requests a machine can have at once. Two meanings, and both are shown.

In time: so many that the first token of 95 in 100 still comes within a bound. In memory: so many as the pool has room
for, where requests that begin alike hold the blocks of their beginning once.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

Holds = Callable[[int], Awaitable[bool]]  # whether so many at once are within the bound


async def most_within(holds: Holds, most: int) -> int:
    """The largest number for which it holds, up to `most`: doubled until it does not, then narrowed down. 0: not even
    one. What holds for a number is taken to hold below it.
    """
    good, bad = 0, most + 1
    trial = 1
    while trial < bad and await holds(trial):
        good, trial = trial, trial * 2
    bad = min(bad, trial)
    while bad - good > 1:
        middle = (good + bad) // 2
        if await holds(middle):
            good = middle
        else:
            bad = middle
    return good


@dataclass(frozen=True, slots=True)
class Room:
    """Requests that fit in a pool together, with a beginning in common and without."""

    pool_blocks: int
    with_caching: int
    without_caching: int


def room_in(pool_blocks: int, *, template_tokens: int, own_tokens: int, block_tokens: int) -> Room:
    """`own_tokens` is the tail and the answer. Only full blocks are shared: the rest of the template is each one's."""
    whole = -(-(template_tokens + own_tokens) // block_tokens)
    shared = template_tokens // block_tokens
    sharing = max(0, pool_blocks - shared) // (whole - shared) if whole > shared else pool_blocks
    return Room(pool_blocks, with_caching=sharing, without_caching=pool_blocks // whole)
