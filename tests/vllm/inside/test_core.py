"""What is asked of vLLM's engine process, in vLLM's real scheduler: a snapshot, its pins, their warm-ups."""

import base64
import re
from typing import Any

from engine_agent.contracts.protocol import Snapshot, policy_hash, snapshot_build, snapshot_encode
from tests.vllm.inside.scheduling import BLOCK, World, prompt

POLICY = {"kv_dtype": "fp8", "request_kv_dtypes": [], "ttl_seconds": 3600, "pin_share": 0.5}


def governed(**fields: Any) -> World:
    world = World({}, **fields)
    assert world.core.ask("apply", snapshot_encode(snapshot())) == {"ok": snapshot().hash}
    return world


def snapshot() -> Snapshot:
    key = base64.b64encode(bytes(32)).decode()
    pin = {"org": "acme", "ns": "acme", "name": "p", "model": "demo", "kind": "token_ids", "bytes": 4 * (4 * BLOCK)}
    entries: dict[str, Any] = {
        "org/acme": {"org": "acme", "slug": "acme", "state": "active", "limits": {}},
        "ns/acme": {
            "org": "acme",
            "slug": "acme",
            "epoch": 1,
            "key": key,
            "revision": 1,
            "policy": policy_hash(POLICY),
        },
        "pin/p": {**pin, "expires_at": None},
    }
    return snapshot_build("engine", entries, {policy_hash(POLICY): POLICY})


def pinned(world: World) -> Any:
    (found,) = world.core.ask("pins")["ok"]
    return found


def test_every_token_of_an_answer_under_way_is_counted() -> None:
    world = governed()
    request = world.request(prompt(2, extra=0), max_tokens=200)
    for _ in range(BLOCK + 5):
        world.step()
        world.core.ask("stats")
        (sequence,) = world.scheduler.kv_cache_manager.sequences.values()
        room = len(sequence.pages) * BLOCK
        assert list(sequence.tokens) == request.all_token_ids[:room]


def test_a_pin_is_computed() -> None:
    world = governed()
    world.core.ask("pin_content", "p", prompt(4, extra=0))
    assert pinned(world)["is_warming"]
    world.until_idle()
    assert (pinned(world)["resident_blocks"], pinned(world)["problem"], pinned(world)["is_warming"]) == (4, "", False)


def test_no_clients_request_can_be_called_as_a_pins_warm_up_is() -> None:
    """Whatever a client calls its request: the backend adds a slash and a number."""
    world = governed()
    world.core.ask("pin_content", "p", prompt(4, extra=0))
    (request,) = world.scheduler.waiting
    assert not re.search(r"/\d+$", request.request_id)


def test_a_pin_whose_warm_up_is_refused_says_why() -> None:
    world = governed(most_waiting=1)
    world.request(prompt(2))
    world.core.ask("pin_content", "p", prompt(4, extra=0))
    assert pinned(world)["problem"] == "1 requests wait already: try again in a moment"
    assert not pinned(world)["is_warming"]


def test_vllms_own_salt_is_the_servers_by_namespace_and_epoch_and_the_clients_folded_in() -> None:
    world = World({"acme": {}, "bolt": {}})
    asked = [("acme", ""), ("acme", "aa"), ("bolt", "aa"), ("acme", "aa")]
    salts = [world.request(prompt(1), name, salt=salt).cache_salt for name, salt in asked]
    world.purge("acme")
    salts.append(world.request(prompt(1), "acme", salt="aa").cache_salt)
    assert salts[1] == salts[3]
    assert len(set(salts)) == 4
    world.until_idle()
