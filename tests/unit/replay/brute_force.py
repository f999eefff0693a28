"""What a replay must come out as, counted with two ordered dictionaries a namespace and nothing else.

Requests are instantaneous. `BruteForce` has the manager's rules (full blocks, the last token recomputed, shares);
`optimistic_hit_ratio` those of the figures to reach (a rest counts as a block, nothing is recomputed).
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from engine_agent.tools.replay.policies import Shares, Ttl
from engine_agent.tools.replay.trace import Request


@dataclass(frozen=True, slots=True)
class Served:
    cached_tokens: int
    reason: str
    pages: int  # in use right after admission


@dataclass(slots=True)
class Space:
    """One namespace: when each of its blocks was last released and when it was created, both oldest first."""

    shares: Shares
    released: OrderedDict[int, tuple[float, int]] = field(default_factory=OrderedDict)  # and by which request
    created: OrderedDict[int, float] = field(default_factory=OrderedDict)
    ghosts: dict[int, str] = field(default_factory=dict)
    resident: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0

    def oldest(self, mode: str) -> tuple[int, float] | None:
        """The block that expires first, and the moment its TTL counts from."""
        if mode == "absolute":
            return next(iter(self.created.items()), None)
        return next(((block, at) for block, (at, _) in self.released.items()), None)

    def drop(self, block: int, reason: str) -> None:
        del self.released[block], self.created[block]
        self.ghosts[block] = reason
        self.resident -= 1

    def put(self, block: int, now: float) -> None:
        self.created[block] = now
        self.created.move_to_end(block)
        self.ghosts.pop(block, None)


class BruteForce:
    """The cache of one replay, in pages of one block each."""

    def __init__(
        self,
        ttl: Ttl,
        *,
        block_tokens: int = 512,
        pool_blocks: int | None = None,
        shares: Mapping[str, Shares] | None = None,
        namespaces: Iterable[str] = ("default",),
    ) -> None:
        self.spaces = {name: Space((shares or {}).get(name, Shares())) for name in namespaces}
        self._ttl, self._block_tokens, self._pool = ttl, block_tokens, pool_blocks
        self._served = 0

    def run(self, requests: Iterable[Request]) -> list[Served]:
        return [self.serve(request) for request in requests]

    def serve(self, request: Request) -> Served:
        now, size, space = request.at_seconds, self._block_tokens, self.spaces[request.namespace]
        self._served += 1
        self._expire(now)
        blocks = request.hash_ids[: request.input_tokens // size]
        matchable = blocks[: (request.input_tokens - 1) // size]
        matched = next((k for k, block in enumerate(matchable) if block not in space.created), len(matchable))
        reason = "none" if matched == len(matchable) else space.ghosts.get(matchable[matched], "cold")
        space.prompt_tokens += request.input_tokens
        if not self._can_make_room(space, request.input_tokens, matched):
            return Served(0, "refused", 0)
        for block in matchable[:matched]:  # in use, so not to be evicted
            del space.released[block]
        pages = -(-request.input_tokens // size) - matched
        space.resident += pages
        self._make_room(space)
        resident = sum(one.resident for one in self.spaces.values())
        for block in blocks[matched:]:  # its own page replaces one that is there but could not be matched
            space.resident -= block in space.created
            space.put(block, now)
        space.resident -= request.input_tokens % size > 0  # what fills no block goes at once
        for block in reversed(blocks):  # released deepest first
            space.released[block] = (now, self._served)
            space.released.move_to_end(block)
        space.cached_tokens += matched * size
        return Served(matched * size, reason, resident)

    def hit_ratio(self, namespace: str = "default") -> float:
        return self.spaces[namespace].cached_tokens / self.spaces[namespace].prompt_tokens

    def _expire(self, now: float) -> None:
        if self._ttl.mode is None:
            return
        for space in self.spaces.values():
            while (oldest := space.oldest(self._ttl.mode)) and now >= oldest[1] + self._ttl.seconds:
                space.drop(oldest[0], "expired")

    def _can_make_room(self, taker: Space, tokens: int, matched: int) -> bool:
        """Nobody else is being served, so what cannot be had now never can."""
        if self._pool is None:
            return True
        pages, own_idle = -(-tokens // self._block_tokens), len(taker.released) - matched
        others = [space for space in self.spaces.values() if space is not taker]
        lent = [int(space.resident - self._reserved(space)) for space in others]
        idle = own_idle + sum(max(0, min(len(space.released), one)) for space, one in zip(others, lent, strict=True))
        limit = self._limit(taker)
        return (
            taker.resident + pages - matched - own_idle <= limit
            and sum(space.resident for space in self.spaces.values()) + pages - matched - idle <= self._pool
        )

    def _make_room(self, taker: Space) -> None:
        """The taker is charged already: it goes below its own limit, then who is first in rank gives."""
        if self._pool is None:
            return
        while taker.shares.limit < 1 and taker.resident > self._limit(taker):
            taker.drop(next(iter(taker.released)), "quota")
        while sum(space.resident for space in self.spaces.values()) > self._pool:
            victim = min((one for one in self.spaces.values() if self._is_evictable(one, taker)), key=self._rank)
            victim.drop(next(iter(victim.released)), "evicted")

    def _reserved(self, space: Space) -> float:
        """In blocks; a share is of tokens, and whole."""
        return int(space.shares.reserved * (self._pool or 0) * self._block_tokens) / self._block_tokens

    def _limit(self, space: Space) -> float:
        return int(space.shares.limit * (self._pool or 0) * self._block_tokens) / self._block_tokens

    def _is_evictable(self, space: Space, taker: Space) -> bool:
        return bool(space.released) and (space is taker or space.resident - 1 >= self._reserved(space))

    def _rank(self, space: Space) -> tuple[int, int]:
        """Most above its reservation for its weight, in steps of 1/1024 of the pool; among equals, the oldest block."""
        size = self._block_tokens
        step = max(1, (self._pool or 0) * size // 1024)
        above = (space.resident - self._reserved(space)) * size / space.shares.weight
        return -int(above // step), next(iter(space.released.values()))[1]


def optimistic_hit_ratio(requests: Sequence[Request], ttl: Ttl, *, block_tokens: int = 512) -> float:
    """Every id is a block of its own size, what is there when a request comes is a hit, recomputed is created anew."""
    since: dict[int, float] = {}
    cached = prompt = 0
    for request in requests:
        now, has_missed = request.at_seconds, False
        for index, one in enumerate(request.hash_ids):
            has_missed |= one not in since or (ttl.mode is not None and now - since[one] >= ttl.seconds)
            if not has_missed:
                cached += min(block_tokens, request.input_tokens - index * block_tokens)
            if has_missed or ttl.mode != "absolute":
                since[one] = now
        prompt += request.input_tokens
    return cached / prompt
