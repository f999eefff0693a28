"""A real block manager over real pages in two tiers, with everything at once: what a table names is what was written.

In place of a model stands a pattern for each block, made of all the tokens up to its end, its format and its epoch.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import shake_128

import pytest
import torch
from torch import Tensor

from engine_agent.cache.books import CacheLimits
from engine_agent.cache.manager import Admitted, BlockManager
from engine_agent.cache.policy import NamespacePolicy
from engine_agent.cache.sequences import Sequence
from engine_agent.engine.kv_pages import KvPages
from tests.unit.cache.clocks import HandClock
from tests.unit.engine_pages.making import FORMATS, host_of, kv_pages, read, read_host, write

NAMES = ("acme", "bolt", "coil")
BLOCK = 16


@dataclass(eq=False)
class Running:
    sequence: Sequence
    epoch: int
    is_begun: bool = False


@dataclass
class Work:
    """Requests of three namespaces, begun, computed and ended in any order."""

    kv: KvPages
    chance: random.Random
    damages: bool
    clock: HandClock = field(default_factory=HandClock)
    epochs: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NAMES, 1))
    running: list[Running] = field(default_factory=list)
    hits: int = 0
    loaded: int = 0
    damaged: int = 0

    def __post_init__(self) -> None:
        limits = CacheLimits(demote_after_hits=0, demote_least_seconds=0)
        self.manager = BlockManager(*self.kv.storages, clock=self.clock, block_tokens=BLOCK, limits=limits)
        for name in NAMES:
            self.govern(name)

    def govern(self, name: str) -> None:
        policy = NamespacePolicy(
            offload="host",
            ttl_seconds=self.chance.choice([5, 1_000]),
            limit_share=self.chance.choice([0.5, 1]),
            prefix_caching=self.chance.random() < 0.95,
        )
        self.manager.set_namespace(name, key=self.key(name), epoch=self.epochs[name], policy=policy)

    def key(self, name: str) -> bytes:
        return f"{name} {self.epochs[name]}".encode().ljust(32)

    def step(self) -> None:
        """One thing happens, then the engine's own part of a step."""
        what = self.chance.random()
        if what < 0.4 and len(self.running) < 5:
            self.begin()
        elif what < 0.45:
            self.clock.advance(self.chance.choice([0.1, 1]))
        elif what < 0.47:
            name = self.chance.choice(NAMES)
            self.epochs[name] += 1
            self.manager.purge(name, key=self.key(name), epoch=self.epochs[name])
        elif what < 0.5:
            self.govern(self.chance.choice(NAMES))
        elif what < 0.55 and self.running:
            self.end(self.chance.choice(self.running))
        elif self.damages and what < 0.6:
            self.spoil()
        self.turn()

    def begin(self) -> None:
        name, kv_format = self.chance.choice(NAMES), self.chance.choice(FORMATS)
        choices = [self.chance.randrange(2) for _ in range(self.chance.randint(1, 6))]
        tokens = [choice * 1_000 + at for choice in choices for at in range(BLOCK)] + [7]
        sequence = self.manager.sequence(name, tokens, kv_format=kv_format, model_revision="m")
        answer = self.manager.admit(sequence)
        if isinstance(answer, Admitted):
            self.loaded += answer.loaded_blocks
            self.running.append(Running(sequence, self.epochs[name]))

    def turn(self) -> None:
        self.kv.run(self.manager.take_operations())
        for one in self.kv.finished_loads(wait_seconds=self.chance.choice([0, 0.001])):
            if not one.is_sound:
                self.damaged += 1
                spoilt = set(self.manager.forget(one.kv_format, one.page))
                for running in [running for running in self.running if running.sequence in spoilt]:
                    self.end(running)
        for running in list(self.running):
            if self.kv.is_ready(running.sequence.pages, running.sequence.kv_format):
                self.compute(running)

    def compute(self, running: Running) -> None:
        sequence = running.sequence
        if running.is_begun:
            self.check(running)
            if self.chance.random() < 0.5:
                self.end(running)
            return
        running.is_begun = True
        self.hits += sequence.cached_tokens // BLOCK
        for block in range(sequence.cached_tokens // BLOCK, len(sequence.pages)):
            write(self.kv, sequence.pages[block], sequence.kv_format, self.pattern(running, block))
        self.check(running)
        self.manager.fill(sequence, len(sequence.tokens))

    def check(self, running: Running) -> None:
        sequence = running.sequence
        for block, page in enumerate(sequence.pages):
            found = read(self.kv, page, sequence.kv_format)
            assert torch.equal(found, self.pattern(running, block)), f"block {block} of {sequence.namespace}"

    def pattern(self, running: Running, block: int) -> Tensor:
        sequence = running.sequence
        tokens = sequence.tokens[: (block + 1) * BLOCK]
        name = f"{sequence.namespace} {running.epoch} {sequence.kv_format} {tokens.tolist()}"
        size = self.kv.layouts[sequence.kv_format].page_bytes
        return torch.frombuffer(bytearray(shake_128(name.encode()).digest(size)), dtype=torch.uint8)

    def end(self, running: Running) -> None:
        self.running.remove(running)
        self.manager.release(running.sequence)

    def spoil(self) -> None:
        """Some bits of the host's memory turn."""
        host = host_of(self.kv).host
        places = self.chance.sample(range(len(host.bytes)), 4)

        def turn_over() -> None:
            host.bytes[places] ^= 16

        host_of(self.kv).submit(turn_over)

    def finish(self) -> None:
        while self.running or self.kv.is_loading:
            self.turn()
        self.kv.settle()
        assert self.manager.check_integrity() == []


@contextmanager
def work(seed: int, *, damages: bool) -> Iterator[Work]:
    with kv_pages(pages=40, host_pages=60, formats=FORMATS) as kv:
        yield Work(kv, random.Random(seed), damages)


@pytest.mark.parametrize("seed", range(2))
def test_what_a_table_names_is_what_was_written(seed: int) -> None:
    with work(seed, damages=False) as busy:
        for _ in range(500):
            busy.step()
        busy.finish()
        assert busy.damaged == 0
        assert busy.hits > 50
        assert busy.loaded > 20


@pytest.mark.parametrize("seed", range(2))
def test_what_changed_on_the_host_is_never_read(seed: int) -> None:
    with work(seed, damages=True) as busy:
        for _ in range(500):
            busy.step()
        busy.finish()
        assert busy.damaged > 0
        assert sum(busy.manager.stats(name).counters.damaged_blocks for name in NAMES) > 0


def test_after_a_purge_nothing_of_it_is_left_in_either_tier() -> None:
    with work(1, damages=False) as busy:
        for _ in range(300):
            busy.step()
        busy.finish()
        there = [
            (tier, tree.kv_format, page)
            for name in NAMES
            for tree in busy.manager.cache.namespace(name).trees.values()
            for run in tree.runs()
            for tier, copy in enumerate(run.copies)
            for page in (copy.pages if copy else [])
        ]
        assert {tier for tier, _, _ in there} == {0, 1}
        for name in NAMES:
            busy.epochs[name] += 1
            busy.manager.purge(name, key=busy.key(name), epoch=busy.epochs[name])
        busy.turn()
        busy.finish()
        for tier, kv_format, page in there:
            assert not (read_host if tier else read)(busy.kv, page, kv_format).any()
        assert [storage.used_bytes for storage in busy.kv.storages] == [0, 0]
