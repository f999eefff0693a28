"""What a gateway's memory goes by: bytes of a block it knows of, of a key with its namespace, of a second copy."""

import random
import tracemalloc
from collections.abc import Callable
from typing import TypeVar

from engine_agent.contracts.block_events import MARK_BYTES, BlockChange, Load, Page
from engine_agent.contracts.protocol import snapshot_decode, snapshot_encode
from engine_agent.gateway.knowing.index import Index
from engine_agent.gateway.tables import tables_empty, tables_read
from engine_agent.sidecar.shelf import shared
from tests.gateway.snapshots import gateway_snapshot, many_tenants

ORGANISATIONS, EACH = 100, 10
ENTRIES, POLICIES = many_tenants(ORGANISATIONS, EACH)
SNAPSHOT = gateway_snapshot(ENTRIES, policies=POLICIES)
MESSAGE = snapshot_encode(SNAPSHOT)
ROOTS, BLOCKS_OF_ROOT = 200, 100
LOAD = Load(0, 0, 0, 0, 0, 0.0)
T = TypeVar("T")


def taken(work: Callable[[], T]) -> tuple[T, int]:
    """What it comes to, and the bytes it keeps."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        found = work()
        return found, tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def test_a_known_block_takes_few_bytes_even_in_many_small_caches() -> None:
    """10⁶ of them below 10,000 namespaces are a tenth of what a gateway may take."""
    chance = random.Random(1)
    names = [root.to_bytes(MARK_BYTES, "little") for root in range(ROOTS)]
    changes = [BlockChange("stored", "1", name, name, chance.randbytes(BLOCKS_OF_ROOT * MARK_BYTES)) for name in names]
    index = Index()
    _, size = taken(lambda: index.apply("agent-1", Page("boot-1", 1, True, True, LOAD, tuple(changes))))
    assert index.blocks["agent-1"] == ROOTS * BLOCKS_OF_ROOT
    assert size / (ROOTS * BLOCKS_OF_ROOT) <= 16


def test_a_key_and_its_namespace_take_few_bytes() -> None:
    snapshot, held = taken(lambda: snapshot_decode(MESSAGE))
    tables, read = taken(lambda: tables_read(snapshot, tables_empty()))
    assert len(tables.keys) == ORGANISATIONS * EACH
    assert (held + read) / (ORGANISATIONS * EACH) <= 2_800


def test_a_snapshot_that_is_held_twice_is_there_once() -> None:
    first, size = taken(lambda: snapshot_decode(MESSAGE))
    again, more = taken(lambda: shared(snapshot_decode(MESSAGE), first))
    assert again == first
    assert more < size / 20


def test_of_a_snapshot_after_a_change_only_that_is_new() -> None:
    first, size = taken(lambda: snapshot_decode(MESSAGE))
    entry = {**SNAPSHOT.entries["org/1003"], "state": "suspended"}
    changed = snapshot_encode(SNAPSHOT.replaced(put={"org/1003": entry}))
    after, more = taken(lambda: shared(snapshot_decode(changed), first))
    assert more < size / 5  # most of it is where to find what: a dictionary of all entries
    assert after == snapshot_decode(changed)
    assert after.entries == snapshot_decode(changed).entries
    assert after.policies == first.policies
    assert after.buckets == snapshot_decode(changed).buckets
    assert after.entries["org/1003"]["state"] == "suspended"
    assert first.entries["org/1003"]["state"] == "active"
    assert all(after.entries[key] is first.entries[key] for key in first.entries if first.entries[key]["org"] != "1003")
