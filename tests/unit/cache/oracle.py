"""What every page holds, known from nothing but what was written and what the manager told the engine to do.

The engine of the tests: it carries out Copy, Load, Demote, Move and Zero in the order given, and remembers which tokens
of which chain lie where. A chain's name has the namespace's epoch in it, so what belongs to another namespace, epoch,
format or salt never looks right. Bytes are told apart by where they lie, in grains that divide every format's page:
whoever writes to a slab in one format destroys what another format had there.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from math import gcd

from engine_agent.cache.operations import Copy, Demote, Load, Move, Operation, Tier, Zero

Tokens = tuple[int, ...]
Offset = Callable[[int, str], int]  # where a page of that format begins in its tier


@dataclass(frozen=True, slots=True)
class Content:
    """K and V from the block's beginning to the last of `tokens`; all tokens before made them what they are."""

    chain: Hashable
    tokens: Tokens


ZEROS = Content("zeros", ())


@dataclass(slots=True)
class Oracle:
    block_tokens: int
    page_bytes: dict[str, int]
    offset: dict[Tier, Offset]
    grains: dict[tuple[Tier, int], tuple[Content, int]] = field(default_factory=dict)  # and which of its page's it is
    zeroed: Counter[Hashable] = field(default_factory=Counter)  # pages, by the chain whose tokens they held

    def read(self, page: int, kv_format: str, tier: Tier = "device") -> Content | None:
        found = [self.grains.get((tier, grain)) for grain in self._grains(tier, kv_format, page)]
        whole = found[0] and found == [(found[0][0], number) for number in range(len(found))]
        return found[0][0] if found[0] and whole else None

    def carry_out(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            match operation:
                case Copy(kv_format, source, target):
                    self._put("device", kv_format, target, self.read(source, kv_format))
                case Load(kv_format, host_page, page):
                    self._put("device", kv_format, page, self.read(host_page, kv_format, "host"))
                case Demote(kv_format, page, host_page):
                    self._put("host", kv_format, host_page, self.read(page, kv_format))
                case Move(kv_format, source, target, tier):
                    self._put(tier, kv_format, target, self.read(source, kv_format, tier))
                case Zero(tier, kv_format, pages):
                    for page in pages:
                        was = self.read(page, kv_format, tier)
                        self.zeroed[was.chain if was else None] += 1
                        self._put(tier, kv_format, page, ZEROS)

    def write(
        self, pages: Sequence[int], kv_format: str, chain: Hashable, tokens: Sequence[int], *, start: int, upto: int
    ) -> None:
        """The model computed tokens[start:upto]. A page that is begun already must hold what comes before in it."""
        for index in self.blocks(start, upto):
            if start > index * self.block_tokens:
                wrong = self.wrong_page(pages, kv_format, chain, tokens, index=index, upto=start)
                assert not wrong, f"what was begun is not there: {wrong}"
            upto_here = min(upto, (index + 1) * self.block_tokens)
            self._put("device", kv_format, pages[index], Content(chain, tuple(tokens[:upto_here])))

    def wrong_page(
        self, pages: Sequence[int], kv_format: str, chain: Hashable, tokens: Sequence[int], *, index: int, upto: int
    ) -> str | None:
        """What is wrong with one of the pages that should hold tokens[:upto]. More than them may be there."""
        wanted = tuple(tokens[: min(upto, (index + 1) * self.block_tokens)])
        found = self.read(pages[index], kv_format)
        if found and found.chain == chain and found.tokens[: len(wanted)] == wanted:
            return None
        return f"block {index}, page {pages[index]}: {found} instead of {wanted} of {chain}"

    def wrong_pages(
        self, pages: Sequence[int], kv_format: str, chain: Hashable, tokens: Sequence[int], *, upto: int
    ) -> list[str]:
        looks = [
            self.wrong_page(pages, kv_format, chain, tokens, index=index, upto=upto) for index in self.blocks(0, upto)
        ]
        return [wrong for wrong in looks if wrong]

    def blocks(self, start: int, upto: int) -> range:
        """Which blocks have a token of tokens[start:upto]."""
        return range(start // self.block_tokens, -(-upto // self.block_tokens) if upto > start else 0)

    @property
    def _grain_bytes(self) -> int:
        return gcd(*self.page_bytes.values())

    def _grains(self, tier: Tier, kv_format: str, page: int) -> range:
        first = self.offset[tier](page, kv_format) // self._grain_bytes
        return range(first, first + self.page_bytes[kv_format] // self._grain_bytes)

    def _put(self, tier: Tier, kv_format: str, page: int, content: Content | None) -> None:
        for number, grain in enumerate(self._grains(tier, kv_format, page)):
            if content is None:
                self.grains.pop((tier, grain), None)
            else:
                self.grains[tier, grain] = content, number
