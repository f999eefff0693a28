"""A load that brings another content than was demoted: nothing of it is served, in any tier, then or later."""

from engine_agent.cache.manager import Admitted
from engine_agent.cache.operations import Load
from engine_agent.cache.policy import NamespacePolicy
from engine_agent.cache.sequences import Sequence
from tests.unit.cache.making import World, prompt
from tests.unit.cache.test_host_tier import HOST, tiers, warm


def loaded(world: World) -> tuple[Sequence, list[Load]]:
    """A prompt of six blocks of which the last three come from the host."""
    warm(world, 0, blocks=6)
    world.manager.release(world.start(prompt(7, seed=1, extra=0))[0])
    world.manager.take_operations()
    sequence = world.sequence(prompt(6))
    answer = world.manager.admit(sequence)
    assert isinstance(answer, Admitted)
    assert answer.cached_blocks == 6
    return sequence, [one for one in world.manager.take_operations() if isinstance(one, Load)]


def test_a_damaged_block_and_what_hangs_below_it_leave_every_tier() -> None:
    world = World(pages=10, host_pages=16, policy=HOST)
    sequence, loads = loaded(world)
    assert [one.page for one in loads] == sequence.pages[3:6]
    before = tiers(world)[1]
    assert world.manager.forget("fp8", loads[1].page) == [sequence]
    world.check()
    assert tiers(world)[1] == before - 2, "the host's copies are gone as well"
    world.manager.release(sequence)
    world.check()
    again = world.run(prompt(6))
    assert (again.cached_blocks, again.miss_reason, again.evicted_by) == (4, "evicted", None)
    assert world.manager.stats("acme").counters.damaged_blocks == 2
    assert world.run(prompt(6)).cached_blocks == 6


def test_what_a_spoilt_sequence_fills_is_not_kept() -> None:
    world = World(pages=10, host_pages=16, policy=HOST)
    sequence, loads = loaded(world)
    world.manager.forget("fp8", loads[-1].page)
    world.manager.fill(sequence, len(sequence.tokens))
    world.manager.release(sequence)
    assert world.cached_blocks(prompt(6)) == 5
    world.check()


def test_everybody_who_has_the_page_is_named_and_nobody_else() -> None:
    world = World(pages=16, policy=NamespacePolicy())
    first, _ = world.start(prompt(4))
    second = world.sequence([*prompt(2, extra=0), 7, 8, 9])
    third, _ = world.start(prompt(2, seed=1))
    world.manager.admit(second)
    assert set(world.manager.forget("fp8", first.pages[1])) == {first, second}
    assert world.manager.forget("fp8", first.pages[3]) == [first]
    for sequence in (first, second, third):
        world.manager.release(sequence)
    assert world.cached_blocks(prompt(4)) == 1
    assert world.cached_blocks(prompt(2, seed=1)) == 2
    world.check()


def test_a_damaged_block_that_nobody_uses_any_more_goes_too() -> None:
    world = World(pages=10, host_pages=16, policy=HOST)
    sequence, loads = loaded(world)
    world.manager.release(sequence)
    assert world.manager.forget("fp8", loads[0].page) == []
    assert world.cached_blocks(prompt(6)) == 3
    world.check()


def test_a_damaged_block_under_a_pin_goes_and_the_pin_waits_for_it() -> None:
    world = World(policy=NamespacePolicy(pin_share=0.5))
    world.run(prompt(4))
    world.manager.pin("p", "acme", prompt(4), kv_format="fp8", model_revision="m")
    sequence, _ = world.start(prompt(4))
    world.manager.forget("fp8", sequence.pages[2])
    world.manager.release(sequence)
    [status] = world.manager.pins("acme")
    assert (status.state, status.wanted_blocks, status.resident_blocks) == ("active", 4, 2)
    world.run(prompt(4))
    assert world.manager.pins("acme")[0].resident_blocks == 4
    world.check()


def test_a_page_of_another_format_with_the_same_number_is_not_meant() -> None:
    world = World(pages=64, page_bytes={"fp8": 100, "bf16": 200})
    sequence, _ = world.start(prompt(3))
    assert world.manager.forget("bf16", sequence.pages[0]) == []
    world.manager.release(sequence)
    assert world.cached_blocks(prompt(3)) == 3
