"""Our engine behind its thread: what is asked between two steps, and what happens when the thread cannot go on."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine_agent.backends.paged.backend import PagedBackend
from engine_agent.engine.asked import Generate
from engine_agent.engine.errors import EngineFailed
from engine_agent.engine.params import SamplingParams
from engine_agent.engine.settings import EngineSettings
from tests.engines.driving import make_prompt
from tests.engines.snapshots import make_snapshot

SETTINGS = EngineSettings(pool_bytes=8 << 20, dtype="float32", device="cpu", most_running=1)


@pytest.fixture
async def backend(llama: Path) -> AsyncIterator[PagedBackend]:
    opened = await PagedBackend.open(llama, settings=SETTINGS, snapshot=make_snapshot())
    yield opened
    await opened.close()


def asked(*, tokens: int, request_id: str = "r") -> Generate:
    return Generate(request_id, "one", (make_prompt(20),), SamplingParams(max_tokens=tokens, ignore_eos=True))


async def test_tokens_come_as_they_are_made_and_then_the_end(backend: PagedBackend) -> None:
    generation = await backend.generate(asked(tokens=5))
    found = [delta async for delta in generation]
    assert [delta.finish for delta in found] == [None] * 4 + ["length"]
    assert generation.admissions[0].organisation_id == "one"


async def test_a_request_cancelled_while_it_waits_is_withdrawn(backend: PagedBackend) -> None:
    runs = await backend.generate(asked(tokens=500))
    waits = asyncio.create_task(backend.generate(asked(tokens=5, request_id="second")))
    await asyncio.sleep(0.05)
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    runs.cancel()
    for _ in range(500):
        stats = await backend.stats()
        if not stats["running"]:
            break
        await asyncio.sleep(0.01)
    assert (stats["running"], stats["waiting"]) == (0, 0)
    assert await backend.check_integrity() == []


async def test_a_busy_engine_is_well_by_anybodys_token(backend: PagedBackend) -> None:
    runs = await backend.generate(asked(tokens=800))
    await backend.probe()
    assert (await backend.stats())["running"] == 1  # it did not wait for the answer that has the only seat
    runs.cancel()


async def test_who_follows_is_told_when_blocks_come(backend: PagedBackend) -> None:
    known = await backend.block_page("", 0, wait_seconds=30)  # at once: it is told all there is
    assert (known.is_snapshot, known.is_whole, known.changes, known.load.seats) == (True, True, (), 1)
    following = asyncio.create_task(backend.block_page(known.boot, known.number, wait_seconds=30))
    await (await backend.generate(asked(tokens=20))).__aiter__().__anext__()
    page = await following
    assert page.boot == known.boot
    assert page.number > known.number
    told = [(change.kind, change.namespace, len(change.marks)) for change in page.changes]
    assert told[0] == ("stored", "one", 8)  # of the first step; on a busy machine the next has come by then
    assert {(kind, namespace) for kind, namespace, _ in told} == {("stored", "one")}
    assert page.changes[0].parent == page.changes[0].root


async def test_who_follows_and_knows_all_is_answered_when_its_time_is_over(backend: PagedBackend) -> None:
    known = await backend.block_page("", 0)
    again = await backend.block_page(known.boot, known.number, wait_seconds=0.05)
    assert (again.number, again.is_snapshot, again.changes) == (known.number, False, ())


async def test_who_waits_in_line_is_part_of_the_load(backend: PagedBackend) -> None:
    runs = await backend.generate(asked(tokens=500))
    waits = asyncio.create_task(backend.generate(asked(tokens=5, request_id="second")))
    for _ in range(500):
        load = (await backend.block_page("", 0)).load
        if load.waiting and load.seconds_behind > 0:
            break
        await asyncio.sleep(0.01)
    assert (load.running, load.waiting, load.seats) == (1, 1, 1)
    assert 0 < load.free_blocks < load.pool_blocks
    runs.cancel()
    (await waits).cancel()


async def test_who_follows_an_engine_that_ends_is_told_so_at_once(llama: Path) -> None:
    backend = await PagedBackend.open(llama, settings=SETTINGS, snapshot=make_snapshot())
    known = await backend.block_page("", 0)
    following = asyncio.create_task(backend.block_page(known.boot, known.number, wait_seconds=600))
    await asyncio.sleep(0)
    await backend.close()
    with pytest.raises(EngineFailed, match="closed"):
        await asyncio.wait_for(following, 30)


async def test_a_snapshot_holds_for_the_next_request(backend: PagedBackend) -> None:
    await backend.apply(make_snapshot({"one": {"kv_dtype": "int8"}}))
    generation = await backend.generate(asked(tokens=1))
    assert generation.admissions[0].kv_dtype == "int8"


async def test_when_the_pages_cannot_be_kept_everybody_is_told_and_nobody_is_served(
    backend: PagedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    died = asyncio.Event()
    backend.on_death = died.set
    runs = await backend.generate(asked(tokens=800))

    def broken(operations: object) -> None:
        raise OSError("no memory")

    monkeypatch.setattr(backend.engine.parts.pages, "run", broken)
    with pytest.raises(EngineFailed):
        async for _ in runs:
            pass
    await asyncio.wait_for(died.wait(), 5)
    with pytest.raises(EngineFailed, match="closed"):
        await backend.generate(asked(tokens=1))


async def test_a_step_that_fails_costs_what_was_in_it_and_nothing_else(
    backend: PagedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = await backend.generate(asked(tokens=800))
    monkeypatch.setattr(type(backend.engine._runner), "run", lambda self, rows: 1 / 0)
    with pytest.raises(EngineFailed, match="failed in this step"):
        async for _ in runs:
            pass
    monkeypatch.undo()
    after = await backend.generate(asked(tokens=3))
    assert len([delta async for delta in after]) == 3
    assert await backend.check_integrity() == []
