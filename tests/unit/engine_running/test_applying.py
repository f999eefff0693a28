"""Snapshots on their way into a running engine: read beside its thread, obeyed one after the other."""

import asyncio
import itertools
import threading
from pathlib import Path

import pytest

from engine_agent.backends.paged.backend import PagedBackend
from engine_agent.contracts.protocol import Change, HashMismatch, Snapshot, change_between
from engine_agent.engine.settings import EngineSettings
from tests.engines.snapshots import make_snapshot

SETTINGS = EngineSettings(pool_bytes=2**20, dtype="float32", device="cpu")


async def _open(folder: Path) -> PagedBackend:
    return await PagedBackend.open(folder, name="model", settings=SETTINGS, snapshot=make_snapshot())


def test_a_snapshot_is_read_beside_the_engines_thread(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def readers() -> list[str]:
        backend = await _open(llama)
        try:
            tenants, seen = backend.engine.tenants, list[str]()
            prepare = tenants.prepare

            def watched(news: Snapshot | Change) -> object:
                seen.append(threading.current_thread().name)
                return prepare(news)

            monkeypatch.setattr(tenants, "prepare", watched)
            wanted = make_snapshot({"one": {"ttl_seconds": 5}})
            assert await backend.apply(wanted) == wanted.hash == tenants.snapshot.hash
            return seen
        finally:
            await backend.close()

    (name,) = asyncio.run(readers())
    assert name not in ("engine", threading.main_thread().name)


def test_snapshots_that_come_together_are_obeyed_one_after_the_other(llama: Path) -> None:
    states = [make_snapshot({"one": {"ttl_seconds": 10 + number}}) for number in range(12)]

    async def applied() -> tuple[list[str | BaseException], str]:
        backend = await _open(llama)
        try:
            await backend.apply(states[0])
            changes = [change_between(*pair) for pair in itertools.pairwise(states)]
            found = await asyncio.gather(*map(backend.apply, [*changes, changes[0]]), return_exceptions=True)
            return found, backend.engine.tenants.snapshot.hash
        finally:
            await backend.close()

    found, held = asyncio.run(applied())
    assert found[:-1] == [state.hash for state in states[1:]]
    assert isinstance(found[-1], HashMismatch)  # it was made for the first of them
    assert held == states[-1].hash
