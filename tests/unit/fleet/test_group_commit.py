"""Many batches in one commit; nobody is answered before his own is in one."""

import asyncio

import pytest
from django.db import DataError, OperationalError

from controlplane.fleet import committing
from controlplane.fleet.arrivals import Received
from controlplane.fleet.committing import (
    APART_SECONDS,
    MOST_AT_ONCE,
    MOST_BYTES_AT_ONCE,
    MOST_BYTES_OF_ONE,
    MOST_WAITING,
    MOST_WAITING_BYTES,
    GroupCommit,
)
from controlplane.fleet.errors import TooMuchWaits
from controlplane.fleet.intake import Known, intake_plan
from controlplane.fleet.recording import Batches, Stored
from engine_agent.contracts.wire import Batch, Report


def batch(first: int = 1) -> Batch:
    report = Report("refused", {"reason": "forged", "what": "", "at": 0, "count": 1})
    return Batch(0.0, "s", first, [report], None)


class Ledger:
    """Stores as told to, and remembers in which commits."""

    def __init__(self) -> None:
        self.commits: list[list[str]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.poison: set[str] = set()
        self.unknown: set[str] = set()
        self.is_away = False

    async def store(self, batches: Batches) -> dict[str, Stored]:
        await self.gate.wait()
        if self.is_away:
            raise OperationalError("the connection is lost")
        if self.poison & batches.keys():
            raise DataError("no such number")
        self.commits.append(sorted(batches))
        stored = {agent: Stored(intake_plan(Received(), Known(), one), "", 0) for agent, one in batches.items()}
        return {agent: one for agent, one in stored.items() if agent not in self.unknown}


async def all_stored(commit: GroupCommit, agents: list[str]) -> "list[Stored | BaseException | None]":
    return await asyncio.gather(*(commit.stored(one, batch()) for one in agents), return_exceptions=True)


def names(count: int) -> list[str]:
    return [f"agent-{number:03}" for number in range(count)]


async def test_a_hundred_that_come_while_one_is_written_are_one_commit() -> None:
    ledger = Ledger()
    ledger.gate.clear()
    commit = GroupCommit(ledger.store)
    first = asyncio.create_task(commit.stored("first", batch()))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(all_stored(commit, names(100)))
    await asyncio.sleep(0)
    ledger.gate.set()
    assert all(isinstance(one, Stored) for one in await waiting)
    assert (await first) is not None
    assert sum(map(len, ledger.commits)) == 101
    assert len(ledger.commits) <= 2


async def test_there_is_an_end_to_what_is_written_at_once() -> None:
    ledger = Ledger()
    await all_stored(GroupCommit(ledger.store), names(MOST_AT_ONCE + 1))
    assert sorted(map(len, ledger.commits)) == [1, MOST_AT_ONCE]


async def test_two_batches_of_one_agent_are_written_one_after_the_other() -> None:
    ledger = Ledger()
    commit = GroupCommit(ledger.store)
    await asyncio.gather(commit.stored("a", batch(1)), commit.stored("a", batch(2)), commit.stored("b", batch()))
    assert ledger.commits == [["a", "b"], ["a"]]


async def test_one_that_cannot_be_written_holds_up_no_other() -> None:
    ledger = Ledger()
    ledger.poison = {"agent-001"}
    outcomes = await all_stored(GroupCommit(ledger.store), names(4))
    assert [type(one) for one in outcomes] == [Stored, DataError, Stored, Stored]


async def test_with_the_database_away_nobody_is_acknowledged_and_nobody_is_asked_twice() -> None:
    ledger = Ledger()
    ledger.is_away = True
    commit = GroupCommit(ledger.store)
    assert {type(one) for one in await all_stored(commit, names(4))} == {OperationalError}
    ledger.is_away = False
    assert {type(one) for one in await all_stored(commit, names(4))} == {Stored}


async def test_an_agent_that_is_not_there_any_more_is_told() -> None:
    ledger = Ledger()
    ledger.unknown = {"agent-000"}
    outcomes = await all_stored(GroupCommit(ledger.store), names(2))
    assert outcomes[0] is None
    assert isinstance(outcomes[1], Stored)


async def test_who_left_while_waiting_is_in_nobodys_way() -> None:
    ledger = Ledger()
    ledger.gate.clear()
    commit = GroupCommit(ledger.store)
    leaving = asyncio.create_task(commit.stored("a", batch()))
    staying = asyncio.create_task(commit.stored("b", batch()))
    await asyncio.sleep(0)
    leaving.cancel()
    ledger.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert await staying is not None


async def test_what_is_large_is_written_in_several_commits_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "MOST_BYTES_AT_ONCE", 1_000)
    ledger = Ledger()
    commit = GroupCommit(ledger.store)
    large = 666
    told = [("a", batch(1), large), ("b", batch(1), large), ("b", batch(2), 10), ("c", batch(1), 10)]
    await asyncio.gather(*(commit.stored(agent, one, size=size) for agent, one, size in told))
    assert ledger.commits == [["a", "c"], ["b"], ["b"]]


async def test_one_that_is_larger_than_a_commit_is_written_by_itself() -> None:
    ledger = Ledger()
    assert await GroupCommit(ledger.store).stored("a", batch(), size=MOST_BYTES_AT_ONCE + 1) is not None


@pytest.mark.parametrize(("batches", "size"), [(MOST_WAITING, 1), (2, MOST_WAITING_BYTES // 2)])
async def test_who_comes_when_too_much_waits_is_sent_away_and_may_come_again(batches: int, size: int) -> None:
    ledger = Ledger()
    ledger.gate.clear()
    commit = GroupCommit(ledger.store)
    waiting = [asyncio.create_task(commit.stored("first", batch(), size=size))]
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # it is being written
    waiting += [asyncio.create_task(commit.stored(f"a{number}", batch(), size=size)) for number in range(batches)]
    await asyncio.sleep(0)
    with pytest.raises(TooMuchWaits):
        await commit.stored("late", batch(), size=size)
    ledger.gate.set()
    assert all(isinstance(one, Stored) for one in await asyncio.gather(*waiting))
    assert await commit.stored("late", batch(), size=size) is not None


async def test_of_one_agent_little_waits_and_others_are_taken() -> None:
    """While a database hangs, whoever is not answered sends the same again."""
    ledger = Ledger()
    ledger.gate.clear()
    commit, size = GroupCommit(ledger.store), MOST_BYTES_OF_ONE // 2 + 1
    waiting = [asyncio.create_task(commit.stored("a", batch(), size=size))]
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # it is being written
    waiting.append(asyncio.create_task(commit.stored("a", batch(), size=size)))
    await asyncio.sleep(0)
    with pytest.raises(TooMuchWaits):
        await commit.stored("a", batch(), size=size)
    waiting.append(asyncio.create_task(commit.stored("b", batch(), size=size)))
    ledger.gate.set()
    assert all(isinstance(one, Stored) for one in await asyncio.gather(*waiting))


async def test_who_could_not_be_written_is_written_apart_for_a_while() -> None:
    ledger, now = Ledger(), [100.0]
    ledger.poison = {"agent-001"}
    commit = GroupCommit(ledger.store, clock=lambda: now[0])
    await all_stored(commit, names(4))
    ledger.commits.clear()
    assert [type(one) for one in await all_stored(commit, names(4))] == [Stored, DataError, Stored, Stored]
    assert ledger.commits == [["agent-000", "agent-002", "agent-003"]]  # nobody was written one by one
    now[0] += APART_SECONDS
    ledger.poison.clear()
    ledger.commits.clear()
    await all_stored(commit, names(4))
    assert ledger.commits == [names(4)]
