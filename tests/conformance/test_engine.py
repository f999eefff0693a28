"""The backend conformance suite: what an engine of a fleet does, whoever computes its tokens."""

import json
import time
from http.client import HTTPResponse
from typing import Any

import pytest

from tests.conformance.fleet_engine import MOST_REQUESTS, FleetEngine, displaced, offload_grades
from tests.support.waiting import wait_until
from tests.vllm.processor import COMPUTED_AS, vllm_format

VLLM_ALIASES = {"fp8": {"fp8": "fp8_e4m3"}, "bf16": {}}


def test_hits_are_exact_and_the_last_token_is_computed(agent: FleetEngine) -> None:
    agent.govern(exact={})
    block = agent.block
    prompt = agent.fresh(4, extra=0)
    assert agent.missed("exact", prompt) == (0, "cold")
    assert agent.cached("exact", prompt) == 3 * block
    assert agent.cached("exact", [*prompt, 7]) == 4 * block
    assert agent.cached("exact", [*prompt[: 2 * block], *agent.fresh(1)]) == 2 * block


def test_a_hit_answers_as_a_miss_does(agent: FleetEngine) -> None:
    agent.govern(same={})
    prompt = agent.fresh(3)
    first = agent.complete("same", prompt, max_tokens=12)
    second = agent.complete("same", prompt, max_tokens=12)
    assert int(second.headers["x-luminet-cached-tokens"]) == 3 * agent.block
    assert first.json["choices"] == second.json["choices"]


def test_the_format_that_is_said_is_the_one_that_is_computed(agent: FleetEngine) -> None:
    agent.govern(format={})
    answer = agent.complete("format", agent.fresh(1))
    assert answer.headers["x-luminet-kv-dtype"] == {"paged": "fp8", "vllm": COMPUTED_AS[vllm_format()]}[agent.backend]


def test_who_computes_is_said_with_its_version_and_what_formats_are_computed_as(agent: FleetEngine) -> None:
    card = agent.stats["model"]
    assert (card["backend"], bool(card["backend_version"])) == (agent.backend, True)
    assert card["computed_as"] == {"paged": {}, "vllm": VLLM_ALIASES[vllm_format()]}[agent.backend]
    assert card["enforcement"]["weight"]["grade"] == {"paged": "enforced", "vllm": "best_effort"}[agent.backend]


def test_two_namespaces_never_meet(agent: FleetEngine) -> None:
    agent.govern(left={}, right={})
    prompt = agent.fresh(3)
    agent.complete("left", prompt)
    assert agent.missed("right", prompt) == (0, "cold")


def test_a_clients_salt_is_apart_within_its_namespace(agent: FleetEngine) -> None:
    agent.govern(salted={})
    prompt = agent.fresh(3)
    agent.complete("salted", prompt, cache_salt="mine")
    assert agent.cached("salted", prompt) == 0
    assert agent.cached("salted", prompt, cache_salt="mine") == 3 * agent.block


def test_a_sliding_ttl_is_renewed_by_a_hit_and_an_absolute_one_is_not(agent: FleetEngine) -> None:
    agent.govern(sliding={"ttl_seconds": 4}, absolute={"ttl_seconds": 4, "ttl_mode": "absolute"})
    prompt = agent.fresh(3)
    began = time.monotonic()
    for name in ("sliding", "absolute"):
        agent.complete(name, prompt)
    while time.monotonic() - began < 6:
        time.sleep(0.5)
        assert agent.cached("sliding", prompt) == 3 * agent.block
    assert agent.missed("absolute", prompt) == (0, "expired")
    assert agent.cached("absolute", prompt) == 3 * agent.block
    time.sleep(4.5)
    assert agent.missed("sliding", prompt) == (0, "expired")


def test_a_ttl_shortened_holds_between_two_requests_without_a_restart(agent: FleetEngine) -> None:
    agent.govern(shortened={})
    prompt = agent.fresh(3)
    agent.complete("shortened", prompt)
    time.sleep(1.2)
    agent.govern(shortened={"ttl_seconds": 1})
    assert agent.missed("shortened", prompt) == (0, "expired")


def test_a_limit_costs_its_own_namespace_alone(agent: FleetEngine) -> None:
    pool = agent.stats["model"]["pool_bytes"]
    agent.govern(limited={"limit_share": 0.05}, beside={})
    kept = agent.fresh(3)
    agent.complete("beside", kept)
    first = agent.fresh(6)
    agent.complete("limited", first)
    for _ in range(MOST_REQUESTS):
        if agent.namespace("limited")["counters"]["quota_blocks"]:
            break
        agent.complete("limited", agent.fresh(8))
    else:
        pytest.fail("its limit never cost it a block")
    assert agent.namespace("limited")["resident_bytes"] <= 0.05 * pool
    cached, reason = agent.missed("limited", first)
    assert (cached < 6 * agent.block, reason) == (True, "quota")
    assert agent.cached("beside", kept) == 3 * agent.block


def test_a_flood_takes_no_reserved_block(agent: FleetEngine) -> None:
    agent.govern(reserved={"reserved_share": 0.1}, flood={})
    kept = agent.fresh(6)
    agent.complete("reserved", kept)
    width = 900 // agent.block - 1
    for _ in range(MOST_REQUESTS):
        agent.complete("flood", [agent.fresh(width) for _ in range(8)], max_tokens=1)
        if agent.namespace("flood")["counters"]["evicted_blocks"] >= width:
            break
    else:
        pytest.fail("the flood never filled the pool")
    assert agent.cached("reserved", kept) == 6 * agent.block


def test_a_host_tier_that_is_refused_keeps_nothing(agent: FleetEngine) -> None:
    assert offload_grades(agent) == {"none": "enforced", "host": "refused", "disk": "refused"}
    agent.govern(unkept={"offload": "host", "limit_share": 0.05})
    tokens = agent.fresh(4)
    displaced(agent, "unkept", tokens)
    assert agent.cached("unkept", tokens) == 0


def test_a_pin_is_computed_and_survives_its_ttl(agent: FleetEngine) -> None:
    agent.govern(pinned={"pin_share": 0.1, "ttl_seconds": 1})
    tokens = agent.fresh(4)
    agent.pin("kept", "pinned", tokens)
    wait_until(lambda: _pin(agent, "kept")["resident_blocks"] == 4)
    time.sleep(1.5)
    assert agent.cached("pinned", tokens) == 4 * agent.block
    records = agent.engine.admin("GET", "/journal?limit=10000").json["entries"]
    assert "pin" in {one["kind"] for one in records if one["type"] == "opened"}


def test_a_purge_is_at_once_and_has_a_receipt(agent: FleetEngine) -> None:
    agent.govern(purged={}, spared={})
    prompt = agent.fresh(3)
    for name in ("purged", "spared"):
        agent.complete(name, prompt)
    agent.purge("purged")
    receipts = agent.engine.admin("GET", "/receipts").json["receipts"]
    (receipt,) = [one for one in receipts if one["namespace"] == "purged"]
    assert receipt["is_done"]
    assert receipt["blocks"] >= 3
    assert receipt["bytes"] > 0
    assert agent.stats["pages"]["zeroed_pages"] >= 3
    assert agent.missed("purged", prompt) == (0, "purged")
    assert agent.cached("spared", prompt) == 3 * agent.block


def test_a_streams_headers_say_what_it_hit_before_its_first_token(agent: FleetEngine) -> None:
    agent.govern(streamed={})
    prompt = agent.fresh(6)
    agent.complete("streamed", prompt)
    with agent.streaming("streamed", prompt, max_tokens=6) as response:
        assert response.status == 200
        assert int(response.headers["x-luminet-cached-tokens"]) == 6 * agent.block
        assert response.headers["x-luminet-miss-reason"] == "none"
        said = _events(response)
    assert said[-1] == "[DONE]"
    assert "".join(json.loads(one)["choices"][0]["text"] for one in said[:-1] if json.loads(one)["choices"])


def test_a_client_that_leaves_frees_its_blocks(agent: FleetEngine) -> None:
    agent.govern(gone={})
    with agent.streaming("gone", agent.fresh(2), max_tokens=800, ignore_eos=True) as response:
        response.readline()
        assert agent.stats["running"] == 1
    wait_until(lambda: agent.stats["running"] == 0)
    assert agent.stats["pool"]["sequences"] == 0


def test_a_stop_string_ends_an_answer_and_is_no_part_of_it(agent: FleetEngine) -> None:
    agent.govern(stopped={})
    prompt = agent.fresh(1)
    told = agent.complete("stopped", prompt, max_tokens=24, ignore_eos=True).json["choices"][0]
    stop = told["text"][3:6]
    cut = agent.complete("stopped", prompt, max_tokens=24, ignore_eos=True, stop=[stop]).json["choices"][0]
    assert cut["finish_reason"] == "stop"
    assert cut["text"] == told["text"].split(stop)[0]
    wait_until(lambda: agent.stats["running"] == 0)


def test_choices_and_several_prompts_are_one_request_each_counted_once(agent: FleetEngine) -> None:
    agent.govern(several={})
    since = agent.engine.admin("GET", "/journal?limit=10000").json["last"]
    prompts = [agent.fresh(2), agent.fresh(1)]
    answer = agent.complete("several", prompts, n=2, temperature=1, seed=5, max_tokens=3)
    assert [one["index"] for one in answer.json["choices"]] == [0, 1, 2, 3]
    assert answer.json["usage"]["prompt_tokens"] == sum(map(len, prompts))
    page = agent.engine.admin("GET", f"/journal?since={since}&limit=10000").json
    opened = [one for one in page["entries"] if one["type"] == "opened"]
    assert [one["prompt_tokens"] for one in opened] == [sum(map(len, prompts))]


def test_logprobs_are_of_the_token_that_was_chosen(agent: FleetEngine) -> None:
    agent.govern(logprobs={})
    answer = agent.complete("logprobs", agent.fresh(1), logprobs=2, max_tokens=3, ignore_eos=True)
    told = answer.json["choices"][0]["logprobs"]
    assert len(told["token_logprobs"]) == len(told["tokens"]) == 3
    assert all(value <= 0 for value in told["token_logprobs"])
    for top, one in zip(told["top_logprobs"], told["token_logprobs"], strict=True):
        assert max(top.values()) == pytest.approx(one)


@pytest.mark.parametrize(
    ("fields", "status"),
    [({"kv_cache_dtype": "int4"}, 400), ({"prompt": []}, 400), ({"max_tokens": 5000}, 400), ({"n": 1000}, 400)],
)
def test_what_cannot_be_served_is_refused_and_leaves_nothing(
    agent: FleetEngine, fields: dict[str, Any], status: int
) -> None:
    agent.govern(refused={})
    answer = agent.complete("refused", **{"prompt": agent.fresh(1), **fields})
    assert answer.status == status, answer
    assert agent.stats["running"] == agent.stats["waiting"] == 0


def test_a_stranger_is_told_that_it_is_unknown(agent: FleetEngine) -> None:
    answer = agent.complete("nobody", agent.fresh(1))
    assert (answer.status, answer.error) == (503, "unknown_namespace")


def test_events_followed_are_the_index(agent: FleetEngine) -> None:
    agent.govern(events={"ttl_seconds": 2})
    start = agent.engine.admin("GET", "/events").json
    held = {(one["root"], digest) for one in start.get("snapshot", []) for digest in one["digests"]}
    for _ in range(3):
        prompt = agent.fresh(3)
        agent.complete("events", prompt)
        agent.complete("events", [*prompt[: agent.block], *agent.fresh(1)])
    time.sleep(2.5)
    agent.purge("events")
    agent.complete("events", agent.fresh(2))
    since = agent.engine.admin("GET", f"/events?boot={start['boot']}&since={start['number']}").json
    for event in since["events"]:
        entries = {(event["root"], digest) for digest in event["digests"]}
        if event["kind"] == "stored":
            assert not entries & held, "stored twice"
            held |= entries
        elif event["kind"] == "removed":
            assert entries <= held, "removed, and was not there"
            held -= entries
        elif event["kind"] == "cleared":
            held = {one for one in held if one[0] != event["root"]}
    whole = agent.engine.admin("GET", "/events").json["snapshot"]
    assert held == {(one["root"], digest) for one in whole for digest in one["digests"]}


def test_a_drained_engine_refuses_until_it_is_resumed(agent: FleetEngine) -> None:
    agent.govern(drained={})
    assert agent.engine.admin("POST", "/drain").json["is_draining"]
    assert agent.complete("drained", agent.fresh(1)).status == 503
    agent.engine.admin("POST", "/resume")
    assert agent.complete("drained", agent.fresh(1)).status == 200


def test_it_is_well_and_its_books_are_sound(agent: FleetEngine) -> None:
    assert agent.engine.admin("GET", "/health").json["ok"]
    assert agent.engine.admin("POST", "/integrity").json == {"problems": []}


def test_the_snapshot_it_obeys_has_a_hash(agent: FleetEngine) -> None:
    told = agent.govern(hashed={})
    assert agent.engine.admin("GET", "/snapshot").json == {"hash": told}
    assert agent.engine.admin("GET", "/brief").json["snapshot_hash"] == told


def _pin(agent: FleetEngine, pin_id: str) -> Any:
    return next(one for one in agent.engine.admin("GET", "/pins").json["pins"] if one["id"] == pin_id)


def _events(response: HTTPResponse) -> list[str]:
    lines = response.read().decode().split("\n\n")
    return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
