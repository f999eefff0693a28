"""Computes a request's cost at an engine, in prompt tokens to compute before its answer begins. Pure.

Cached tokens cost nothing. A request already at the engine costs as much as it delays a new one, more if it waits for a
seat; a prompt that does not fit into the pool waits until others end. Costs that differ little count as equal: then a
session stays at its engine, which every gateway computes from the session's name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from engine_agent.gateway.standing import Standing
from engine_agent.gateway.tables import Engine

REQUEST_TOKENS = 128  # the delay that each running request causes
WAITING_TOKENS = 1_024  # the delay by a request without a seat: it goes first, and another answer has to end for it
TIE_TOKENS = 256
BLOCK_TOKENS = 16
DEPTHS = 4  # matches of equal cost are compared by quarters of the prompt

Candidate = tuple[Engine, Standing]


@dataclass(frozen=True, slots=True)
class Sight:
    """Prefix hints for one request: how many tokens of its prompt each engine has cached, and its session."""

    matches: Mapping[str, int] = field(default_factory=dict)
    prompt_tokens: int = 0  # the tokens that were read
    session: bytes | None = None
    is_countable: bool = False  # the matches cover all tokens that the engine will count

    def matched(self, agent: str) -> int:
        return self.matches.get(agent, 0)

    @property
    def is_blind(self) -> bool:
        return self.session is None and not any(self.matches.values())


BLIND = Sight()


def cost(engine_load: Standing, matched: int, prompt_tokens: int) -> int:
    missing = max(0, prompt_tokens - matched)
    return missing + queue_cost(engine_load) + pool_cost(engine_load, missing)


def queue_cost(engine_load: Standing) -> int:
    return REQUEST_TOKENS * engine_load.load + (WAITING_TOKENS - REQUEST_TOKENS) * engine_load.queued


def pool_cost(engine_load: Standing, missing: int) -> int:
    """Return the cost of missing free blocks: for those, an answer has to end."""
    if not engine_load.pool_blocks:
        return 0
    return BLOCK_TOKENS * max(0, -(-missing // BLOCK_TOKENS) - engine_load.free_blocks)


def cheapest(candidates: Sequence[Candidate], hints: Sight) -> Engine:
    """Return the cheapest engine, the first of equals. A session prefers its engine among similar costs."""
    costs = [cost(engine_load, hints.matched(engine.agent), hints.prompt_tokens) for engine, engine_load in candidates]
    highest_cost = min(costs) + TIE_TOKENS
    tied_candidates = [pair for pair, engine_cost in zip(candidates, costs, strict=True) if engine_cost <= highest_cost]
    if hints.session is None:
        return min(zip(candidates, costs, strict=True), key=lambda pair: pair[1])[0][0]
    session = hints.session
    return max(tied_candidates, key=lambda pair: (_depth(hints, pair[0].agent), attachment(session, pair[0].agent)))[0]


def attachment(session: bytes, agent: str) -> bytes:
    """Return an engine's score for a session; the highest keeps it, whatever others come or go (rendezvous hashing)."""
    return blake2b(agent.encode(), key=session[:64], digest_size=8).digest()


def _depth(hints: Sight, agent: str) -> int:
    return DEPTHS * hints.matched(agent) // max(1, hints.prompt_tokens)
