"""What a prefix cache would have served of prompts that came one after the other: block arithmetic, nothing else."""

from collections.abc import Iterable, Sequence

from engine_agent.divergence.marks import MARK_BYTES, common

BLOCK_TOKENS = 16


def hit_tokens(prompts: Iterable[bytes], block_tokens: int = BLOCK_TOKENS) -> int:
    """Of all, in full blocks that an earlier one began with too. A cache that keeps everything."""
    width = block_tokens * MARK_BYTES
    chains: dict[tuple[int, bytes], int] = {}
    hits = 0
    for prompt in prompts:
        parent, is_hit = 0, True
        for start in range(0, len(prompt) - width + 1, width):
            link = (parent, prompt[start : start + width])
            is_hit = is_hit and link in chains
            hits += is_hit * block_tokens
            parent = chains.setdefault(link, len(chains) + 1)
    return hits


def best_matches(prompts: Sequence[bytes]) -> list[int]:
    """For each, how many marks the best of those before it begins with too; -1 for the first."""
    return [max((common(one, other) for other in prompts[:place]), default=-1) for place, one in enumerate(prompts)]
