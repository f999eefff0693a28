"""The block manager a second time, as naively as it can be said: what the real one is compared with.

One object for each block in a flat dictionary, and no hashes: a block is named by its chain and every token before its
end. Whatever can be found by looking is looked for, every time: who holds a page, what is idle, when something expires,
what a namespace has. There are no runs, lists, heaps or wheels here that could be wrong in the same way as theirs.

Not here: where pages lie (so a mix of formats only where the pool has room to spare), bounds of ghosts, events.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from engine_agent.cache.policy import NamespacePolicy

Tier = Literal["device", "host"]
Tokens = tuple[int, ...]


class Chain(NamedTuple):
    """All that must be equal, but for the tokens. A namespace's generation is new after each purge and removal."""

    namespace: str
    generation: int
    model_revision: str
    kv_format: str
    scale_set: str = ""
    salt: bytes = b""


class Key(NamedTuple):
    chain: Chain
    tokens: Tokens  # from the beginning of the prompt to the block's end


@dataclass(eq=False, slots=True)
class Page:
    """Room for one block, equal to itself alone. Who has it is found by looking into tables and blocks."""

    namespace: str
    kv_format: str


@dataclass(eq=False, slots=True)
class Block:
    key: Key
    page: Page | None
    created: float
    cap: float
    host_page: Page | None = None
    touched: float = 0.0
    serial: int = 0  # of the release that left it idle
    hits: int = 0


@dataclass(eq=False, slots=True)
class Sequence:
    chain: Chain
    tokens: list[int]
    cap: float
    pages: list[Page] = field(default_factory=list)
    holds: set[Key] = field(default_factory=set)  # what it matched and filled, though that may be gone or revived since
    filled: int = 0
    is_kept: bool = True


@dataclass(frozen=True, slots=True)
class Pin:
    namespace: str
    generation: int  # a purge leaves the name of a pin, and nothing that it protects
    tokens: Tokens
    kv_format: str
    model_revision: str
    expires_at: float


@dataclass(slots=True)
class Namespace:
    policy: NamespacePolicy
    epoch: int
    generation: int
    inserted: int = 0
    left: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Admission:
    cached_blocks: int
    host_blocks: int
    miss_reason: str
    evicted_by: str | None


@dataclass(frozen=True, slots=True)
class Refusal:
    reason: str  # pool or limit
    missing_bytes: int


class Never(Exception):
    """More than the pool or the limit could ever give."""


class Over(Exception):
    """More than the budget of the namespace's pins."""


@dataclass(frozen=True, slots=True)
class Ghost:
    reason: str
    by: str | None = None


class Mark(NamedTuple):
    """That a purge took this block. Until when, for a block that was in use, nobody can say exactly; and marks that
    last until the last of their chain would have ended do no harm.
    """

    surely_until: float
    perhaps_until: float


class Victim(NamedTuple):
    block: Block
    cause: Literal["quota", "pressure"]


class Model:
    def __init__(
        self,
        *,
        clock: Callable[[], float],
        capacity_bytes: int,
        page_bytes: dict[str, int],
        block_tokens: int,
        host_bytes: int = 0,
        demote_after_hits: int = 1,
    ) -> None:
        self.clock = clock
        self.capacity: dict[Tier, int] = {"device": capacity_bytes, "host": host_bytes}
        self.page_bytes = page_bytes
        self.block_tokens = block_tokens
        self.demote_after_hits = demote_after_hits
        self.namespaces: dict[str, Namespace] = {}  # in the order of registration
        self.blocks: dict[Key, Block] = {}
        self.sequences: list[Sequence] = []  # admitted and not released
        self.pins: dict[str, Pin] = {}
        self.ghosts: dict[Key, Ghost] = {}
        self.marks: dict[Key, Mark] = {}  # under generation 0
        self.serial = 0
        self.generations = 0

    # What is found by looking

    def is_held(self, block: Block) -> bool:
        return any(block.key in sequence.holds for sequence in self.sequences)

    def is_pinned(self, block: Block) -> bool:
        return any(self._covers(pin, block.key) for pin in self.protecting(block.key.chain.namespace).values())

    def protecting(self, name: str) -> dict[str, Pin]:
        """The pins of a namespace that its budget covers, the oldest first; a smaller one may fit behind a larger."""
        namespace = self.namespaces[name]
        left = namespace.policy.pin_share * self.capacity["device"]
        covered = {}
        for pin_id, pin in self.pins.items():
            if pin.namespace == name and pin.generation == namespace.generation and self.wanted_bytes(pin) <= left:
                left -= self.wanted_bytes(pin)
                covered[pin_id] = pin
        return covered

    def is_idle(self, block: Block) -> bool:
        return not self.is_held(block) and not self.is_pinned(block)

    def deadline(self, block: Block) -> float:
        if self.is_pinned(block):
            return math.inf
        policy = self.namespaces[block.key.chain.namespace].policy
        if policy.ttl_mode == "absolute":
            return block.created + min(policy.ttl_seconds, block.cap, policy.max_age_seconds)
        oldest = block.created + policy.max_age_seconds
        if self.is_held(block):
            return oldest
        return min(oldest, block.touched + min(policy.ttl_seconds, block.cap))

    def deadlines(self) -> list[float]:
        """Every moment at which something of itself happens."""
        pins = [pin.expires_at for pin in self.pins.values()]
        return sorted({when for when in [*map(self.deadline, self.blocks.values()), *pins] if when < math.inf})

    def pages(self, tier: Tier) -> list[Page]:
        """Every page somebody has, once."""
        if tier == "host":
            return [block.host_page for block in self.blocks.values() if block.host_page]
        in_tables = [page for sequence in self.sequences for page in sequence.pages]
        indexed = [block.page for block in self.blocks.values() if block.page]
        return list({id(page): page for page in in_tables + indexed}.values())

    def used(self, tier: Tier) -> int:
        return sum(self.page_bytes[page.kv_format] for page in self.pages(tier))

    def resident(self, namespace: str, tier: Tier = "device") -> int:
        return sum(self.resident_by_format(namespace, tier).values())

    def resident_by_format(self, namespace: str, tier: Tier = "device") -> dict[str, int]:
        pages = Counter(page.kv_format for page in self.pages(tier) if page.namespace == namespace)
        return {kv_format: count * self.page_bytes[kv_format] for kv_format, count in pages.items()}

    def live(self, namespace: str) -> list[Block]:
        return [block for block in self.blocks.values() if block.key.chain.namespace == namespace]

    def known(self) -> list[str]:
        """The namespaces that can be asked for; those that were removed may have something in flight."""
        return [name for name in self.namespaces if ", generation" not in name]

    def keys(self, tier: Tier) -> set[Key]:
        """What is indexed there, matchable or under a missing parent."""
        return {key for key, block in self.blocks.items() if (block.page if tier == "device" else block.host_page)}

    def is_above_limit(self, sequence: Sequence) -> bool:
        """What it has by itself is more than its namespace may have by now."""
        has = len(sequence.pages) * self.page_bytes[sequence.chain.kv_format]
        return has > self._limit(sequence.chain.namespace, "device")

    def match(self, sequence: Sequence) -> list[Block]:
        if not self.namespaces[sequence.chain.namespace].policy.prefix_caching:
            return []
        found = []
        for key in self._keys(sequence, self._matchable(sequence)):
            if key not in self.blocks:
                break
            found.append(self.blocks[key])
        return found

    # Namespaces

    def set_namespace(self, name: str, *, epoch: int, policy: NamespacePolicy) -> None:
        self.settle()
        if name not in self.namespaces:
            self.generations += 1
            self.namespaces[name] = Namespace(policy, epoch, self.generations)
            return
        if epoch > self.namespaces[name].epoch:
            self.purge(name, epoch=epoch)
        before = {pin_id: self.pinned_blocks(pin_id) for pin_id in self.protecting(name)}
        self.namespaces[name].policy = policy
        for pin_id, let_go in before.items():
            if pin_id not in self.protecting(name):
                self._touch(let_go, self.clock())
        if not policy.prefix_caching:
            for sequence in self.sequences:
                sequence.is_kept &= sequence.chain.namespace != name
            for block in self.live(name):
                self._leave(block, "disabled")
        self.settle()

    def remove_namespace(self, name: str) -> None:
        """What is still in flight goes on under a name that nobody else will ever have."""
        self.settle()
        gone = self.namespaces.pop(name)
        self.blocks = {key: block for key, block in self.blocks.items() if key.chain.namespace != name}
        self.ghosts = {key: ghost for key, ghost in self.ghosts.items() if key.chain.namespace != name}
        self.marks = {key: mark for key, mark in self.marks.items() if key.chain.namespace != name}
        self.pins = {pin_id: pin for pin_id, pin in self.pins.items() if pin.namespace != name}
        former = f"{name}, generation {gone.generation}"
        self.namespaces[former] = gone
        for sequence in self.sequences:
            if sequence.chain.namespace == name:
                sequence.chain = sequence.chain._replace(namespace=former)
        for page in self.pages("device"):
            page.namespace = former if page.namespace == name else page.namespace

    def purge(self, name: str, *, epoch: int) -> None:
        self.settle()
        latest = self.clock() + self.namespaces[name].policy.ttl_seconds
        for block in self.live(name):
            before = self.marks.get(_without_generation(block.key), Mark(0, 0))
            until = self.deadline(block) if self.is_idle(block) else 0
            mark = Mark(max(before.surely_until, until), max(before.perhaps_until, latest))
            self.marks[_without_generation(block.key)] = mark
            self._leave(block, "purged")
        self.ghosts = {key: ghost for key, ghost in self.ghosts.items() if key.chain.namespace != name}
        self.generations += 1
        self.namespaces[name].generation = self.generations
        self.namespaces[name].epoch = epoch

    # Requests

    def sequence(
        self,
        namespace: str,
        tokens: list[int],
        *,
        kv_format: str,
        model_revision: str = "m",
        salt: bytes = b"",
        ttl_seconds: float | None = None,
    ) -> Sequence:
        generation = self.namespaces[namespace].generation
        chain = Chain(namespace, generation, model_revision, kv_format, "", salt)
        return Sequence(chain, list(tokens), math.inf if ttl_seconds is None else ttl_seconds)

    def admit(self, sequence: Sequence, room_for_tokens: int = 0, *, counted: bool = True) -> Admission | Refusal:
        self.settle()
        name, kv_format = sequence.chain.namespace, sequence.chain.kv_format
        sequence.chain = sequence.chain._replace(generation=self.namespaces[name].generation)
        matched = self.match(sequence)
        self._check_possible(name, kv_format, self._blocks_for(len(sequence.tokens) + room_for_tokens))
        count = self._blocks_for(len(sequence.tokens))
        answer = self._answer(sequence, matched)
        need = count - sum(block.page is not None for block in matched)
        plan = self._plan(name, kv_format, need, keep=matched)
        if isinstance(plan, Refusal):
            return plan
        self._evict(plan, by=name, keep=matched)
        for block in matched:
            block.hits += 1
            block.page = block.page or Page(name, kv_format)
        fresh = [Page(name, kv_format) for _ in range(count - len(matched))]
        sequence.pages = [block.page for block in matched if block.page] + fresh
        sequence.filled = len(matched) * self.block_tokens
        sequence.holds = {block.key for block in matched}
        sequence.is_kept = self.namespaces[name].policy.prefix_caching
        self.sequences.append(sequence)
        if counted:
            self.namespaces[name].prompt_tokens += len(sequence.tokens)
            self.namespaces[name].cached_tokens += sequence.filled
        return answer

    def grow(self, sequence: Sequence, tokens: list[int]) -> Refusal | None:
        self.settle()
        name, kv_format = sequence.chain.namespace, sequence.chain.kv_format
        count = self._blocks_for(len(sequence.tokens) + len(tokens))
        written = range(sequence.filled // self.block_tokens, min(count, len(sequence.pages)))
        shared = [index for index in written if self._tables_with(sequence.pages[index]) > 1]
        need = max(0, count - len(sequence.pages)) + len(shared)
        if need:
            self._check_possible(name, kv_format, max(count, len(sequence.pages)))
            plan = self._plan(name, kv_format, need, keep=[])
            if isinstance(plan, Refusal):
                return plan
            self._evict(plan, by=name, keep=[])
        for index in shared:
            sequence.pages[index] = Page(name, kv_format)
        while len(sequence.pages) < count:
            sequence.pages.append(Page(name, kv_format))
        sequence.tokens += tokens
        return None

    def fill(self, sequence: Sequence, upto_tokens: int) -> None:
        self.settle()
        first, last = sequence.filled // self.block_tokens, upto_tokens // self.block_tokens
        sequence.filled = max(sequence.filled, upto_tokens)
        namespace = self.namespaces[sequence.chain.namespace]
        is_gone = namespace.generation != sequence.chain.generation or sequence.chain.namespace not in self.known()
        if is_gone or not sequence.is_kept:
            return
        for index, key in enumerate(self._keys(sequence, last)):
            if index >= first:
                self._fill_block(sequence, index, key)

    def fork(self, sequence: Sequence) -> Sequence:
        self.settle()
        child = replace(sequence, tokens=list(sequence.tokens), pages=list(sequence.pages), holds=set(sequence.holds))
        self.sequences.append(child)
        return child

    def release(self, sequence: Sequence) -> None:
        self.settle()
        self.sequences = [one for one in self.sequences if one is not sequence]
        self._touch([block for block in self.blocks.values() if block.key in sequence.holds], self.clock())
        self.settle()

    def forget(self, page: Page) -> None:
        """Its content is not what it should be, and what was computed after it is worth nothing either."""
        self.settle()
        for spoilt in [block.key for block in self.blocks.values() if block.page is page]:
            for block in list(self.blocks.values()):
                if block.key.chain == spoilt.chain and block.key.tokens[: len(spoilt.tokens)] == spoilt.tokens:
                    self._leave(block, "evicted")
        for sequence in self.sequences:
            sequence.is_kept &= all(page is not own for own in sequence.pages)

    # Pins

    def pin(
        self,
        pin_id: str,
        namespace: str,
        tokens: list[int],
        *,
        kv_format: str,
        model_revision: str = "m",
        expires_at: float | None = None,
    ) -> None:
        self.settle()
        until = math.inf if expires_at is None else expires_at
        generation = self.namespaces[namespace].generation
        new = Pin(namespace, generation, tuple(tokens), kv_format, model_revision, until)
        budget = self.namespaces[namespace].policy.pin_share * self.capacity["device"]
        protecting = self.protecting(namespace).values()
        if sum(self.wanted_bytes(pin) for pin in [*protecting, new]) > budget:
            raise Over
        self.pins[pin_id] = new

    def unpin(self, pin_id: str) -> None:
        self.settle()
        self._unpin(pin_id, self.clock())
        self.settle()

    def pinned_blocks(self, pin_id: str) -> list[Block]:
        return [block for block in self.blocks.values() if self._covers(self.pins[pin_id], block.key)]

    # Time

    def settle(self) -> None:
        """All that happened of itself since the last look."""
        now = self.clock()
        for pin_id in sorted(self.pins, key=lambda one: self.pins[one].expires_at):
            if self.pins[pin_id].expires_at <= now:
                self._unpin(pin_id, self.pins[pin_id].expires_at)
        for block in [block for block in self.blocks.values() if self.deadline(block) <= now]:
            self._leave(block, "expired")
        for name in self.namespaces:
            self._trim(name)
        self.marks = {key: mark for key, mark in self.marks.items() if mark.perhaps_until > now}

    # What the rules say

    def _answer(self, sequence: Sequence, matched: list[Block]) -> Admission:
        reason, by = self._miss_reason(sequence, len(matched))
        return Admission(len(matched), sum(block.page is None for block in matched), reason, by)

    def _miss_reason(self, sequence: Sequence, matched: int) -> tuple[str, str | None]:
        if not self.namespaces[sequence.chain.namespace].policy.prefix_caching:
            return "disabled", None
        if matched == self._matchable(sequence):
            return "none", None
        missed = list(self._keys(sequence, matched + 1))[-1]
        if ghost := self.ghosts.get(missed):
            return ghost.reason, ghost.by
        if mark := self.marks.get(_without_generation(missed)):
            return "purged" if mark.surely_until > self.clock() else "purged?", None
        elsewhere = [key for key in self.blocks if self._differ_in_format_alone(missed, key)]
        if any(self._is_whole(key) for key in elsewhere):
            return "dtype", None
        return "dtype?" if elsewhere else "cold", None

    def _fill_block(self, sequence: Sequence, index: int, key: Key) -> None:
        own, now = sequence.pages[index], self.clock()
        block = self.blocks.get(key)
        is_idle = block is not None and self.is_idle(block)
        sequence.holds.add(key)
        if block is None:
            self.blocks[key] = Block(key, own, created=now, cap=sequence.cap, touched=now)
            self.ghosts.pop(key, None)
            self.namespaces[key.chain.namespace].inserted += 1
        elif block.page is own:
            return
        elif block.page is not None and not is_idle:
            sequence.pages[index] = block.page
        else:
            block.page, block.created, block.cap = own, now, max(block.cap, sequence.cap)

    def _plan(self, name: str, kv_format: str, pages: int, *, keep: list[Block]) -> list[Victim] | Refusal:
        return self._room(name, pages * self.page_bytes[kv_format], "device", keep=keep)

    def _room(self, name: str, need: int, tier: Tier, *, keep: list[Block]) -> list[Victim] | Refusal:
        """Whom to evict so that `name` may take `need` bytes: charge first, evict one at a time, on paper only."""
        resident = {one: self.resident(one, tier) for one in self.namespaces}
        resident[name] += need
        free = self.capacity[tier] - self.used(tier) - need
        idle = {one: self._idle(one, tier, keep) for one in self.namespaces}
        plan: list[Victim] = []

        def evict(victim: str, cause: Literal["quota", "pressure"]) -> int:
            block = idle[victim].pop(0)
            plan.append(Victim(block, cause))
            size = self._bytes(block)
            resident[victim] -= size
            return size

        limit = self._limit(name, tier)
        while limit < self.capacity[tier] and resident[name] > limit:
            if not idle[name]:
                return Refusal("limit", math.ceil(resident[name] - limit))
            free += evict(name, "quota")
        while free < 0:
            candidates = [
                one
                for one in self.namespaces
                if idle[one] and (one == name or resident[one] - self._bytes(idle[one][0]) >= self._reserved(one, tier))
            ]
            if not candidates:
                return Refusal("pool", -free)
            # max() answers the first of equals: the one registered first
            victim = max(candidates, key=lambda one: (self._rank(one, resident[one], tier), -idle[one][0].serial))
            free += evict(victim, "pressure")
        return plan

    def _rank(self, name: str, resident: int, tier: Tier) -> int:
        """How far above its reservation it is for its weight; about equal is equal."""
        step = max(1, self.capacity[tier] // 1024)
        return math.floor((resident - self._reserved(name, tier)) / self.namespaces[name].policy.weight / step)

    def _idle(self, name: str, tier: Tier, keep: list[Block]) -> list[Block]:
        """First in the order in which they go: what was least recently released, the deepest of one release first. On
        the host before all that what is on the device as well, used or not.
        """
        there = [block for block in self.live(name) if (block.page if tier == "device" else block.host_page)]
        is_shadow = {block.key: tier == "host" and block.page is not None for block in there}
        idle = [block for block in there if is_shadow[block.key] or (block not in keep and self.is_idle(block))]
        return sorted(idle, key=lambda one: (not is_shadow[one.key], one.serial, -len(one.key.tokens)))

    def _evict(self, plan: list[Victim], *, by: str, keep: list[Block]) -> None:
        for victim in plan:
            self._evict_from_device(victim, by=by, keep=keep)

    def _evict_from_device(self, victim: Victim, *, by: str, keep: list[Block]) -> None:
        block = victim.block
        assert block.page, "only what is on the device is evicted from it"
        if not block.host_page and self._may_demote(block):
            name = block.key.chain.namespace
            plan = self._room(name, self._bytes(block), "host", keep=keep)
            if not isinstance(plan, Refusal):
                for one in plan:
                    self._evict_from_host(one, by=name)
                block.host_page = Page(name, block.key.chain.kv_format)
        if block.host_page:
            block.page = None
        else:
            self._leave(block, "evicted" if victim.cause == "pressure" else "quota", by=by)

    def _evict_from_host(self, victim: Victim, *, by: str) -> None:
        if victim.block.page:
            victim.block.host_page = None
        else:
            self._leave(victim.block, "evicted" if victim.cause == "pressure" else "quota", by=by)

    def _trim(self, name: str) -> None:
        """A limit that was lowered holds at once, as far as nobody uses what is above it."""
        while self._is_above(name, "device") and (idle := self._idle(name, "device", [])):
            self._evict_from_device(Victim(idle[0], "quota"), by=name, keep=[])
        self._trim_host(name)

    def _trim_host(self, name: str) -> None:
        while self._is_above(name, "host") and (idle := self._idle(name, "host", [])):
            self._evict_from_host(Victim(idle[0], "quota"), by=name)

    def _is_above(self, name: str, tier: Tier) -> bool:
        return self.resident(name, tier) > self._limit(name, tier)

    def _may_demote(self, block: Block) -> bool:
        offload = self.namespaces[block.key.chain.namespace].policy.offload
        return offload != "none" and block.hits >= self.demote_after_hits and self.capacity["host"] > 0

    def _leave(self, block: Block, cause: str, *, by: str | None = None) -> None:
        del self.blocks[block.key]
        self.namespaces[block.key.chain.namespace].left[cause] += 1
        if cause != "purged":
            self.ghosts[block.key] = Ghost(cause, by)

    def _unpin(self, pin_id: str, moment: float) -> None:
        protected = pin_id in self.protecting(self.pins[pin_id].namespace)
        let_go = self.pinned_blocks(pin_id) if protected else []
        del self.pins[pin_id]
        self._touch(let_go, moment)

    def _touch(self, let_go: list[Block], moment: float) -> None:
        """The clock of what nobody uses any more starts here."""
        self.serial += 1
        for block in let_go:
            if self.is_idle(block):
                block.touched, block.serial = moment, self.serial

    def _covers(self, pin: Pin, key: Key) -> bool:
        chain = key.chain
        return (
            chain.namespace == pin.namespace
            and chain.generation == pin.generation
            and (chain.model_revision, chain.kv_format, chain.salt) == (pin.model_revision, pin.kv_format, b"")
            and key.tokens == pin.tokens[: len(key.tokens)]
        )

    def wanted_bytes(self, pin: Pin) -> int:
        return len(pin.tokens) // self.block_tokens * self.page_bytes[pin.kv_format]

    def _check_possible(self, name: str, kv_format: str, pages: int) -> None:
        if pages * self.page_bytes[kv_format] > min(self._limit(name, "device"), self.capacity["device"]):
            raise Never

    def _limit(self, name: str, tier: Tier) -> float:
        return self.namespaces[name].policy.limit_share * self.capacity[tier]

    def _reserved(self, name: str, tier: Tier) -> float:
        return self.namespaces[name].policy.reserved_share * self.capacity[tier]

    def _bytes(self, block: Block) -> int:
        return self.page_bytes[block.key.chain.kv_format]

    def _blocks_for(self, tokens: int) -> int:
        return math.ceil(tokens / self.block_tokens)

    def _matchable(self, sequence: Sequence) -> int:
        return (len(sequence.tokens) - 1) // self.block_tokens

    def _keys(self, sequence: Sequence, blocks: int) -> Iterator[Key]:
        for index in range(blocks):
            yield Key(sequence.chain, tuple(sequence.tokens[: (index + 1) * self.block_tokens]))

    def _is_whole(self, key: Key) -> bool:
        """No block is missing above it, so it matches."""
        ends = range(self.block_tokens, len(key.tokens) + 1, self.block_tokens)
        return all(Key(key.chain, key.tokens[:end]) in self.blocks for end in ends)

    def _tables_with(self, page: Page) -> int:
        return sum(any(page is other for other in sequence.pages) for sequence in self.sequences)

    def _differ_in_format_alone(self, missed: Key, other: Key) -> bool:
        same = missed.tokens == other.tokens and missed.chain.kv_format != other.chain.kv_format
        return same and missed.chain._replace(kv_format="") == other.chain._replace(kv_format="")


def _without_generation(key: Key) -> Key:
    return Key(key.chain._replace(generation=0), key.tokens)
