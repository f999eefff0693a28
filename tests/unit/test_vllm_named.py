"""Namespaces by name and policy alone, as the snapshot that says the same."""

from typing import Any

import pytest

from engine_agent.backends.vllm.named import named_snapshot, purged_snapshot
from engine_agent.contracts.protocol import Snapshot, snapshot_build
from engine_agent.engine.errors import BadRequest

FORMATS = ("fp8_e4m3", "fp8")
NOTHING = snapshot_build("engine", {}, {})


def named(held: Snapshot = NOTHING, **policies: Any) -> Snapshot:
    return named_snapshot(held, policies, kv_formats=FORMATS)


def policy(snapshot: Snapshot, name: str) -> Any:
    return snapshot.policies[snapshot.entries[f"ns/{name}"]["policy"]]


def test_a_namespace_that_stays_keeps_its_blocks_and_counts_its_revisions() -> None:
    before = named(acme={}, bolt={})
    after = named(before, acme={"ttl_seconds": 5}, bolt={})
    old, new = before.entries["ns/acme"], after.entries["ns/acme"]
    assert (new["key"], new["epoch"], new["revision"]) == (old["key"], old["epoch"], 2)
    assert after.entries["ns/bolt"] == before.entries["ns/bolt"]
    assert named(after, acme={"ttl_seconds": 5}).entries.keys() == {"org/local", "ns/acme"}


def test_keys_are_secret_and_each_namespaces_own() -> None:
    one, other = named(acme={}, bolt={}), named(acme={})
    keys = [one.entries["ns/acme"]["key"], one.entries["ns/bolt"]["key"], other.entries["ns/acme"]["key"]]
    assert len(set(keys)) == 3


def test_a_purge_is_a_new_epoch_with_a_new_key() -> None:
    held = named(acme={}, bolt={})
    purged = purged_snapshot(held, ["acme"])
    assert purged.entries["ns/acme"]["epoch"] == 1
    assert purged.entries["ns/acme"]["key"] != held.entries["ns/acme"]["key"]
    assert purged.entries["ns/bolt"] == held.entries["ns/bolt"]
    assert [purged_snapshot(held, []).entries[f"ns/{name}"]["epoch"] for name in ("acme", "bolt")] == [1, 1]


def test_a_policy_has_the_format_that_is_computed_unless_it_says_another_name_of_it() -> None:
    held = named(acme={}, bolt={"kv_dtype": "fp8", "max_age_seconds": float("inf")})
    assert policy(held, "acme") == {"kv_dtype": "fp8_e4m3"}
    assert policy(held, "bolt") == {"kv_dtype": "fp8", "max_age_seconds": None}


@pytest.mark.parametrize(
    ("said", "field", "problem"),
    [
        ({"ttl": 1}, "namespaces.acme.ttl", "is none of prefix_caching, ttl_seconds"),
        ({"ttl_seconds": 0}, "namespaces.acme.ttl_seconds", "seconds above 0"),
        ({"kv_dtype": "int4"}, "namespaces.acme.kv_dtype", "'int4' is not served here, only fp8_e4m3, fp8"),
        (5, "namespaces.acme", "must be an object"),
    ],
)
def test_what_cannot_be_obeyed_is_named(said: Any, field: str, problem: str) -> None:
    with pytest.raises(BadRequest) as refused:
        named(acme=said)
    assert refused.value.field == field
    assert problem in refused.value.problem


def test_what_came_by_snapshot_or_is_not_there_is_not_purged() -> None:
    held = named(acme={})
    with pytest.raises(BadRequest, match="'gone' is no namespace here"):
        purged_snapshot(held, ["gone"])
    about = {**held.entries["ns/acme"], "org": "7"}
    organisation = {"org": "7", "slug": "corp", "state": "active", "limits": {}}
    theirs = snapshot_build("engine", {"org/7": organisation, "ns/acme": about}, held.policies)
    with pytest.raises(BadRequest, match="came by a snapshot"):
        purged_snapshot(theirs, ["acme"])
