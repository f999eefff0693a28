"""A change costs what it changes: what it does not touch is neither read again nor given to the block manager."""

from pathlib import Path
from typing import Any

import pytest

from engine_agent.contracts.protocol import HashMismatch, change_between
from engine_agent.engine.errors import RejectedSnapshot
from tests.engines.driving import Driven, drive
from tests.engines.snapshots import make_snapshot

MANY = {f"n{number}": {"ttl_seconds": 10 + number} for number in range(40)}


def _policies(driven: Driven) -> dict[str, Any]:
    """As the block manager has them."""
    return {name: found.policy for name, found in driven.engine.manager.cache.books.namespaces.items()}


@pytest.mark.parametrize("is_whole", [False, True])
def test_what_a_snapshot_leaves_as_it_was_is_not_touched(llama: Path, is_whole: bool) -> None:
    before = make_snapshot(MANY)
    after = make_snapshot({**MANY, "n7": {"ttl_seconds": 3}, "n40": {}}, revisions={"n8": 2})
    driven = drive(llama, snapshot=before)
    tenants, policies = {one.namespace: one for one in driven.engine.tenants}, _policies(driven)
    driven.engine.apply(after if is_whole else change_between(before, after))
    now = {one.namespace: one for one in driven.engine.tenants}
    assert {name for name in now if now[name] is not tenants.get(name)} == {"n7", "n8", "n40"}
    found = _policies(driven)
    # n8 has another revision, which is nothing to the block manager
    assert {name for name in found if found[name] is not policies.get(name)} == {"n7", "n40"}
    assert (found["n7"].ttl_seconds, now["n8"].revision) == (3, 2)


def test_a_suspended_organisation_keeps_its_blocks_and_its_policy(llama: Path) -> None:
    before, after = make_snapshot(MANY), make_snapshot(MANY, suspended=["n7"])
    driven = drive(llama, snapshot=before)
    policies = _policies(driven)
    driven.engine.apply(change_between(before, after))
    assert [one.namespace for one in driven.engine.tenants if not one.is_active] == ["n7"]
    assert all(found is policies[name] for name, found in _policies(driven).items())


def test_what_was_read_is_not_obeyed_after_another_snapshot(llama: Path) -> None:
    first, second, third = (make_snapshot({"one": {"ttl_seconds": seconds}}) for seconds in (10, 20, 30))
    driven = drive(llama, snapshot=first)
    prepared = driven.engine.tenants.prepare(third)
    driven.engine.apply(second)
    with pytest.raises(HashMismatch):
        driven.engine.tenants.obey(prepared)
    assert driven.engine.tenants.snapshot.hash == second.hash
    assert _policies(driven)["one"].ttl_seconds == 20


def test_reading_a_snapshot_changes_nothing(llama: Path) -> None:
    driven = drive(llama, snapshot=make_snapshot(MANY))
    held, tenants, policies = driven.engine.tenants.snapshot, list(driven.engine.tenants), _policies(driven)
    driven.engine.tenants.prepare(make_snapshot({"n7": {"ttl_seconds": 3}}))
    assert driven.engine.tenants.snapshot is held
    assert list(driven.engine.tenants) == tenants
    assert _policies(driven) == policies


def test_shares_are_judged_with_those_a_change_does_not_name(llama: Path) -> None:
    before = make_snapshot({"one": {"reserved_share": 0.7}, "two": {}, "three": {"pin_share": 0.1}})
    driven = drive(llama, snapshot=before)
    fits = make_snapshot({"one": {"reserved_share": 0.7}, "two": {"pin_share": 0.2}, "three": {"pin_share": 0.1}})
    driven.engine.apply(change_between(before, fits))
    above = make_snapshot({"one": {"reserved_share": 0.7}, "two": {"pin_share": 0.25}, "three": {"pin_share": 0.1}})
    with pytest.raises(RejectedSnapshot, match="105% of the pool"):
        driven.engine.apply(change_between(fits, above))
    assert driven.engine.tenants.snapshot.hash == fits.hash


def test_a_pin_waits_for_its_namespace_and_goes_with_it(llama: Path) -> None:
    whole = make_snapshot({"one": {}, "two": {}}, pins={"p": "two"})
    without = whole.replaced(drop=["ns/two"])
    driven = drive(llama, snapshot=without)
    assert dict(driven.engine.tenants.pins) == {}
    driven.engine.apply(change_between(without, whole))
    assert list(driven.engine.tenants.pins) == ["p"]
    driven.engine.apply(change_between(whole, without))
    assert dict(driven.engine.tenants.pins) == {}
    driven.engine.apply(whole.replaced(drop=["ns/two", "pin/p"]))
    driven.engine.apply(whole.replaced(drop=["pin/p"]))
    assert dict(driven.engine.tenants.pins) == {}


def test_a_namespace_may_go_to_another_organisation(llama: Path) -> None:
    before = make_snapshot({"one": {}, "two": {}})
    after = before.replaced(put={"ns/one": {**before.entries["ns/one"], "org": "two"}})
    driven = drive(llama, snapshot=before)
    driven.engine.apply(change_between(before, after))
    assert driven.engine.tenants.tenant("one").organisation == "two"
    assert {one.namespace for one in driven.engine.tenants} == {"one", "two"}
