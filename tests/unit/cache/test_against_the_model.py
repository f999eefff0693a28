"""Whatever is done to the block manager, it answers as the naive model does, and its pages hold what they should.

Four worlds: one format in a tight pool, where every victim is compared; the same with a host tier; several formats in a
roomy pool, where only limits evict; several formats in a tight pool with a host tier, where the exact victim depends on
slabs and the claims alone are checked. LUMINET_CACHE_EXAMPLES=5000 runs that many examples of each, and other ones each
time.
"""

import os
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from engine_agent.cache.policy import NamespacePolicy
from tests.unit.cache.both import BLOCK_TOKENS, USUAL, Both, Kin, World

EXAMPLES = int(os.environ.get("LUMINET_CACHE_EXAMPLES", "0"))
NAMES = ("acme/default", "bolt/default", "coil/default")

ONE_FORMAT = World({"fp8": 64}, pages=12)
WITH_HOST = World({"fp8": 64}, pages=8, host_pages=4, follows=("host",))
ROOMY = World({"fp8": 64, "bf16": 128, "int4": 32}, pages=400)
MIXED = World({"fp8": 64, "bf16": 128, "int4": 32}, pages=8, host_pages=4, follows=("device", "host"))


def tokens_of(path: list[int], tail: int) -> list[int]:
    """One of few prompts: two alternatives at each block, so that many begin alike."""
    return [token for choice in path for token in (choice, choice + 10)] + [99] * tail


policies = st.builds(
    NamespacePolicy,
    prefix_caching=st.sampled_from([True] * 9 + [False]),
    ttl_seconds=st.sampled_from([2, 6, 1000, 1000]),
    ttl_mode=st.sampled_from(["sliding", "absolute"]),
    max_age_seconds=st.sampled_from([5, 10_000, 10_000]),
    reserved_share=st.sampled_from([0, 0, 1 / 8, 1 / 4]),
    limit_share=st.sampled_from([1, 1, 1 / 2, 1 / 4]),
    weight=st.sampled_from([1, 1, 2, 4]),
    pin_share=st.sampled_from([0, 1 / 8, 1 / 4]),
    offload=st.sampled_from(["none", "host", "host", "host"]),
)
names = st.sampled_from(NAMES)
paths: st.SearchStrategy[list[int]] = st.lists(st.sampled_from([0, 0, 0, 1]), min_size=1, max_size=5) | st.just([])
tails = st.integers(0, BLOCK_TOKENS - 1)
picks = st.integers(0, 10**6)
ttls = st.sampled_from([None, None, None, 1, 3])
kins = st.sampled_from([USUAL, USUAL, USUAL, ("m", b"salt"), ("another", b"")])


class Machine(RuleBasedStateMachine):
    world: ClassVar[World]

    @initialize(first=policies, second=policies)
    def begin(self, first: NamespacePolicy, second: NamespacePolicy) -> None:
        self.both = Both(self.world)
        self.both.set_namespace(NAMES[0], first)
        self.both.set_namespace(NAMES[1], second)
        self.look = True

    def known(self) -> list[str]:
        return self.both.model.known()

    @rule(verb=st.sampled_from(["change"] * 6 + ["purge", "remove"]), name=names, policy=policies)
    def govern(self, verb: str, name: str, policy: NamespacePolicy) -> None:
        if verb == "change" or name not in self.known():
            self.both.set_namespace(name, policy)
        elif verb == "purge":
            self.both.purge(name)
        elif len(self.known()) > 1:
            self.both.remove_namespace(name)

    @rule(seconds=st.sampled_from([0.5, 1, 2, 8]), look=st.booleans(), start_over=st.booleans())
    def wait(self, seconds: float, look: bool, start_over: bool) -> None:
        self.both.clock.advance(seconds)
        self.look = look
        if start_over:
            self.both.follower.start_over()

    @rule(pick=picks, early=st.sampled_from([0, 0, 0.25]), look=st.booleans())
    def wait_for_what_comes_next(self, pick: int, early: float, look: bool) -> None:
        """To the moment itself, or to just before it."""
        moments = [one - early for one in self.both.model.deadlines() if one - early > self.both.clock()]
        if moments:
            self.both.clock.set_to(one_of(moments[:4], pick))
        self.look = look

    @rule(
        pick=picks,
        path=paths,
        tail=tails,
        kin=kins,
        ttl_seconds=ttls,
        room=st.sampled_from([0, 0, 0, 3]),
        counted=st.sampled_from([True, True, True, False]),
    )
    def request(
        self, pick: int, path: list[int], tail: int, kin: Kin, ttl_seconds: float | None, room: int, counted: bool
    ) -> None:
        name, kv_format, tokens = self.drawn(pick, path, tail)
        self.both.request(name, tokens, kv_format, kin=kin, ttl_seconds=ttl_seconds, room=room, counted=counted)

    @rule(requests=st.lists(st.tuples(picks, paths, tails, ttls), min_size=1, max_size=6))
    def serve(self, requests: list[tuple[int, list[int], int, float | None]]) -> None:
        """Requests from their beginning to their end, one after the other."""
        for pick, path, tail, ttl_seconds in requests:
            name, kv_format, tokens = self.drawn(pick, path, tail)
            twin = self.both.request(name, tokens, kv_format, kin=USUAL, ttl_seconds=ttl_seconds, room=0)
            if twin:
                self.both.fill(twin, len(tokens))
                self.both.release(twin)
                self.both.compare()

    @precondition(lambda self: self.both.waiting)
    @rule(pick=picks)
    def try_again(self, pick: int) -> None:
        twin = one_of(self.both.waiting, pick)
        self.both.waiting.remove(twin)
        self.both.admit(twin, 0)

    @precondition(lambda self: self.both.running)
    @rule(pick=picks, more=st.integers(1, 6))
    def fill(self, pick: int, more: int) -> None:
        twin = one_of(self.both.running, pick)
        self.both.fill(twin, min(twin.written + more, len(twin.real.tokens)))

    @precondition(lambda self: self.both.running)
    @rule(pick=picks, path=paths, tail=tails)
    def grow(self, pick: int, path: list[int], tail: int) -> None:
        self.both.grow(one_of(self.both.running, pick), tokens_of(path, tail)[-3:])

    @precondition(lambda self: self.both.running)
    @rule(pick=picks, is_filled=st.booleans())
    def fork(self, pick: int, is_filled: bool) -> None:
        twin = one_of(self.both.running, pick)
        if is_filled:
            self.both.fill(twin, len(twin.real.tokens))
        self.both.fork(twin)

    @precondition(lambda self: self.both.running)
    @rule(pick=picks)
    def release(self, pick: int) -> None:
        self.both.release(one_of(self.both.running, pick))

    @precondition(lambda self: self.both.running)
    @rule(pick=picks, block=picks)
    def damage(self, pick: int, block: int) -> None:
        twin = one_of(self.both.running, pick)
        self.both.damage(twin, block % len(twin.real.pages))

    @rule(pick=picks, path=paths.filter(bool), seconds=st.sampled_from([None, 1, 4, 20]))
    def pin(self, pick: int, path: list[int], seconds: float | None) -> None:
        name, kv_format, tokens = self.drawn(pick, path, 0)
        pin_id = f"pin {pick % 1000}"
        if pin_id not in self.both.model.pins:
            self.both.pin(pin_id, name, tokens, kv_format, seconds)

    @rule(pick=picks)
    def unpin(self, pick: int) -> None:
        self.both.settle()
        if self.both.model.pins:
            self.both.unpin(one_of(list(self.both.model.pins), pick))

    @invariant()
    def they_agree(self) -> None:
        if hasattr(self, "both") and self.look:
            self.both.compare()
        self.look = True

    def drawn(self, pick: int, path: list[int], tail: int) -> tuple[str, str, list[int]]:
        formats = list(self.world.page_bytes)
        return one_of(self.known(), pick), formats[pick // 7 % len(formats)], tokens_of(path, tail) or [99]


def one_of(things: list[Any], pick: int) -> Any:
    return things[pick % len(things)]


@pytest.mark.parametrize(
    "world", [ONE_FORMAT, WITH_HOST, ROOMY, MIXED], ids=["one-format", "with-host", "roomy", "mixed"]
)
def test_the_manager_answers_as_the_model_does(world: World) -> None:
    machine = type("MachineOfThisWorld", (Machine,), {"world": world})
    run_state_machine_as_test(machine, settings=chosen(examples=120))


def chosen(examples: int) -> settings:
    return settings(
        max_examples=EXAMPLES or examples,
        stateful_step_count=50,
        derandomize=not EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=[*HealthCheck],
    )
