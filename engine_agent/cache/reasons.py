"""Miss reasons: bounded records of why blocks left.

Blocks that left stay in their tree as a hollow run, together with the departure that emptied it: the ghost. The number
of a namespace's ghosts is bounded, and the oldest are dropped first. Their horizon is shown to users: "cold" means "not
seen within that horizon". A purge removes the ghosts, too. It leaves eight bytes of each purged block's digest, under a
root that no block can have any more, for as long as the blocks would have lived, so that "purged" can be distinguished
from "cold". Neither record contains a token.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from engine_agent.cache.index import Chain, Ghost, Kinship, Run
from engine_agent.cache.keys import Digest, Digests

MissReason = Literal["none", "cold", "expired", "evicted", "quota", "purged", "dtype", "disabled", "other-agent"]

MARK_BYTES = 8
RUN_SIZE = 16  # a hollow run, and a tree of its own, take about as much memory as this many digests
MOST_PURGED = 64  # chains: each makes a miss hash its prompt once more


@dataclass(frozen=True, slots=True)
class Miss:
    """The reason of the first missed block, and for `evicted`, the namespace whose request evicted it."""

    reason: MissReason
    by: str | None = None


HIT = Miss("none")


class Ghosts:
    """One namespace's departures, the oldest first."""

    __slots__ = ("_departures", "_forgot_at", "blocks", "size")

    def __init__(self) -> None:
        self._departures: OrderedDict[Ghost, None] = OrderedDict()
        self._forgot_at: float | None = None
        self.blocks = 0
        self.size = 0  # in blocks; each run adds a fixed amount, however short it is

    def add(self, run: Run, ghost: Ghost) -> None:
        """Record the departure of a run that has just become hollow."""
        self._departures[ghost] = None
        self._join(run, ghost)
        self.blocks += len(run.digests)

    def split(self, run: Run, upper: Run) -> None:
        """Update the record after a hollow run was cut in two."""
        if run.ghost:
            self._join(upper, run.ghost)
            self.size -= len(upper.digests)

    def revive(self, run: Run) -> None:
        """Remove a recomputed run from the record."""
        if ghost := run.ghost:
            self._leave(run, ghost)
            if not ghost.live:
                del self._departures[ghost]

    def forget_beyond(self, bound: int) -> list[Run]:
        """Drop the oldest departures until the rest is within the bound. Return their runs, which may now be pruned."""
        forgotten = []
        while self.size > bound and self._departures:
            ghost, _ = self._departures.popitem(last=False)
            self._forgot_at = ghost.at
            for run in ghost.runs:
                if run.ghost is ghost:
                    self._leave(run, ghost)
                    forgotten.append(run)
        return forgotten

    def horizon_seconds(self, now: float) -> float:
        """Return how far back the record is complete; infinity while nothing was dropped."""
        return math.inf if self._forgot_at is None else now - self._forgot_at

    def clear(self) -> None:
        self._departures.clear()
        self._forgot_at = None
        self.blocks = self.size = 0

    def __len__(self) -> int:
        return len(self._departures)

    def _join(self, run: Run, ghost: Ghost) -> None:
        run.ghost = ghost
        ghost.runs.append(run)
        ghost.live += 1
        self.size += len(run.digests) + RUN_SIZE

    def _leave(self, run: Run, ghost: Ghost) -> None:
        run.ghost = None
        ghost.live -= 1
        self.blocks -= len(run.digests)
        self.size -= len(run.digests) + RUN_SIZE


@dataclass(frozen=True, slots=True)
class PurgedChain:
    """The record of one purged tree."""

    root: Digest
    kin: Kinship
    kv_format: str
    marks: frozenset[bytes]
    until: float

    def holds(self, digest: Digest) -> bool:
        return digest[:MARK_BYTES] in self.marks


def marks_of(digests: Iterable[Digest]) -> frozenset[bytes]:
    return frozenset(digest[:MARK_BYTES] for digest in digests)


Rehash = Callable[[Digest], Digests]  # the prompt's digests under another root, up to its first missed block


def latest(chains: Sequence[PurgedChain], *, most: int, now: float) -> list[PurgedChain]:
    """Return the newest chains that are still valid, as many as fit the bound with their marks."""
    newest_chains: list[PurgedChain] = []
    for chain in reversed(chains):
        most -= len(chain.marks) + RUN_SIZE
        if most < 0 or len(newest_chains) >= MOST_PURGED:
            break
        if chain.until > now:
            newest_chains.append(chain)
    return newest_chains[::-1]


def was_purged(purged: Sequence[PurgedChain], chain: Chain, rehash: Rehash, now: float) -> bool:
    """Return whether the first missed block was cached before a purge."""
    return any(
        purged_chain.until > now
        and purged_chain.kin == chain.kin
        and purged_chain.kv_format == chain.kv_format
        and purged_chain.holds(rehash(purged_chain.root)[-1])
        for purged_chain in purged
    )
