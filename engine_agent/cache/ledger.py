"""The eviction ledger: every eviction, by victim and by requesting namespace, within bounds.

Counters only rise. When there are more pairs than the ledger can store, further ones are summed under OTHERS: the
totals stay right, only the names are lost.
"""

from dataclasses import dataclass
from typing import Literal

Cause = Literal["quota", "pressure"]  # the victim's own limit; competition for the pool

OTHERS = "*"


@dataclass(frozen=True, slots=True)
class Pair:
    victim: str
    by: str
    cause: Cause
    tier: str


@dataclass(slots=True)
class Displaced:
    blocks: int = 0
    bytes: int = 0
    demoted_blocks: int = 0  # of those, how many another tier still has: not lost
    demoted_bytes: int = 0
    last_at: float = 0.0


class Ledger:
    def __init__(self, *, most_pairs: int) -> None:
        self._most_pairs = most_pairs
        self._pairs: dict[Pair, Displaced] = {}

    def record(self, pair: Pair, *, blocks: int, size: int, demoted: bool, now: float) -> None:
        entry = self._entry(pair)
        entry.blocks += blocks
        entry.bytes += size
        entry.demoted_blocks += blocks if demoted else 0
        entry.demoted_bytes += size if demoted else 0
        entry.last_at = now

    def pairs(self) -> dict[Pair, Displaced]:
        return dict(self._pairs)

    def _entry(self, pair: Pair) -> Displaced:
        displaced = self._pairs.get(pair)
        if displaced is None:
            if len(self._pairs) >= self._most_pairs:
                pair = Pair(OTHERS, OTHERS, pair.cause, pair.tier)
            displaced = self._pairs.setdefault(pair, Displaced())
        return displaced
