"""What one namespace's requests find, hold, share and leave behind."""

import pytest

from engine_agent.cache.errors import (
    InvalidValue,
    NeverFits,
    PinOverBudget,
    SequenceReleased,
    UnknownFormat,
    UnknownNamespace,
)
from engine_agent.cache.manager import Admitted, BlockManager, Deferred
from engine_agent.cache.operations import Copy
from engine_agent.cache.policy import NamespacePolicy
from engine_agent.cache.pool import Arena
from tests.unit.cache.clocks import HandClock
from tests.unit.cache.making import BLOCK, PAGE, World, prompt


def test_a_second_request_finds_the_full_blocks_of_the_first() -> None:
    world = World()
    assert world.run(prompt(5)).cached_tokens == 0
    assert world.run(prompt(5)) == Admitted(5 * BLOCK, 5, 0, "none", None)


def test_the_last_token_is_always_computed() -> None:
    world = World()
    whole_blocks = prompt(5, extra=0)
    world.run(whole_blocks)
    assert world.run(whole_blocks) == Admitted(4 * BLOCK, 4, 0, "none", None)


@pytest.mark.parametrize("tokens", [1, BLOCK - 1, BLOCK, BLOCK + 1])
def test_a_prompt_of_hardly_a_block_misses_nothing(tokens: int) -> None:
    world = World()
    world.run(prompt(2)[:tokens])
    again = world.run(prompt(2)[:tokens])
    assert (again.cached_blocks, again.miss_reason) == ((tokens - 1) // BLOCK, "none")


def test_the_longest_common_prefix_is_found_wherever_chains_part() -> None:
    world = World()
    world.run(prompt(8))
    for shared in (7, 1, 4, 3):
        other = prompt(8)[: shared * BLOCK] + prompt(6, seed=shared + 1)
        assert world.run(other).cached_blocks == shared
        assert world.run(other).cached_blocks == shared + 6


def test_equal_tokens_after_another_beginning_do_not_match() -> None:
    world = World()
    world.run(prompt(4))
    assert world.run([9, 9, 9, 9, *prompt(4)[BLOCK:]]).cached_blocks == 0


def test_blocks_become_matchable_as_they_fill() -> None:
    world = World()
    running = world.sequence(prompt(4))
    world.manager.admit(running)
    for tokens, blocks in ((0, 0), (BLOCK - 1, 0), (BLOCK, 1), (3 * BLOCK + 1, 3)):
        world.manager.fill(running, tokens)
        assert world.cached_blocks(prompt(4)) == blocks


def test_generated_tokens_are_kept_like_prompt_tokens() -> None:
    world = World()
    running, _ = world.start(prompt(2, extra=0))
    answer = [500 + i for i in range(2 * BLOCK + 1)]
    for token in answer:
        assert world.manager.grow(running, [token]) is None
        world.manager.fill(running, len(running.tokens))
    world.manager.release(running)
    assert world.run([*prompt(2, extra=0), *answer]).cached_blocks == 4


def test_the_same_prompt_twice_at_once_is_kept_once() -> None:
    world = World()
    first, second = world.sequence(prompt(4)), world.sequence(prompt(4))
    world.manager.admit(first)
    world.manager.admit(second)
    assert not set(first.pages) & set(second.pages)
    world.manager.fill(first, len(first.tokens))
    world.manager.fill(second, len(second.tokens))
    assert first.pages[:4] == second.pages[:4]
    assert world.manager.stats("acme").resident_bytes == 6 * PAGE  # four blocks once, and each one's own last
    world.check()


def test_requests_that_share_a_prefix_take_memory_for_their_tails_only() -> None:
    world = World()
    running = [world.start([*prompt(6, extra=0), *prompt(2, seed=n)])[0] for n in range(1, 6)]
    assert world.manager.stats("acme").resident_bytes == (6 + 5 * 3) * PAGE
    for sequence in running:
        world.manager.release(sequence)
    assert world.manager.stats("acme").resident_bytes == (6 + 5 * 2) * PAGE
    world.check()


def test_what_was_not_full_is_free_at_once() -> None:
    world = World()
    sequence, _ = world.start(prompt(2, extra=3))
    assert world.manager.stats("acme").resident_bytes == 3 * PAGE
    world.manager.release(sequence)
    assert world.manager.stats("acme").resident_bytes == 2 * PAGE


def test_a_fork_shares_everything_and_copies_one_block_when_somebody_writes() -> None:
    world = World()
    parent, _ = world.start(prompt(3, extra=2))
    children = [world.manager.fork(parent) for _ in range(8)]
    assert world.manager.stats("acme").resident_bytes == 4 * PAGE
    for number, child in enumerate(children):
        assert world.manager.grow(child, [900 + number]) is None
    copies = [one for one in world.manager.take_operations() if isinstance(one, Copy)]
    assert len(copies) == 8
    assert {copy.source for copy in copies} == {parent.pages[3]}
    assert len({child.pages[3] for child in children}) == 8
    world.check()
    assert world.manager.grow(parent, [1]) is None  # the last one to write has the page to itself
    assert world.manager.take_operations() == []
    for sequence in (*children, parent):
        world.manager.release(sequence)
    world.check()
    assert world.cached_blocks(prompt(3)) == 3


def test_forks_of_a_fork_let_go_in_any_order() -> None:
    world = World()
    parent, _ = world.start(prompt(2, extra=2))
    child = world.manager.fork(parent)
    grandchild = world.manager.fork(child)
    for sequence in (parent, grandchild, child):
        world.check()
        world.manager.release(sequence)
    assert world.manager.stats("acme").resident_bytes == 2 * PAGE


def test_without_prefix_caching_nothing_is_matched_or_kept() -> None:
    world = World(policy=NamespacePolicy(prefix_caching=False))
    assert world.run(prompt(4)).miss_reason == "disabled"
    assert world.run(prompt(4)) == Admitted(0, 0, 0, "disabled", None)
    assert world.manager.stats("acme").resident_bytes == 0


def test_switching_caching_off_forgets_and_on_again_begins_anew() -> None:
    world = World()
    running, _ = world.start(prompt(4))
    world.run(prompt(3, seed=1))
    world.namespace("acme", NamespacePolicy(prefix_caching=False))
    assert world.manager.stats("acme").resident_blocks == 0
    world.check()
    world.namespace("acme", NamespacePolicy())
    assert world.run(prompt(3, seed=1)).miss_reason == "disabled"
    assert world.run(prompt(3, seed=1)).cached_blocks == 3
    world.manager.release(running)
    world.check()
    assert world.cached_blocks(prompt(4)) == 0


def test_a_refused_request_leaves_everything_as_it_was() -> None:
    world = World(pages=8)
    running, _ = world.start(prompt(5))
    world.clock.advance(10)
    big = world.sequence(prompt(4, seed=1))
    assert world.manager.admit(big) == Deferred("pool", 3 * PAGE)
    assert world.manager.stats("acme").resident_bytes == 6 * PAGE
    world.manager.release(running)
    assert isinstance(world.manager.admit(big), Admitted)
    world.check()


def test_a_refused_request_renews_nothing_it_would_have_matched() -> None:
    world = World(pages=8, policy=NamespacePolicy(ttl_seconds=10))
    world.run(prompt(2))
    world.clock.advance(9)
    running, _ = world.start(prompt(4, seed=1))
    assert isinstance(world.manager.admit(world.sequence([*prompt(2, extra=0), *prompt(4, seed=2)])), Deferred)
    world.check()
    world.clock.advance(1)
    assert world.cached_blocks(prompt(2)) == 0
    world.manager.release(running)


def test_what_never_fits_is_refused_by_name_and_number() -> None:
    world = World(pages=8)
    with pytest.raises(NeverFits, match="900 bytes wanted, the pool has 800"):
        world.manager.admit(world.sequence(prompt(8)))
    with pytest.raises(NeverFits, match="900 bytes wanted"):
        world.manager.admit(world.sequence(prompt(4)), room_for_tokens=4 * BLOCK)
    world.namespace("acme", NamespacePolicy(limit_share=0.5))
    with pytest.raises(NeverFits, match="500 bytes wanted, the limit of acme has 400"):
        world.manager.admit(world.sequence(prompt(4)))
    running, _ = world.start(prompt(2))
    with pytest.raises(NeverFits, match="the limit of acme"):
        world.manager.grow(running, range(9))
    world.check()


def test_growing_is_all_or_nothing() -> None:
    world = World(pages=4)
    first, _ = world.start(prompt(1, extra=0))
    second, _ = world.start(prompt(2, seed=1, extra=0))
    assert world.manager.grow(first, range(2 * BLOCK)) == Deferred("pool", PAGE)
    assert len(first.tokens) == BLOCK
    assert world.manager.grow(first, range(BLOCK)) is None
    world.manager.release(second)
    assert world.manager.grow(first, range(BLOCK)) is None
    world.check()


def test_a_released_sequence_can_do_nothing_more() -> None:
    world = World()
    sequence, _ = world.start(prompt(1))
    world.manager.release(sequence)
    for attempt in (
        lambda: world.manager.release(sequence),
        lambda: world.manager.grow(sequence, [1]),
        lambda: world.manager.fill(sequence, 1),
        lambda: world.manager.fork(sequence),
        lambda: world.manager.admit(sequence),
        lambda: world.manager.release(world.sequence([1])),
    ):
        with pytest.raises(SequenceReleased):
            attempt()


def test_what_is_filled_stays_filled() -> None:
    world = World()
    sequence, _ = world.start(prompt(2))
    for tokens in (-1, len(sequence.tokens) - 1, len(sequence.tokens) + 1, 2.5, True):
        with pytest.raises(InvalidValue, match="upto_tokens"):
            world.manager.fill(sequence, tokens)  # type: ignore[arg-type]


def test_unknown_names_are_named() -> None:
    world = World()
    with pytest.raises(UnknownNamespace, match="'bolt'"):
        world.sequence([1], "bolt")
    with pytest.raises(UnknownFormat, match="fp3"):
        world.sequence([1], kv_format="fp3")
    with pytest.raises(InvalidValue, match="at least one token"):
        world.sequence([])
    with pytest.raises(InvalidValue, match="ttl_seconds"):
        world.sequence([1], ttl_seconds=0)


def test_a_removed_namespace_lets_its_requests_finish() -> None:
    world = World()
    running, _ = world.start(prompt(3))
    world.run(prompt(3, seed=1))
    receipt = world.manager.remove_namespace("acme")
    assert (receipt.blocks, receipt.sequences_left) == (3, 1)
    world.check()
    assert world.manager.grow(running, range(9)) is None
    world.manager.fill(running, len(running.tokens))
    with pytest.raises(UnknownNamespace):
        world.sequence([1])
    world.manager.release(running)
    world.check()
    assert world.device.used_bytes == 0
    assert [done.is_done for done in world.manager.take_receipts()] == [True]


def test_what_forks_once_shared_is_kept_when_one_is_left_to_fill_it() -> None:
    world = World()
    parent, _ = world.start(prompt(2, extra=2))
    child = world.manager.fork(parent)
    world.manager.release(child)
    world.manager.grow(parent, range(BLOCK))
    world.manager.fill(parent, len(parent.tokens))
    world.check()
    assert world.manager.stats("acme").resident_blocks == 3
    assert world.manager.cache.books.loose == {}
    world.manager.release(parent)
    world.check()


def test_a_fork_in_the_middle_of_its_prompt_never_gives_a_shared_page_away() -> None:
    world = World()
    parent = world.sequence(prompt(4))
    world.manager.admit(parent)
    world.manager.fill(parent, BLOCK)
    child = world.manager.fork(parent)
    world.manager.fill(parent, 3 * BLOCK)
    assert world.cached_blocks(prompt(4)) == 1, "both tables name the other pages"
    world.check()
    world.manager.release(child)
    world.manager.fill(parent, 3 * BLOCK + 1)
    assert world.cached_blocks(prompt(4)) == 3
    world.manager.release(parent)
    world.check()


def test_forks_before_anything_was_written_leave_no_trees_behind() -> None:
    world = World(policy=NamespacePolicy(pin_share=0.1))
    for number in range(50):
        parent = world.sequence(prompt(3), salt=bytes([number]))
        world.manager.admit(parent)
        child = world.manager.fork(parent)
        world.manager.fill(parent, len(parent.tokens))
        world.manager.release(parent)
        world.manager.release(child)
        world.check()
    assert world.manager.cache.namespace("acme").trees == {}


def test_what_a_fork_fills_after_a_refused_pin_can_be_found() -> None:
    world = World(policy=NamespacePolicy(pin_share=0.01))
    parent = world.sequence(prompt(3))
    world.manager.admit(parent)
    child = world.manager.fork(parent)
    world.manager.fill(parent, len(parent.tokens))
    with pytest.raises(PinOverBudget):
        world.manager.pin("p", "acme", prompt(3), kv_format="fp8", model_revision="m")
    world.manager.release(child)
    world.manager.fill(parent, len(parent.tokens))
    world.check()
    assert world.cached_blocks(prompt(3)) == 3
    world.manager.release(parent)
    world.check()


def test_loaded_blocks_are_of_the_cached_ones() -> None:
    world = World(pages=9, host_pages=16, policy=NamespacePolicy(offload="host"))
    for _ in range(2):
        world.run(prompt(6))
    world.run(prompt(8, seed=1))
    _, answer = world.start(prompt(6)[: 2 * BLOCK + 1])
    assert (answer.cached_blocks, answer.loaded_blocks) == (2, 2)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("tokens", {"tokens": 5}),
        ("tokens", {"tokens": None}),
        ("model_revision", {"model_revision": None}),
        ("model_revision", {"model_revision": "\ud800"}),
        ("scale_set", {"scale_set": 7}),
        ("salt", {"salt": "alice"}),
        ("salt", {"salt": bytearray(b"alice")}),
        ("ttl_seconds", {"ttl_seconds": float("nan")}),
        ("ttl_seconds", {"ttl_seconds": 10**400}),
    ],
)
def test_a_request_nobody_can_mean_names_its_field(field: str, values: dict[str, object]) -> None:
    asked: dict[str, object] = {"tokens": [1, 2, 3], "kv_format": "fp8", "model_revision": "m", **values}
    with pytest.raises(InvalidValue) as refused:
        World().manager.sequence("acme", **asked)  # type: ignore[arg-type]
    assert refused.value.field == field


def test_a_secret_passed_as_a_token_is_not_repeated() -> None:
    with pytest.raises(InvalidValue) as refused:
        World().sequence(["my secret prompt"])  # type: ignore[list-item]
    assert "secret" not in str(refused.value) + repr(refused.value.value)


@pytest.mark.parametrize("name", ["", "*", 7, None, b"x"])
def test_a_namespace_needs_a_name(name: object) -> None:
    with pytest.raises(InvalidValue, match="namespace"):
        World().manager.set_namespace(name, key=bytes(32), epoch=1, policy=NamespacePolicy())  # type: ignore[arg-type]


def test_a_policy_that_is_none_changes_nothing() -> None:
    world = World()
    world.run(prompt(3))
    with pytest.raises(InvalidValue, match="policy"):
        world.manager.set_namespace("acme", key=bytes(32), epoch=2, policy=None)  # type: ignore[arg-type]
    assert world.cached_blocks(prompt(3)) == 3


def test_a_host_pool_without_a_format_just_does_not_take_it() -> None:
    device = Arena(9 * PAGE, {"fp8": PAGE, "bf16": PAGE}, slab_bytes=PAGE)
    manager = BlockManager(
        device, Arena(9 * PAGE, {"fp8": PAGE}, slab_bytes=PAGE), clock=HandClock(), block_tokens=BLOCK
    )
    manager.set_namespace("acme", key=bytes(32), epoch=1, policy=NamespacePolicy(offload="host"))
    for seed in (1, 1, 2, 2, 3):
        for extra in (0, 1):
            sequence = manager.sequence("acme", prompt(6, seed=seed, extra=extra), kv_format="bf16", model_revision="m")
            manager.admit(sequence)
            manager.fill(sequence, len(sequence.tokens))
            manager.release(sequence)
    assert manager.check_integrity() == []
    assert manager.stats("acme").tiers[1].resident_bytes == 0


def test_decoding_below_a_pinned_prefix_lengthens_one_run() -> None:
    world = World(pages=400, policy=NamespacePolicy(pin_share=0.1))
    world.manager.pin("system", "acme", prompt(2), kv_format="fp8", model_revision="m")
    running, _ = world.start(prompt(3))
    for token in range(200):
        world.manager.grow(running, [token])
        world.manager.fill(running, len(running.tokens))
    assert world.manager.cache.namespace("acme").runs <= 3
    world.manager.release(running)
    world.check()


def test_what_is_appended_to_a_hit_is_not_taken_for_a_hit() -> None:
    world = World(pages=14, host_pages=20, policy=NamespacePolicy(offload="host"))
    for _ in range(2):
        world.run(prompt(2))
    running, _ = world.start(prompt(2))
    world.manager.grow(running, range(6 * BLOCK))
    world.manager.fill(running, len(running.tokens))
    world.manager.release(running)
    world.run(prompt(13, seed=1))
    assert world.manager.stats("acme").counters.demoted_blocks <= 2
    world.check()


def test_traffic_that_repeats_itself_leaves_no_trail() -> None:
    world = World(policy=NamespacePolicy(ttl_seconds=5, pin_share=0.1))
    for _ in range(1500):
        world.run(prompt(3), ttl_seconds=3)
        world.manager.pin("p", "acme", prompt(2), kv_format="fp8", model_revision="m")
        world.manager.unpin("acme", "p")
        world.clock.advance(0.25)
    namespace, books = world.manager.cache.namespace("acme"), world.manager.cache.books
    assert len(namespace.by_age) + len(namespace.by_cap) <= 150
    for _ in range(500):
        world.run(prompt(3))
        world.clock.advance(6)
    assert len(books.appointments) <= 150
    for number in range(200):
        world.namespace(f"org-{number}", NamespacePolicy())
        world.run(prompt(3), f"org-{number}")
        world.manager.remove_namespace(f"org-{number}")
    assert len(books.appointments) <= 150
    world.check()
