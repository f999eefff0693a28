"""What a sidecar keeps on disk: sealed, whole or set aside."""

from pathlib import Path

import pytest

from engine_agent.sidecar.effects import Ledger
from engine_agent.sidecar.store import Store
from tests.engines.snapshots import make_snapshot

KEY = bytes(range(32))
SNAPSHOT = make_snapshot({"one": {}, "two": {"ttl_seconds": 7}})


def store(folder: Path, *, agent: str = "unit-1", key: bytes = KEY) -> Store:
    return Store(folder, agent=agent, key=key)


def test_the_newest_snapshot_comes_back_with_its_number(tmp_path: Path) -> None:
    store(tmp_path).keep(3, make_snapshot({"one": {}}))
    store(tmp_path).keep(4, SNAPSHOT)
    found = store(tmp_path).read()
    assert found is not None
    assert (found.generation, found.snapshot.hash) == (4, SNAPSHOT.hash)


def test_nothing_is_there_at_first(tmp_path: Path) -> None:
    assert store(tmp_path).read() is None
    assert store(tmp_path).read_ledger() == Ledger()


def test_a_namespaces_key_is_not_to_be_read_off_the_disk(tmp_path: Path) -> None:
    store(tmp_path).keep(4, SNAPSHOT)
    content = (tmp_path / "snapshot").read_bytes()
    assert b"one" not in content
    assert (tmp_path / "snapshot").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("place", [0, 20, -1])
def test_one_wrong_byte_and_it_is_set_aside(tmp_path: Path, place: int) -> None:
    store(tmp_path).keep(4, SNAPSHOT)
    path = tmp_path / "snapshot"
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    assert store(tmp_path).read() is None
    assert not path.exists()
    assert (tmp_path / "snapshot.damaged").read_bytes() == bytes(content)


def test_another_agents_files_or_another_key_open_nothing(tmp_path: Path) -> None:
    store(tmp_path).keep(4, SNAPSHOT)
    assert store(tmp_path, agent="unit-2").read() is None
    store(tmp_path).keep(4, SNAPSHOT)
    assert store(tmp_path, key=bytes(32)).read() is None


def test_a_ledger_is_no_snapshot(tmp_path: Path) -> None:
    store(tmp_path).keep_ledger(Ledger({"op": {"ok": True}}, is_draining=True, about={"version": "1"}))
    assert store(tmp_path).read_ledger() == Ledger({"op": {"ok": True}}, is_draining=True, about={"version": "1"})
    (tmp_path / "ledger").rename(tmp_path / "snapshot")
    assert store(tmp_path).read() is None
