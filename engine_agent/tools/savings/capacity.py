"""Capacity: how many requests a machine can serve at once. There are two meanings, and both are reported.

In time: as many as still get 95 of 100 first tokens within a bound. In memory: as many as fit the pool, where requests
with a common beginning share its blocks.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

Holds = Callable[[int], Awaitable[bool]]  # returns whether this many at once are within the bound


async def most_within(holds: Holds, most: int) -> int:
    """Return the largest number up to `most` for which `holds` is true, or 0.

    The number is doubled until `holds` is false, then found by bisection, which assumes that `holds` is true below a
    true number.
    """
    lower, upper = 0, most + 1
    trial = 1
    while trial < upper and await holds(trial):
        lower, trial = trial, trial * 2
    upper = min(upper, trial)
    while upper - lower > 1:
        middle = (lower + upper) // 2
        if await holds(middle):
            lower = middle
        else:
            upper = middle
    return lower


@dataclass(frozen=True, slots=True)
class Room:
    """The numbers of requests that fit a pool together, with a common beginning and without."""

    pool_blocks: int
    with_caching: int
    without_caching: int


def room_in(pool_blocks: int, *, template_tokens: int, own_tokens: int, block_tokens: int) -> Room:
    """Return the room. `own_tokens` is the tail and the answer. Only full blocks of the template are shared."""
    whole = -(-(template_tokens + own_tokens) // block_tokens)
    shared = template_tokens // block_tokens
    sharing = max(0, pool_blocks - shared) // (whole - shared) if whole > shared else pool_blocks
    return Room(pool_blocks, with_caching=sharing, without_caching=pool_blocks // whole)
