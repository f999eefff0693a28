"""Who is counted: what a customer asked for, once. What resumes, what is prefilled for a pin and what probes is not."""

import pytest

from engine_agent.cache.errors import SequenceReleased
from engine_agent.cache.manager import Admitted
from engine_agent.cache.waiting import Waiting, WaitingRoom
from tests.unit.cache.making import World, prompt


def counted(world: World) -> tuple[int, int, int]:
    counters = world.manager.stats("acme").counters
    return counters.requests, counters.prompt_tokens, counters.cached_tokens


def test_what_is_not_counted_is_in_no_counter_and_no_gap_though_its_blocks_are_there() -> None:
    world = World()
    sequence = world.sequence(prompt(4))
    assert world.manager.admit(sequence, counted=False) == Admitted(0, 0, 0, "cold", None)
    world.manager.fill(sequence, 17)
    world.manager.release(sequence)
    assert counted(world) == (0, 0, 0)
    assert world.manager.what_if("acme", ttl_seconds=60) is None, "no request was observed"
    assert world.manager.stats("acme").counters.inserted_blocks == 4
    assert world.run(prompt(4)).cached_tokens == 16
    assert counted(world) == (1, 17, 16)


def test_what_was_preempted_and_resumes_is_one_request() -> None:
    world = World()
    first, _ = world.start(prompt(4))
    world.manager.release(first)
    again = world.sequence([*prompt(4), 7, 8, 9, 10])
    world.manager.admit(again, counted=False)
    assert again.cached_tokens == 16
    assert counted(world) == (1, 17, 0)


def test_a_request_may_be_counted_after_it_was_admitted() -> None:
    world = World()
    world.run(prompt(4))
    sequence = world.sequence(prompt(4))
    world.manager.admit(sequence, counted=False)
    world.clock.advance(1)
    world.manager.count(sequence)
    assert counted(world) == (2, 34, 16)
    assert world.manager.what_if("acme", ttl_seconds=60) == pytest.approx(16 / 34)


def test_nothing_is_counted_twice_or_when_it_is_over() -> None:
    world = World()
    sequence, _ = world.start(prompt(2))
    with pytest.raises(AssertionError):
        world.manager.count(sequence)
    world.manager.release(sequence)
    with pytest.raises(SequenceReleased):
        world.manager.count(sequence)
    assert counted(world) == (1, 9, 0)


def test_who_waits_uncounted_stays_uncounted() -> None:
    world = World(pages=8)
    room = WaitingRoom(world.manager)
    running, _ = world.start(prompt(7))
    waiting = world.sequence(prompt(3, seed=1))
    assert room.submit(waiting, counted=False) == Waiting(ahead=0)
    world.manager.release(running)
    assert [sequence for sequence, _ in room.admit_waiting()] == [waiting]
    assert counted(world) == (1, 29, 0)


def test_bytes_are_told_apart_by_format_and_add_up() -> None:
    world = World(pages=64, page_bytes={"fp8": 100, "bf16": 200})
    running, _ = world.start(prompt(3), kv_format="bf16")
    world.run(prompt(5, seed=1))
    stats = world.manager.stats("acme")
    assert stats.resident_bytes_by_format == {"bf16": 4 * 200, "fp8": 5 * 100}, "with what no index has yet"
    assert stats.resident_bytes == 1_300
    world.manager.release(running)
    assert world.manager.stats("acme").resident_bytes_by_format == {"bf16": 3 * 200, "fp8": 5 * 100}
    world.manager.purge("acme", key=bytes(32), epoch=2)
    assert world.manager.stats("acme").resident_bytes_by_format == {}
