"""Plan a step: the next token of every answer, then pieces of prompts, within a budget of tokens. Pure.

A running answer never waits for a prompt: at most one chunk is computed in the same step. The rest of the budget, and
at least a quantum, goes to prompts in pieces of a quantum, each to the namespace that has had the least for its weight.
So two long prompts of two tenants advance side by side.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from engine_agent.engine.shares import ComputeShares

QUANTA = 4  # the number of parts into which a chunk is divided

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Candidate(Generic[Key]):
    """An object with tokens to compute. `rank`: the order within a namespace, lowest first."""

    key: Key
    namespace: str
    tokens: int
    is_decode: bool
    rank: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Turn(Generic[Key]):
    key: Key
    tokens: int


def plan_step(
    candidates: Sequence[Candidate[Key]], shares: ComputeShares, weights: Mapping[str, float], *, budget_tokens: int
) -> list[Turn[Key]]:
    """Return which candidates compute now, and how many tokens each. Charge the planned tokens."""
    if not candidates:
        return []
    shares.begin_step({candidate.namespace for candidate in candidates})
    turns = [Turn(candidate.key, candidate.tokens) for candidate in candidates if candidate.is_decode]
    for candidate in candidates:
        if candidate.is_decode:
            shares.charge(candidate.namespace, candidate.tokens, weights[candidate.namespace])
    quantum = max(1, budget_tokens // QUANTA)
    # At least one quantum, so that answers alone never fill a step.
    remaining_tokens = max(budget_tokens - sum(turn.tokens for turn in turns), quantum)
    return turns + _prompts(candidates, shares, weights, remaining_tokens, quantum=quantum)


def _prompts(
    candidates: Sequence[Candidate[Key]],
    shares: ComputeShares,
    weights: Mapping[str, float],
    remaining_tokens: int,
    *,
    quantum: int,
) -> list[Turn[Key]]:
    lines: dict[str, list[Candidate[Key]]] = {}
    for candidate in sorted(
        (prompt_candidate for prompt_candidate in candidates if not prompt_candidate.is_decode),
        key=lambda prompt_candidate: prompt_candidate.rank,
        reverse=True,
    ):
        lines.setdefault(candidate.namespace, []).append(candidate)
    granted_tokens: dict[int, int] = {}  # by the candidate's index
    order: list[Candidate[Key]] = []
    while remaining_tokens and lines:
        name = shares.first(lines)
        candidate = lines[name][-1]
        if id(candidate) not in granted_tokens:
            order.append(candidate)
        granted_before = granted_tokens.get(id(candidate), 0)
        piece = min(quantum, remaining_tokens, candidate.tokens - granted_before)
        granted_tokens[id(candidate)] = granted_before + piece
        shares.charge(name, piece, weights[name])
        remaining_tokens -= piece
        if granted_before + piece == candidate.tokens:
            lines[name].pop()
            if not lines[name]:
                del lines[name]
    return [Turn(candidate.key, granted_tokens[id(candidate)]) for candidate in order]
