"""Where prompts part: the branchings of the tree that their beginnings make."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from engine_agent.divergence.marks import common


@dataclass(frozen=True, slots=True)
class Branching:
    depth: int  # so many marks they have in common
    members: tuple[int, ...]  # the prompts that come by here, by their places, in order


def branchings(prompts: Sequence[bytes]) -> list[Branching]:
    """Those of most prompts first, and of as many the one nearest the beginning."""
    order = sorted(range(len(prompts)), key=prompts.__getitem__)
    shared = [common(prompts[a], prompts[b]) for a, b in pairwise(order)]
    found = [Branching(depth, tuple(sorted(order[low:high]))) for depth, low, high in _stretches(shared)]
    return sorted(found, key=lambda one: (-len(one.members), one.depth))


def _stretches(shared: Sequence[int]) -> list[tuple[int, int, int]]:
    """(depth, from, until) of every stretch of neighbours that have `depth` in common and no more as a whole."""
    found: list[tuple[int, int, int]] = []
    open_: list[tuple[int, int]] = []  # (depth, from), ever deeper
    for place, depth in enumerate([*shared, -1]):
        low = place
        while open_ and open_[-1][0] > depth:
            deep, low = open_.pop()
            found.append((deep, low, place + 1))
        if not open_ or open_[-1][0] < depth:
            open_.append((depth, low))
    return found
