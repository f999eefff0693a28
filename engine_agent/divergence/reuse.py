"""Computes what a prefix cache would have served of consecutive prompts, by block arithmetic alone."""

from collections.abc import Iterable, Sequence

from engine_agent.divergence.marks import MARK_BYTES, common

BLOCK_TOKENS = 16


def hit_tokens(prompts: Iterable[bytes], block_tokens: int = BLOCK_TOKENS) -> int:
    """Return the hits of all prompts: full blocks up to which an earlier prompt was equal. The cache evicts nothing."""
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
    """Return for each prompt how many marks the best earlier one shares with its beginning; -1 for the first."""
    return [
        max((common(prompt, earlier) for earlier in prompts[:index]), default=-1)
        for index, prompt in enumerate(prompts)
    ]
