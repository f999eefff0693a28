"""Many namespaces with the very same prompts in one pool: a million operations, and nobody ever reads another's block.

Of every page it is known what was written to it last. LUMINET_CACHE_OPERATIONS makes the run longer, LUMINET_CACHE_SEED
makes it another one; a failure names both.
"""

import os
import random
from collections import Counter
from dataclasses import dataclass

from engine_agent.cache.manager import Admitted, BlockManager
from engine_agent.cache.operations import Copy, Move
from engine_agent.cache.policy import NamespacePolicy
from engine_agent.cache.pool import Arena
from engine_agent.cache.sequences import Sequence
from tests.unit.cache.clocks import HandClock

OPERATIONS = int(os.environ.get("LUMINET_CACHE_OPERATIONS", "1000000"))
SEED = int(os.environ.get("LUMINET_CACHE_SEED", "20261121"))
NAMESPACES = [f"org-{number}/default" for number in range(50)]
FORMATS = {"fp8": 64, "bf16": 128}
SALTS = (b"", b"a client's own")
BLOCK_TOKENS = 4
CAPACITY = 1024 * 64
PROMPTS = [[7] * 3, [7] * 6, [7] * 9, [7] * 10, [7, 7, 7, 7, 8, 8, 8, 8, 8], [7, 7, 7, 7, 9, 9, 9, 9, 9]]
MOST_RUNNING = 40


@dataclass(slots=True)
class Running:
    sequence: Sequence
    identity: int
    filled: int


class Traffic:
    """One seed's operations, each checked where it happens."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = HandClock()
        arena = Arena(CAPACITY, FORMATS, slab_bytes=1024)
        self.manager = BlockManager(arena, clock=self.clock, block_tokens=BLOCK_TOKENS)
        self.epochs = [1] * len(NAMESPACES)
        self.running: list[Running] = []
        self.written: dict[int, int] = {}  # page: the label of what was written there last
        self.tables: Counter[int] = Counter()  # page: how many tables it is in
        self.numbers: dict[object, int] = {}
        self.operations = 0
        self.seen: Counter[str] = Counter()
        for number in range(len(NAMESPACES)):
            self.set_policy(number)

    def run(self, operations: int) -> None:
        rare = [self.purge, self.set_policy, self.tick, self.tick]
        while self.operations < operations:
            number = int(self.random.random() ** 2 * len(NAMESPACES))  # some are busier than others
            draw = self.random.random()
            if draw < 0.02:
                self.random.choice(rare)(number)
            elif draw < 0.4 and len(self.running) < MOST_RUNNING:
                self.start(number)
            elif draw < 0.6 and self.running:
                self.go_on(self.random.choice(self.running))
            elif self.running:
                self.finish(self.running.pop(int(self.random.random() * len(self.running))))

    def start(self, number: int) -> None:
        """In each part of the day another format is the common one, so slabs have to change theirs."""
        draw = int(self.random.random() * 96)
        salt, is_common = SALTS[draw & 1], draw % 16 > 1
        kv_format = "fp8" if is_common == (self.operations // 25_000 % 2 == 0) else "bf16"
        sequence = self.manager.sequence(
            NAMESPACES[number], PROMPTS[draw // 16], kv_format=kv_format, model_revision="m", salt=salt
        )
        answer = self.manager.admit(sequence)
        self.operations += 2
        self.carry_out()
        if not isinstance(answer, Admitted):
            self.seen["deferred"] += 1
            return
        identity = self.number_of((number, self.epochs[number], kv_format, salt))
        one = Running(sequence, identity, answer.cached_tokens)
        self.check_hit(one, answer.cached_blocks)
        self.running.append(one)
        if self.random.random() < 0.9:
            self.fill(one)

    def check_hit(self, one: Running, cached: int) -> None:
        """It holds what it would have written itself, and nobody else uses what it got to write to."""
        pages = one.sequence.pages
        for block in range(cached):
            found, wanted = self.written[pages[block]], self.label(one, block)
            assert found == wanted, f"block {block} of identity {one.identity} is {found} instead of {wanted}"
        for page in pages[cached:]:
            assert not self.tables[page], f"page {page} was given away while somebody used it"
        for page in pages:
            self.tables[page] += 1
        self.seen["hits"] += cached

    def fill(self, one: Running) -> None:
        """What another request of its own filled meanwhile takes the place of what this one wrote."""
        pages, upto = list(one.sequence.pages), len(one.sequence.tokens)
        for block in range(one.filled // BLOCK_TOKENS, len(pages)):
            assert self.tables[pages[block]] == 1, f"page {pages[block]} is written to, and others use it"
            self.written[pages[block]] = self.label(one, block)
        self.manager.fill(one.sequence, upto)
        self.operations += 1
        one.filled = upto
        for block, (old, new) in enumerate(zip(pages, one.sequence.pages, strict=True)):
            if old != new:
                assert self.written[new] == self.label(one, block), f"took over {self.written[new]}"
                self.let_go(old)
                self.tables[new] += 1

    def go_on(self, one: Running) -> None:
        """A token more, which somebody else may have said as well."""
        if one.filled < len(one.sequence.tokens):
            self.fill(one)
            return
        before = len(one.sequence.pages)
        refused = self.manager.grow(one.sequence, [7])
        self.operations += 1
        self.carry_out()
        for page in one.sequence.pages[before:]:
            assert not self.tables[page], f"page {page} was given away while somebody used it"
            self.tables[page] += 1
        if not refused:
            self.fill(one)

    def finish(self, one: Running) -> None:
        pages = list(one.sequence.pages)
        self.manager.release(one.sequence)
        self.operations += 1
        for page in pages:
            self.let_go(page)

    def let_go(self, page: int) -> None:
        self.tables[page] -= 1
        assert self.tables[page] >= 0

    def carry_out(self) -> None:
        for operation in self.manager.take_operations():
            assert not isinstance(operation, Copy), "nobody forked"
            if isinstance(operation, Move):
                assert not self.tables[operation.source_page], (
                    f"page {operation.source_page} moved, and somebody uses it"
                )
                self.written[operation.target_page] = self.written[operation.source_page]
                self.seen["moves"] += 1

    def label(self, one: Running, block: int) -> int:
        """A number for what a block holds: no other identity, and no other tokens before its end, have the same."""
        return self.number_of((one.identity, *one.sequence.tokens[: (block + 1) * BLOCK_TOKENS]))

    def number_of(self, thing: object) -> int:
        return self.numbers.setdefault(thing, len(self.numbers))

    def set_policy(self, number: int) -> None:
        policy = NamespacePolicy(
            ttl_seconds=self.random.choice((5, 60)),
            ttl_mode=self.random.choice(("sliding", "absolute")),
            reserved_share=self.random.choice((0.0, 0.0, 1 / 64)),
            limit_share=self.random.choice((1.0, 1 / 16)),
            weight=self.random.choice((1.0, 3.0)),
        )
        epoch = self.epochs[number]
        self.manager.set_namespace(NAMESPACES[number], key=self.key(number), epoch=epoch, policy=policy)
        self.operations += 1

    def purge(self, number: int) -> None:
        self.epochs[number] += 1
        self.manager.purge(NAMESPACES[number], key=self.key(number), epoch=self.epochs[number])
        self.operations += 1
        self.carry_out()

    def key(self, number: int) -> bytes:
        return f"{number:08} {self.epochs[number]:08}".encode().ljust(32)

    def tick(self, _: int) -> None:
        self.clock.advance(0.5)
        self.manager.tick()
        self.operations += 1
        self.carry_out()


def test_a_million_operations_of_fifty_namespaces_never_cross() -> None:
    traffic = Traffic(SEED)
    try:
        traffic.run(OPERATIONS)
    except AssertionError as crossed:
        raise AssertionError(f"seed {SEED}, operation {traffic.operations}: {crossed}") from crossed
    assert traffic.manager.check_integrity() == []
    assert traffic.seen["hits"] > OPERATIONS / 50, "too few hits for the claim to mean anything"
    assert traffic.seen["moves"] > 0, "no page moved, so nothing is said of those that do"
