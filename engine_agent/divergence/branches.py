"""Finds where prompts diverge: the branchings in the tree of their prefixes."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from engine_agent.divergence.marks import common


@dataclass(frozen=True, slots=True)
class Branching:
    depth: int  # marks that all members have in common
    members: tuple[int, ...]  # the prompts that pass here, by index, sorted


def branchings(prompts: Sequence[bytes]) -> list[Branching]:
    """Return the branchings: those with the most prompts first, and of as many the one nearest the beginning."""
    order = sorted(range(len(prompts)), key=prompts.__getitem__)
    shared = [common(prompts[a], prompts[b]) for a, b in pairwise(order)]
    branches = [Branching(depth, tuple(sorted(order[low:high]))) for depth, low, high in _stretches(shared)]
    return sorted(branches, key=lambda branching: (-len(branching.members), branching.depth))


def _stretches(shared: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return (depth, from, until) of every longest run of neighbours that have exactly `depth` in common."""
    stretches: list[tuple[int, int, int]] = []
    open_: list[tuple[int, int]] = []  # (depth, from), with rising depth
    for index, depth in enumerate([*shared, -1]):
        low = index
        while open_ and open_[-1][0] > depth:
            deep, low = open_.pop()
            stretches.append((deep, low, index + 1))
        if not open_ or open_[-1][0] < depth:
            open_.append((depth, low))
    return stretches
