"""The real manager, the model and the bytes side by side: told the same things, and compared after each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from struct import pack
from typing import Any

import pytest

from engine_agent.cache import manager as real
from engine_agent.cache.books import CacheLimits
from engine_agent.cache.errors import NeverFits, PinOverBudget
from engine_agent.cache.events import Event, Gap
from engine_agent.cache.keys import ChainIdentity, Digest, chain_root
from engine_agent.cache.operations import Tier
from engine_agent.cache.policy import NamespacePolicy
from engine_agent.cache.pool import Arena
from engine_agent.cache.sequences import Sequence
from tests.unit.cache import model
from tests.unit.cache.clocks import HandClock
from tests.unit.cache.following import FollowingModel
from tests.unit.cache.oracle import Offset, Oracle

BLOCK_TOKENS = 2
Kin = tuple[str, bytes]  # model revision and salt
USUAL: Kin = ("m", b"")
CAUSES = ("expired", "evicted", "quota", "purged", "disabled")


@dataclass(frozen=True, slots=True)
class World:
    page_bytes: dict[str, int]
    pages: int  # of the largest format
    slab_pages: int = 1
    host_pages: int = 0
    follows: tuple[Tier, ...] = ()  # where the rules leave open who goes


@dataclass(frozen=True, slots=True)
class Draining:
    """Of a generation that is no more: pages that have to be zeroed before nobody uses any of them."""

    pages: int
    zeroed_before: int


@dataclass(slots=True, eq=False)
class Twin:
    """One request, in both."""

    real: Sequence
    model: model.Sequence
    written: int = 0
    counted: bool = True

    @property
    def kv_format(self) -> str:
        return self.model.chain.kv_format


@dataclass(slots=True)
class Follower:
    """A gateway that knows the index from events alone."""

    manager: real.BlockManager
    boot: str = ""
    number: int = 0
    held: dict[Digest, dict[Digest, set[str]]] = field(default_factory=dict)  # root, digest, tiers

    def catch_up(self) -> None:
        answer = self.manager.events.since(self.number, boot=self.boot)
        if isinstance(answer, Gap):
            self.start_over()
            return
        for event in answer.events:
            assert event.number == self.number + 1
            self.number = event.number
            self._apply(event)

    def start_over(self) -> None:
        snapshot = self.manager.events.snapshot()
        self.boot, self.number, self.held = snapshot.boot, snapshot.number, {}
        for stored in snapshot.stored:
            for digest in stored.digests:
                self.held.setdefault(stored.root, {}).setdefault(digest, set()).update(stored.tiers)

    def _apply(self, event: Event) -> None:
        tree = self.held.setdefault(event.root, {})
        for digest in event.digests:
            tiers = tree.setdefault(digest, set())
            match event.kind:
                case "stored" | "loaded":
                    assert event.tier not in tiers, f"{event} of what is there already"
                    tiers.add(event.tier)
                case "removed":
                    assert event.tier in tiers, f"{event} of what is not there"
                    tiers.remove(event.tier)
                    assert event.is_gone == (not tiers), f"{event}, and it is in {tiers}"
                case "demoted":
                    assert "device" in tiers, f"{event} of what is not on the device"
                    tiers.discard("device")
                    tiers.add(event.tier)
        if event.kind == "cleared":
            tree.clear()
        for digest in [digest for digest, tiers in tree.items() if not tiers]:
            del tree[digest]

    def index(self, tier: str) -> set[Digest]:
        return {digest for tree in self.held.values() for digest, tiers in tree.items() if tier in tiers}


class Both:
    """The real manager, the model and the bytes, told the same things and compared after each."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.clock = HandClock()
        largest = max(world.page_bytes.values())
        slab = largest * world.slab_pages
        self.arena = Arena(largest * world.pages, world.page_bytes, slab)
        self.host = Arena(largest * world.host_pages, world.page_bytes, slab, "host") if world.host_pages else None
        limits = CacheLimits(
            demote_after_hits=0, demote_least_seconds=0, event_blocks=24
        )  # few, so followers miss some
        self.manager = real.BlockManager(
            self.arena, self.host, clock=self.clock, block_tokens=BLOCK_TOKENS, limits=limits
        )
        self.follower = Follower(self.manager)
        self.model = self.new_model()
        offsets: dict[Tier, Offset] = {"device": self.arena.offset, "host": (self.host or self.arena).offset}
        self.oracle = Oracle(BLOCK_TOKENS, world.page_bytes, offsets)
        self.running: list[Twin] = []
        self.waiting: list[Twin] = []
        self.secrets: dict[int, tuple[bytes, int]] = {}  # of a namespace's generation: its key and epoch
        self.draining: dict[int, Draining] = {}
        self.digests: dict[model.Key, Digest] = {}

    def new_model(self) -> model.Model:
        pool: dict[str, Any] = {
            "clock": self.clock,
            "capacity_bytes": self.arena.capacity_bytes,
            "page_bytes": self.world.page_bytes,
            "block_tokens": BLOCK_TOKENS,
            "host_bytes": self.host.capacity_bytes if self.host else 0,
            "demote_after_hits": 0,
        }
        if not self.world.follows:
            return model.Model(**pool)
        return FollowingModel(follows=self.world.follows, is_there=self.is_there, **pool)

    def is_there(self, tier: Tier, key: model.Key) -> bool:
        self.follower.catch_up()
        return self.digest(key) in self.follower.index(tier)

    # What is done to both

    def set_namespace(self, name: str, policy: NamespacePolicy) -> None:
        known = self.model.namespaces.get(name)
        epoch = known.epoch if known else 1
        key = self.secrets[known.generation][0] if known else self.new_key()
        self.manager.set_namespace(name, key=key, epoch=epoch, policy=policy)
        self.model.set_namespace(name, epoch=epoch, policy=policy)
        self.secrets[self.model.namespaces[name].generation] = key, epoch

    def remove_namespace(self, name: str) -> None:
        self.settle_first()
        self.drain(name)
        self.manager.remove_namespace(name)
        self.model.remove_namespace(name)
        self.waiting = [twin for twin in self.waiting if twin.model.chain.namespace != name]

    def purge(self, name: str) -> None:
        key, epoch = self.new_key(), self.model.namespaces[name].epoch + 1
        self.settle_first()
        self.drain(name)
        self.manager.purge(name, key=key, epoch=epoch)
        self.model.purge(name, epoch=epoch)
        self.secrets[self.model.namespaces[name].generation] = key, epoch

    def drain(self, name: str) -> None:
        """All that is indexed of a namespace, in any tier, is about to go."""
        self.carry_out()
        self.model.settle()
        pages = sum((block.page is not None) + (block.host_page is not None) for block in self.model.live(name))
        generation = self.model.namespaces[name].generation
        self.draining[generation] = Draining(pages, self.zeroed_of(generation))

    def request(
        self,
        name: str,
        tokens: list[int],
        kv_format: str,
        *,
        kin: Kin,
        ttl_seconds: float | None,
        room: int,
        counted: bool = True,
    ) -> Twin | None:
        """Admitted, or waiting, or refused for ever."""
        revision, salt = kin
        made = self.manager.sequence(
            name, tokens, kv_format=kv_format, model_revision=revision, salt=salt, ttl_seconds=ttl_seconds
        )
        modelled = self.model.sequence(
            name, tokens, kv_format=kv_format, model_revision=revision, salt=salt, ttl_seconds=ttl_seconds
        )
        return self.admit(Twin(made, modelled, counted=counted), room)

    def admit(self, twin: Twin, room: int) -> Twin | None:
        found = real_answer(lambda: self.manager.admit(twin.real, room_for_tokens=room, counted=twin.counted))
        expected = self.expected(found, lambda: self.model.admit(twin.model, room, counted=twin.counted))
        self.carry_out()
        if isinstance(found, real.Admitted):
            assert isinstance(expected, model.Admission), (found, expected)
            self.check_answer(found, expected)
            self.running.append(twin)
            twin.written = found.cached_tokens
            self.check_hit(twin)
            return twin
        if found != "never fits":
            self.waiting.append(twin)
        return None

    def expected(self, found: object, ask: Callable[[], object]) -> object:
        """What the model says, which must be the same as was found, where it is a refusal."""
        if isinstance(self.model, FollowingModel) and "device" in self.model.follows:
            self.model.refused = None
            if isinstance(found, real.Deferred):
                self.model.refused = model.Refusal(found.reason, found.missing_bytes)
        try:
            expected = ask()
        except model.Never:
            expected = "never fits"
        if isinstance(found, real.Deferred):
            assert isinstance(expected, model.Refusal), (found, expected)
            assert (found.reason, found.missing_bytes) == (expected.reason, expected.missing_bytes), (found, expected)
        else:
            assert not isinstance(expected, model.Refusal), (found, expected)
            assert (found == "never fits") == (expected == "never fits"), (found, expected)
        return expected

    def grow(self, twin: Twin, tokens: list[int]) -> None:
        if self.model.is_above_limit(twin.model):
            return  # by a policy that came later; when exactly it is told so is nobody's promise
        found = real_answer(lambda: self.manager.grow(twin.real, tokens))
        self.expected(found, lambda: self.model.grow(twin.model, tokens))
        self.carry_out()
        for index in self.oracle.blocks(twin.written, len(twin.real.tokens)):
            assert found or not self.is_shared(twin, index), f"block {index} is still shared, and will be written"

    def fill(self, twin: Twin, upto: int) -> None:
        """The engine wrote, then says so."""
        self.carry_out()
        pages, tokens = twin.real.pages, twin.real.tokens
        if any(self.is_shared(twin, index) for index in self.oracle.blocks(twin.written, upto)):
            return  # forked before this was written: whoever wants to write has to grow first, or to be alone
        self.oracle.write(pages, twin.kv_format, self.chain(twin), tokens, start=twin.written, upto=upto)
        twin.written = upto
        self.manager.fill(twin.real, upto)
        self.model.fill(twin.model, upto)

    def is_shared(self, twin: Twin, index: int) -> bool:
        page = twin.real.pages[index]
        return any(page in other.real.pages for other in self.running if other is not twin)

    def fork(self, twin: Twin) -> None:
        child = Twin(self.manager.fork(twin.real), self.model.fork(twin.model), twin.written)
        self.running.append(child)

    def release(self, twin: Twin) -> None:
        self.running.remove(twin)
        self.manager.release(twin.real)
        self.model.release(twin.model)

    def damage(self, twin: Twin, index: int) -> None:
        """What a load brought is not what it should be."""
        page = twin.real.pages[index]
        self.settle_first()
        spoilt = self.manager.forget(twin.kv_format, page)
        self.model.forget(twin.model.pages[index])
        assert set(spoilt) == {one.real for one in self.running if page in one.real.pages}

    def pin(self, pin_id: str, name: str, tokens: list[int], kv_format: str, seconds: float | None) -> None:
        if not self.model.namespaces[name].policy.prefix_caching:
            return
        expires_at = None if seconds is None else self.clock() + seconds
        arguments = {"kv_format": kv_format, "model_revision": USUAL[0], "expires_at": expires_at}
        self.settle()
        try:
            self.model.pin(pin_id, name, tokens, **arguments)  # type: ignore[arg-type]
        except model.Over:
            with pytest.raises(PinOverBudget):
                self.manager.pin(pin_id, name, tokens, **arguments)  # type: ignore[arg-type]
        else:
            self.manager.pin(pin_id, name, tokens, **arguments)  # type: ignore[arg-type]

    def unpin(self, pin_id: str) -> None:
        self.manager.unpin(self.model.pins[pin_id].namespace, pin_id)
        self.model.unpin(pin_id)

    def carry_out(self) -> None:
        self.oracle.carry_out(self.manager.take_operations())

    # What is compared

    def settle(self) -> None:
        self.manager.tick()
        self.model.settle()
        if isinstance(self.model, FollowingModel):
            self.model.follow_host()

    def settle_first(self) -> None:
        """So that a model that follows sees what time did before it sees what is done now."""
        if self.world.follows:
            self.settle()

    def compare(self) -> None:
        self.settle()
        self.check_namespaces()
        self.check_index()
        self.check_tables()
        self.check_bytes()
        self.check_zeros()
        problems = [*self.manager.check_integrity(), *self.arena.check(), *(self.host.check() if self.host else [])]
        assert problems == [], problems

    def check_answer(self, found: real.Admitted, expected: model.Admission) -> None:
        unsure = {"purged?": {"purged", "cold", "dtype"}, "evicted?": {"evicted", "quota"}, "dtype?": {"dtype", "cold"}}
        if self.world.follows:
            unsure["evicted"] = unsure["quota"] = unsure["evicted?"]
        assert found.miss_reason in unsure.get(expected.miss_reason, {expected.miss_reason}), (found, expected)
        assert found.cached_tokens == found.cached_blocks * BLOCK_TOKENS
        assert (found.cached_blocks, found.loaded_blocks) == (expected.cached_blocks, expected.host_blocks), (
            found,
            expected,
        )
        assert self.world.follows or found.evicted_by == expected.evicted_by, (found, expected)

    def check_namespaces(self) -> None:
        for name in self.model.known():
            expected = self.model.namespaces[name]
            stats = self.manager.stats(name)
            found = stats.counters
            resident = [use.resident_bytes for use in stats.tiers]
            assert resident == [self.model.resident(name, tier) for tier in self.tiers], (name, resident)
            live = self.model.live(name)
            by_format = self.model.resident_by_format(name)
            assert stats.resident_bytes_by_format == by_format, (name, stats.resident_bytes_by_format, by_format)
            assert stats.resident_blocks == len(live), (name, stats.resident_blocks, live)
            left = {cause: getattr(found, f"{cause}_blocks") for cause in CAUSES}
            assert self.as_sure(left) == self.as_sure(expected.left), (name, left, expected.left)
            assert found.inserted_blocks == len(live) + sum(left.values()), (found, len(live))
            tokens = found.prompt_tokens, found.cached_tokens
            assert tokens == (expected.prompt_tokens, expected.cached_tokens), (tokens, expected)
            self.check_pins(name)

    def as_sure(self, left: Mapping[str, int]) -> dict[str, int]:
        """How many left for which cause; which of two it was is not known where the model follows."""
        known = {cause: left.get(cause, 0) for cause in CAUSES}
        if self.world.follows:
            known["evicted"] += known.pop("quota") + left.get("evicted?", 0)
        return known

    def check_pins(self, name: str) -> None:
        protecting = self.model.protecting(name) if self.model.namespaces[name].policy.prefix_caching else {}
        for status in self.manager.pins(name):
            assert (status.state == "active") == (status.pin_id in protecting), status
            resident = self.model.pinned_blocks(status.pin_id)
            if status.state == "active":
                assert status.resident_blocks == len(resident), status
        assert {status.pin_id for status in self.manager.pins(name)} == {
            pin_id for pin_id, pin in self.model.pins.items() if pin.namespace == name
        }

    def check_index(self) -> None:
        self.follower.catch_up()
        for tier in self.tiers:
            expected = {self.digest(key): key for key in self.model.keys(tier)}
            found = self.follower.index(tier)
            assert found == set(expected), (
                f"{tier}: {len(found - set(expected))} too many, missing "
                f"{[expected[one] for one in set(expected) - found]}"
            )

    def check_tables(self) -> None:
        """Two tables name the same page in the one exactly where they do in the other."""
        pages: dict[tuple[str, int], int] = {}
        for twin in self.running:
            assert len(twin.real.pages) == len(twin.model.pages)
            for page, modelled in zip(twin.real.pages, twin.model.pages, strict=True):
                assert pages.setdefault((twin.kv_format, page), id(modelled)) == id(modelled), f"page {page}"
        assert len(set(pages.values())) == len(pages)
        assert self.arena.capacity_bytes - self.arena.free_bytes == self.model.used("device")
        if self.host:
            assert self.host.capacity_bytes - self.host.free_bytes == self.model.used("host")

    def check_bytes(self) -> None:
        self.carry_out()
        for twin in self.running:
            self.check_hit(twin)

    def check_hit(self, twin: Twin) -> None:
        """What it found and what it wrote is there, and is its own chain's."""
        wrong = self.oracle.wrong_pages(
            twin.real.pages, twin.kv_format, self.chain(twin), twin.real.tokens, upto=twin.written
        )
        assert not wrong, wrong

    def check_zeros(self) -> None:
        in_flight = {twin.model.chain.generation for twin in self.running}
        for generation in [one for one in self.draining if one not in in_flight]:
            wanted = self.draining.pop(generation)
            zeroed = self.zeroed_of(generation) - wanted.zeroed_before
            assert zeroed >= wanted.pages, f"{wanted.pages} pages of generation {generation}, {zeroed} of them zeroed"

    def zeroed_of(self, generation: int) -> int:
        of_it = [chain for chain in self.oracle.zeroed if isinstance(chain, model.Chain)]
        return sum(self.oracle.zeroed[chain] for chain in of_it if chain.generation == generation)

    @property
    def tiers(self) -> list[Tier]:
        return ["device", "host"] if self.host else ["device"]

    def chain(self, twin: Twin) -> model.Chain:
        """A generation is of one namespace and one epoch; the namespace's name may be gone."""
        return twin.model.chain._replace(namespace="")

    def digest(self, key: model.Key) -> Digest:
        if key not in self.digests:
            self.digests[key] = Digest(sha256(self.parent(key) + pack("<2I", *key.tokens[-BLOCK_TOKENS:])).digest())
        return self.digests[key]

    def parent(self, key: model.Key) -> Digest:
        chain, before = key.chain, key.tokens[:-BLOCK_TOKENS]
        if before:
            return self.digest(model.Key(chain, before))
        secret, epoch = self.secrets[chain.generation]
        identity = ChainIdentity(
            epoch, chain.model_revision, chain.kv_format, chain.scale_set, BLOCK_TOKENS, chain.salt
        )
        return chain_root(secret, identity)

    def new_key(self) -> bytes:
        return sha256(f"key {len(self.secrets)}".encode()).digest()


def real_answer(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except NeverFits:
        return "never fits"
