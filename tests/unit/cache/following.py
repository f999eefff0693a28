"""The model for where the rules leave open who goes: it does what the real manager did, and says what was not just.

Shadows on the host go in no promised order, and where formats mix it depends on slabs whose page helps whom.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.unit.cache.model import Admission, Block, Key, Model, Page, Refusal, Sequence, Tier, Victim


class FollowingModel(Model):
    """Of a tier that it follows it knows what is there by now: each call comes after the real one's."""

    def __init__(self, *, follows: tuple[Tier, ...], is_there: Callable[[Tier, Key], bool], **others: Any) -> None:
        super().__init__(**others)
        self.follows = follows
        self.is_there = is_there
        self.refused: Refusal | None = None  # what the real one said to the present call

    def admit(self, sequence: Sequence, room_for_tokens: int = 0, *, counted: bool = True) -> Admission | Refusal:
        answer = super().admit(sequence, room_for_tokens, counted=counted)
        self.follow_host()
        return answer

    def grow(self, sequence: Sequence, tokens: list[int]) -> Refusal | None:
        answer = super().grow(sequence, tokens)
        self.follow_host()
        return answer

    def _room(self, name: str, need: int, tier: Tier, *, keep: list[Block]) -> list[Victim] | Refusal:
        if tier not in self.follows:
            return super()._room(name, need, tier, keep=keep)
        assert tier == "device", "nobody asks for room in a lower tier that is followed"
        gone = [block for block in self.blocks.values() if block.page and not self.is_there("device", block.key)]
        for block in gone:
            assert self.is_idle(block), f"{block} was taken from those who use it"
            assert block not in keep, f"{block} was found, and taken to make room for what was not"
        self._check_just(name, 0 if self.refused else need, gone)
        victims = [Victim(block, "pressure") for block in gone]
        if self.refused:
            self._evict(victims, by=name, keep=keep)  # where formats mix, what goes may lie where it does not help
        return self.refused or victims

    def _check_just(self, name: str, need: int, gone: list[Block]) -> None:
        """A limit is not passed, and nobody was brought below a reservation by others."""
        sizes = Counter[str]()
        for block in gone:
            sizes[block.key.chain.namespace] += self._bytes(block)
        left = self.resident(name) + need - sizes.pop(name, 0)
        assert self.refused or left <= self._limit(name, "device"), f"{name} has {left}, more than its limit"
        for other, size in sizes.items():
            left = self.resident(other) - size
            assert left >= self._reserved(other, "device"), f"{other} keeps {left} because of {name}"

    def _trim(self, name: str) -> None:
        if "device" not in self.follows:
            super()._trim(name)
            return
        while self._is_above(name, "device") and (gone := self._gone(name)):
            self._evict_from_device(Victim(gone[0], "quota"), by=name, keep=[])

    def _trim_host(self, name: str) -> None:
        if "host" not in self.follows:
            super()._trim_host(name)

    def _gone(self, name: str) -> list[Block]:
        return [block for block in self._idle(name, "device", []) if not self.is_there("device", block.key)]

    def _evict_from_device(self, victim: Victim, *, by: str, keep: list[Block]) -> None:
        block, name = victim.block, victim.block.key.chain.namespace
        if "host" not in self.follows or not self._may_demote(block):
            super()._evict_from_device(victim, by=by, keep=keep)
        elif block.host_page:
            block.page = None
        elif self.is_there("host", block.key):
            block.page, block.host_page = None, Page(name, block.key.chain.kv_format)
        else:
            self._leave(block, "evicted?", by=by)

    def follow_host(self) -> None:
        if "host" not in self.follows:
            return
        for block in [block for block in self.blocks.values() if block.host_page]:
            if self.is_there("host", block.key):
                continue
            if block.page:
                block.host_page = None
            else:
                assert self.is_idle(block), f"{block} was taken from those who use it"
                self._leave(block, "evicted?")
        for name in self.known():
            assert not (self._is_above(name, "host") and self._idle(name, "host", [])), f"{name} is above its limit"
