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
    common_marks = [common(prompts[previous], prompts[following]) for previous, following in pairwise(order)]
    branches = [Branching(depth, tuple(sorted(order[low:high]))) for depth, low, high in _stretches(common_marks)]
    return sorted(branches, key=lambda branching: (-len(branching.members), branching.depth))


def _stretches(common_marks: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return (depth, from, until) of every longest run of neighbours that have exactly `depth` in common."""
    stretches: list[tuple[int, int, int]] = []
    open_stretches: list[tuple[int, int]] = []  # (depth, from), with rising depth
    for index, depth in enumerate([*common_marks, -1]):
        low = index
        while open_stretches and open_stretches[-1][0] > depth:
            closed_depth, low = open_stretches.pop()
            stretches.append((closed_depth, low, index + 1))
        if not open_stretches or open_stretches[-1][0] < depth:
            open_stretches.append((depth, low))
    return stretches
