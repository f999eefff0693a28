"""Counters of evictions become increments: nothing twice, nothing lost, whatever comes doubled, late or cut short."""

import random

import pytest

from controlplane.analytics.displaced import LEVELS, Bucket, Displaced, Place
from controlplane.analytics.levels_told import Lost, Pair

AT = 1_700_000_130.0


def place(boot: str = "b1", *, agent: str = "agent-1", victim: str = "1", by: str = "2") -> Place:
    return Place(agent, boot, Pair(victim, by, "pressure"))


def take(found: Displaced, blocks: int, where: Place | None = None, *, at: float = AT, victim: int = 1) -> None:
    found.take(where or place(), Lost(blocks, blocks * 10, at - 1), victim=victim, by=2, at=at)


def blocks_of(found: Displaced, level: int = LEVELS[0]) -> int:
    return sum(one.blocks for bucket, one in found.buckets.items() if bucket.level == level)


def test_only_what_a_counter_rose_by_is_counted() -> None:
    found = Displaced({place(): Lost(5, 50, 1.0)})
    take(found, 7)
    take(found, 9)
    assert {level: blocks_of(found, level) for level in LEVELS} == dict.fromkeys(LEVELS, 4)
    assert found.now == {place(): Lost(9, 90, AT - 1)}


def test_what_is_known_already_writes_nothing() -> None:
    found = Displaced({place(): Lost(5, 50, 1.0)})
    take(found, 5)
    take(found, 3)
    assert not found.now
    assert not found.buckets


def test_a_restart_begins_anew_and_a_late_word_of_the_boot_before_is_no_restart() -> None:
    found = Displaced()
    for boot, blocks in (("b1", 5), ("b2", 2), ("b1", 6), ("b2", 2), ("b1", 5), ("b2", 3)):
        take(found, blocks, place(boot))
    assert blocks_of(found) == 6 + 3


def test_buckets_begin_where_their_level_says_and_are_of_all_agents_together() -> None:
    found = Displaced()
    take(found, 1, place(agent="agent-1"))
    take(found, 2, place(agent="agent-2"), at=AT + 60)
    take(found, 3, place(agent="agent-3"), at=AT + 300)
    small = {bucket.start: one.blocks for bucket, one in found.buckets.items() if bucket.level == 300}
    assert small == {1_700_000_100: 3, 1_700_000_400: 3}
    assert found.buckets[Bucket(3_600, 1_699_999_200, 1, 2, "pressure")] == Lost(6, 60, AT + 299)


def test_however_reports_are_lost_doubled_and_shuffled_sums_are_what_engines_counted_in_the_end(
    subtests: pytest.Subtests,
) -> None:
    """As long as the last word on each counter arrives at some time."""
    for seed in range(20):
        with subtests.test(msg=repr(seed)):
            dice, told, counts = random.Random(seed), list[tuple[Place, int]](), dict[Place, int]()
            for _ in range(100):
                where = place(dice.choice(("b1", "b2")), agent=dice.choice(("a", "b")), victim=dice.choice("123"))
                counts[where] = counts.get(where, 0) + dice.randint(0, 9)
                told.append((where, counts[where]))
            heard = [one for one in told if dice.random() < 0.5] * 2 + list(counts.items())
            dice.shuffle(heard)
            known = dict[Place, Lost]()
            sums = 0
            for start in range(0, len(heard), 7):  # a transaction each
                found = Displaced(known)
                for where, blocks in heard[start : start + 7]:
                    take(found, blocks, where)
                known, sums = {**known, **found.now}, sums + blocks_of(found)
            assert sums == sum(counts.values())
