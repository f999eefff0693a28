"""The gateway in front of real engines: what a developer sees who has a key and an address, and what engines see."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from prometheus_client.parser import text_string_to_metric_families

from engine_agent.contracts.identity import HEADER, Identity, sign
from engine_agent.contracts.protocol import change_between
from engine_agent.sidecar.holder import HolderMismatch, HolderRejected
from tests.gateway.snapshots import (
    BOUND,
    EXPIRED,
    FOREIGN,
    KEY,
    MODEL,
    POLICY,
    READING,
    SECRETS,
    SLEEPING,
    engine_snapshot,
    gate,
    gateway_snapshot,
    namespace,
    route,
    split,
    tenants,
)
from tests.integration.gateway_fleet import Fleet, Gateway, fleet, fleet_engine, gateway, told_as
from tests.support.waiting import wait_until
from tests.unit.server.asking import Answered
from tests.unit.server.fuzzing import check, random_bodies

LONG = "The sea was calm and the ship sailed on through the night, and nobody on board was awake. " * 12
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@pytest.fixture(scope="module")
def both() -> Iterator[Fleet]:
    with fleet("agent-1", "agent-2") as running:
        yield running


@pytest.fixture
def two(both: Fleet) -> Fleet:
    """Two engines and a gateway, as each test finds them."""
    both.hold()
    return both


@pytest.fixture
def client(two: Fleet) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{two.gateway.url}/v1", api_key=KEY, max_retries=0, timeout=30) as client:
        yield client


@pytest.fixture
def http(two: Fleet) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {KEY}"}
    with httpx.Client(base_url=two.gateway.url, headers=headers, timeout=30) as client:
        yield client


def body(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": "Hello there", "max_tokens": 2, "temperature": 0, **fields}


def complete(http: httpx.Client, headers: Mapping[str, str] | None = None, **fields: Any) -> httpx.Response:
    return http.post(COMPLETIONS, json=body(**fields), headers=dict(headers or {}))


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def told(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def events(text: bytes) -> list[Any]:
    return Answered(200, {}, text).events


def sample(url: str, name: str, **labels: str) -> float:
    found = [
        one.value
        for family in text_string_to_metric_families(httpx.get(f"{url}/metrics").text)
        for one in family.samples
        if one.name == name and labels.items() <= one.labels.items()
    ]
    return sum(found)


# What a developer sees


def test_a_chat_is_answered_with_what_the_cache_was_worth(client: OpenAI, two: Fleet) -> None:
    wait_until(two.gateway.heard)
    messages: Any = [{"role": "system", "content": LONG}, {"role": "user", "content": "Where are we?"}]
    ask = client.chat.completions.with_raw_response.create
    answers = [ask(model=MODEL, messages=messages, max_tokens=4, temperature=0) for _ in range(3)]
    by_agent = Counter(one.headers["x-luminet-agent"] for one in answers)
    assert len(by_agent) == 1  # it goes where it was
    warm = answers[2]
    usage = warm.parse().usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert warm.headers["x-luminet-cached-tokens"] == str(usage.prompt_tokens_details.cached_tokens)
    assert int(warm.headers["x-luminet-cached-tokens"]) > 0
    assert warm.headers["x-luminet-prompt-tokens"] == str(usage.prompt_tokens)
    assert warm.headers["x-luminet-namespace"] == "default"
    assert warm.headers["x-luminet-policy-revision"] == "7"
    assert warm.headers["x-luminet-kv-dtype"] == "bf16"
    assert answers[0].parse().choices[0].message.content == warm.parse().choices[0].message.content


def test_a_stream_says_the_same_as_an_answer_in_one_piece(client: OpenAI) -> None:
    ask: Any = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Tell me"}],
        "max_tokens": 12,
        "temperature": 0,
    }
    whole = client.chat.completions.create(**ask)
    with client.chat.completions.with_streaming_response.create(**ask, stream=True) as streamed:
        assert streamed.headers["content-type"].startswith("text/event-stream")
        assert streamed.headers["x-luminet-agent"] in ("agent-1", "agent-2")
        assert "x-luminet-cache-hit" in streamed.headers
        parts = list(streamed.parse())
    text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    assert text == whole.choices[0].message.content


def test_several_answers_and_usage_come_through(client: OpenAI) -> None:
    found = client.completions.create(model=MODEL, prompt="Hello", max_tokens=3, n=2, temperature=1, seed=5)
    assert [one.index for one in found.choices] == [0, 1]
    stream = client.completions.create(
        model=MODEL, prompt="Hello", max_tokens=3, n=2, stream=True, stream_options={"include_usage": True}
    )
    assert {one.index for part in stream for one in part.choices} == {0, 1}


def test_a_format_and_a_ttl_of_the_requests_own_come_through(client: OpenAI) -> None:
    answer = client.completions.with_raw_response.create(
        model=MODEL, prompt=LONG, max_tokens=1, extra_body={"kv_cache_dtype": "int4", "ttl_seconds": 5}
    )
    assert answer.headers["x-luminet-kv-dtype"] == "int4"


def test_the_models_are_those_of_engines_that_can_be_reached(client: OpenAI, two: Fleet) -> None:
    (model,) = client.models.list().data
    assert model.id == MODEL
    assert client.models.retrieve(MODEL).id == MODEL
    two.hold(states={"agent-1": "draining", "agent-2": "draining"})
    assert client.models.list().data == []
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve(MODEL)


def test_what_an_engine_refuses_is_told_in_its_own_words(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=MODEL, prompt="x", max_tokens=1, extra_body={"unheard_of": 1})
    assert caught.value.code == "unknown_parameter"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=[], max_tokens=1)
    assert caught.value.param == "messages"
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=MODEL, prompt="x", max_tokens=1, extra_body={"kv_cache_dtype": "fp8_e5m2"})
    assert caught.value.param == "kv_cache_dtype"


def test_a_model_nobody_serves_is_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(model="other", prompt="x")
    assert caught.value.code == "model_not_found"


# Whose a request is


def test_a_namespace_is_the_keys_own_or_the_one_that_is_asked_for(http: httpx.Client) -> None:
    asked = complete(http, {"x-luminet-namespace": "batch"})
    assert (asked.headers["x-luminet-namespace"], asked.headers["x-luminet-policy-revision"]) == ("batch", "3")
    assert complete(http, bearer(BOUND)).headers["x-luminet-namespace"] == "batch"
    assert told(complete(http, {**bearer(BOUND), "x-luminet-namespace": "default"})) == (404, "unknown_namespace")


def test_two_organisations_never_share_a_block(http: httpx.Client, two: Fleet) -> None:
    two.hold(states={"agent-2": "draining"})
    mine = [complete(http, prompt=f"{LONG} alone") for _ in range(2)]
    theirs = complete(http, bearer(FOREIGN), prompt=f"{LONG} alone")
    assert int(mine[1].headers["x-luminet-cached-tokens"]) > 0
    assert (theirs.headers["x-luminet-cached-tokens"], theirs.headers["x-luminet-miss-reason"]) == ("0", "cold")


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"authorization": ""}, (401, "invalid_api_key")),
        (bearer("lk_unheard_of"), (401, "invalid_api_key")),
        (bearer(EXPIRED), (401, "invalid_api_key")),
        (bearer(READING), (403, "missing_scope")),
        (bearer(SLEEPING), (403, "suspended")),
    ],
)
def test_a_key_that_may_not_is_refused_before_any_engine(
    http: httpx.Client, two: Fleet, headers: dict[str, str], expected: tuple[int, str]
) -> None:
    asked = sample(two.gateway.url, "luminet_gateway_requests_total")
    for answer in (complete(http, headers), http.get("/v1/models", headers=headers)):
        assert told(answer) == expected
        assert not any(name.startswith("x-luminet-") for name in answer.headers)
    assert sample(two.gateway.url, "luminet_gateway_requests_total") == asked


def test_a_key_that_is_revoked_is_refused_from_the_next_request_on(http: httpx.Client, two: Fleet) -> None:
    assert complete(http).status_code == 200
    before = two.gateway.held.tables.snapshot
    after = before.replaced(drop=[f"key/{KEY}"])
    two.gateway.apply(change_between(before, after))
    assert told(complete(http)) == (401, "invalid_api_key")


def test_an_organisation_that_is_suspended_is_refused_from_the_next_request_on(http: httpx.Client, two: Fleet) -> None:
    before = two.gateway.held.tables.snapshot
    entry = {**before.entries["org/1"], "state": "suspended"}
    two.gateway.apply(change_between(before, before.replaced(put={"org/1": entry})))
    assert told(complete(http)) == (403, "suspended")


def test_nobody_can_say_who_they_are_by_a_header_of_their_own(http: httpx.Client, two: Fleet) -> None:
    now = time.time()
    globex = Identity(
        "2", "globex", "21", "default", "infer", 7, "req-1", 1, "customer", None, now, now + 30, "agent-1"
    )
    answer = complete(http, {HEADER: sign(globex, b"x" * 32)})
    assert answer.status_code == 200
    assert complete(http, {"authorization": "", HEADER: sign(globex, SECRETS["agent-1"].encode())}).status_code == 401


def test_a_clients_own_request_id_comes_back_however_often_it_is_used(http: httpx.Client) -> None:
    answers = [complete(http, {"x-request-id": "mine-1"}) for _ in range(4)]
    assert [one.status_code for one in answers] == [200] * 4
    assert [one.headers["x-request-id"] for one in answers] == ["mine-1"] * 4


# Formats


def test_a_format_that_has_not_passed_is_refused_before_any_engine(http: httpx.Client, two: Fleet) -> None:
    two.hold(gate({"int4": "quality suite r1/paged: perplexity +9 %"}))
    asked = sample(two.gateway.url, "luminet_gateway_requests_total")
    answer = complete(http, kv_cache_dtype="int4")
    assert told(answer) == (400, "kv_dtype_unproven")
    error = answer.json()["error"]
    assert error["param"] == "kv_cache_dtype"
    assert "perplexity +9 %" in error["message"]
    assert "bf16, fp8" in error["message"]
    assert sample(two.gateway.url, "luminet_gateway_requests_total") == asked
    assert complete(http, kv_cache_dtype="fp8").status_code == 200


def test_a_format_no_engine_can_do_is_refused_with_what_can_be_had(http: httpx.Client, two: Fleet) -> None:
    answer = complete(http, kv_cache_dtype="nvfp4000")
    assert told(answer) == (400, "kv_dtype_unserved")
    assert "bf16, int4, fp8" in answer.json()["error"]["message"]


# Where it goes


def test_the_canarys_share_of_requests_is_kept_whatever_is_cached_there(http: httpx.Client, two: Fleet) -> None:
    two.hold(split(["agent-2"], 0.2))
    seen = Counter(complete(http, prompt=LONG, max_tokens=1).headers["x-luminet-agent"] for _ in range(20))
    assert seen == {"agent-1": 16, "agent-2": 4}


def test_many_at_once_are_spread_over_the_engines(http: httpx.Client, two: Fleet) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: complete(http, prompt=f"Number {number}", max_tokens=8), range(16)))
    assert {one.status_code for one in answers} == {200}
    seen = Counter(one.headers["x-luminet-agent"] for one in answers)
    assert min(seen["agent-1"], seen["agent-2"]) >= 4
    two.until_idle()


def test_an_engine_that_is_drained_gets_no_more(http: httpx.Client, two: Fleet) -> None:
    two.hold(states={"agent-1": "draining"})
    assert {complete(http).headers["x-luminet-agent"] for _ in range(4)} == {"agent-2"}


def test_an_engine_that_refuses_for_now_is_followed_by_another(http: httpx.Client, two: Fleet) -> None:
    """It is drained by somebody at its own door, and the control plane does not know yet."""
    two.engines["agent-1"].admin("POST", "/drain")
    try:
        retried = sample(two.gateway.url, "luminet_gateway_retries_total")
        seen = [complete(http) for _ in range(4)]
        assert {(one.status_code, one.headers["x-luminet-agent"]) for one in seen} == {(200, "agent-2")}
        wait_until(lambda: not two.gateway.engines.standing("agent-1").is_reachable)
        assert sample(two.gateway.url, "luminet_gateway_engine_up", agent="agent-1") == 0
        assert sample(two.gateway.url, "luminet_gateway_retries_total", reason="unavailable") >= retried
    finally:
        two.engines["agent-1"].admin("POST", "/resume")
    wait_until(lambda: two.gateway.engines.standing("agent-1").is_reachable)


def test_where_every_engine_is_drained_it_is_said_and_when_to_come_again(http: httpx.Client, two: Fleet) -> None:
    two.hold(states={"agent-1": "draining", "agent-2": "draining"})
    answer = complete(http)
    assert told(answer) == (503, "no_engine")
    assert int(answer.headers["retry-after"]) > 0
    assert "drained" in answer.json()["error"]["message"]


def test_where_every_engine_refuses_for_now_its_own_words_are_told(http: httpx.Client, two: Fleet) -> None:
    for one in two.engines.values():
        one.admin("POST", "/drain")
    try:
        answer = complete(http)
        assert told(answer) == (503, "overloaded")
        assert "retry-after" in answer.headers
    finally:
        for one in two.engines.values():
            one.admin("POST", "/resume")
    wait_until(lambda: all(two.gateway.engines.standing(one).is_reachable for one in two.engines))


def test_a_namespace_that_one_engine_does_not_know_yet_is_tried_on_the_other(http: httpx.Client, two: Fleet) -> None:
    new = tenants() | namespace("13", "1", "new")
    two.hold(who=new)
    assert two.engines["agent-1"].admin("POST", "/apply", told_as(engine_snapshot(tenants()))).status == 200
    seen = [complete(http, {"x-luminet-namespace": "new"}) for _ in range(3)]
    assert {(one.status_code, one.headers["x-luminet-agent"]) for one in seen} == {(200, "agent-2")}


def test_an_engine_that_does_not_believe_this_gateway_is_not_the_clients_fault(http: httpx.Client, two: Fleet) -> None:
    wrong = gateway_snapshot(
        tenants(),
        *({name: {**entry, "identity": SECRETS["agent-3"]} for name, entry in one.items()} for one in two.routes({})),
    )
    two.gateway.apply(wrong)
    assert told(complete(http)) == (503, "no_engine")
    assert sample(two.gateway.url, "luminet_gateway_retries_total", reason="disbelieved") >= 2


# Who leaves


def test_a_client_that_leaves_mid_stream_frees_the_engine(two: Fleet) -> None:
    with (
        httpx.Client(base_url=two.gateway.url, headers=bearer(KEY), timeout=30) as http,
        http.stream("POST", COMPLETIONS, json=body(max_tokens=1_500, ignore_eos=True, stream=True)) as answer,
    ):
        parts = answer.iter_bytes()
        assert next(parts)
        assert two.running() == 1
    two.until_idle()
    wait_until(lambda: sample(two.gateway.url, "luminet_gateway_requests_total", outcome="left") >= 1)


def test_a_client_that_leaves_before_the_answer_frees_the_engine(two: Fleet) -> None:
    async def leave() -> None:
        async with httpx.AsyncClient(base_url=two.gateway.url, headers=bearer(KEY)) as http:
            asking = asyncio.create_task(http.post(COMPLETIONS, json=body(max_tokens=1_500, ignore_eos=True)))
            await asyncio.to_thread(wait_until, lambda: two.running() == 1)
            asking.cancel()
            await asyncio.wait({asking})

    asyncio.run(leave())
    two.until_idle()


# Engines that die


def test_an_engine_killed_before_its_headers_is_followed_by_another(both: Fleet) -> None:
    with fleet_engine("agent-1") as mortal, gateway() as before:
        running = Fleet(before, {"agent-1": mortal, "agent-2": both.engines["agent-2"]})
        running.hold()
        wait_until(lambda: all(running.gateway.engines.standing(one).look_seconds for one in running.engines))
        running.hold(split(["agent-1"], 1.0))  # so that it is asked first
        with (
            httpx.Client(base_url=running.gateway.url, headers=bearer(KEY), timeout=60) as http,
            ThreadPoolExecutor(1) as pool,
        ):
            asked = pool.submit(complete, http, max_tokens=300, ignore_eos=True)
            wait_until(lambda: running.engines["agent-1"].admin("GET", "/stats").json["running"] == 1)
            running.engines["agent-1"].process.kill()
            answer = asked.result()
        assert (answer.status_code, answer.headers["x-luminet-agent"]) == (200, "agent-2")
        assert answer.json()["usage"]["completion_tokens"] == 300
        assert sample(running.gateway.url, "luminet_gateway_retries_total", reason="disconnected") == 1


def test_an_engine_killed_in_its_stream_ends_it_with_an_error_and_the_next_request_goes_elsewhere() -> None:
    with fleet("agent-1", "agent-2") as running:
        running.hold(split(["agent-1"], 1.0))
        with httpx.Client(base_url=running.gateway.url, headers=bearer(KEY), timeout=60) as http:
            asked = body(max_tokens=1_500, ignore_eos=True, stream=True)
            with http.stream("POST", COMPLETIONS, json=asked) as answer:
                assert answer.headers["x-luminet-agent"] == "agent-1"
                parts = answer.iter_bytes()
                text = next(parts)
                running.engines["agent-1"].process.kill()
                text += b"".join(parts)
            told_events = events(text)
            assert told_events[-1]["error"]["code"] == "engine_lost"
            assert all("choices" in one for one in told_events[:-1])
            assert complete(http).headers["x-luminet-agent"] == "agent-2"
        assert sample(running.gateway.url, "luminet_gateway_requests_total", outcome="broken") == 1
        with OpenAI(base_url=f"{running.gateway.url}/v1", api_key=KEY, max_retries=0) as client:
            running.engines["agent-2"].process.kill()
            running.engines["agent-2"].process.wait()  # or it may take the request with it, and is said to be lost
            with pytest.raises(openai.InternalServerError) as caught:
                client.completions.create(model=MODEL, prompt="x")
            assert (caught.value.status_code, caught.value.code) == (503, "no_engine")


# Anything at all


def test_no_body_makes_the_gateway_fail(http: httpx.Client, two: Fleet) -> None:
    for _, (path, sent) in zip(range(300), random_bodies(11, model=MODEL), strict=False):
        answer = http.post(path, content=sent)
        check(path, sent, Answered(answer.status_code, dict(answer.headers), answer.content))
    two.until_idle()


@pytest.mark.parametrize("sent", [b"", b"null", b"[1]", b"{", b'{"model":1}', b'{"model":null}', b"\xff", b"[" * 9_000])
def test_what_is_no_request_is_refused_by_name(http: httpx.Client, sent: bytes) -> None:
    answer = http.post(CHAT, content=sent)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_a_body_is_bounded_but_never_below_the_context(http: httpx.Client) -> None:
    answer = http.post(COMPLETIONS, content=b"x" * (5 << 20))
    assert told(answer) == (413, "request_too_large")
    assert http.post(COMPLETIONS, content=b"x" * (2 << 20)).status_code == 400


def test_paths_methods_and_preflights_are_as_at_an_engine(http: httpx.Client) -> None:
    assert told(http.get("/v1/nothing")) == (404, "not_found")
    refused = http.get(CHAT)
    assert (told(refused), refused.headers["allow"]) == ((405, "method_not_allowed"), "POST, OPTIONS")
    preflight = http.options(CHAT)
    assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (204, "*")
    answer = complete(http)
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "x-luminet-cache-hit" in answer.headers["access-control-expose-headers"]
    assert answer.headers.get_list("access-control-allow-origin") == ["*"]
    assert "access-control-allow-origin" not in http.get("/health").headers


# The gateway itself


def test_a_gateway_that_holds_nothing_yet_says_so() -> None:
    with gateway() as running, httpx.Client(base_url=running.url, headers=bearer(KEY)) as http:
        assert told(complete(http)) == (503, "no_snapshot")
        assert told(http.get("/health")) == (503, "no_snapshot")
        assert http.get("/metrics").status_code == 200


def test_a_gateway_that_is_drained_says_so_and_finishes_what_runs(two: Fleet, http: httpx.Client) -> None:
    with http.stream("POST", COMPLETIONS, json=body(max_tokens=200, ignore_eos=True, stream=True)) as answer:
        parts = answer.iter_bytes()
        text = next(parts)
        assert two.gateway.do(two.gateway.holder.operate("drain", {})) == {"ok": True, "left": 1}
        try:
            assert told(complete(http)) == (503, "draining")
            assert told(http.get("/health")) == (503, "draining")
            text += b"".join(parts)
        finally:
            two.gateway.do(two.gateway.holder.operate("resume", {}))
    assert events(text)[-1] == "[DONE]"
    assert complete(http).status_code == 200
    assert http.get("/health").json() == {"status": "ok", "engines": 2, "reachable": 2}


def test_a_change_is_in_force_for_the_next_request_and_a_wrong_one_changes_nothing(two: Fleet) -> None:
    running: Gateway = two.gateway
    before = running.held.tables.snapshot
    after = before.replaced(put=namespace("12", "1", "renamed", POLICY, revision=4))
    assert running.apply(change_between(before, after)) == after.hash
    assert running.held.tables.organisations["1"].namespaces.keys() == {"default", "renamed"}
    with pytest.raises(HolderMismatch):
        running.apply(change_between(before, after))
    with pytest.raises(HolderRejected, match=r"route/agent-1\.address"):
        running.apply(gateway_snapshot(tenants(), route("agent-1", "nowhere")))
    with pytest.raises(HolderRejected, match="message"):
        running.do(running.holder.apply(b"{}x"))
    state = running.do(running.holder.state())
    assert (state.hash, state.state, state.load) == (after.hash, "ready", {"running": 0, "waiting": 0})
    assert running.do(running.holder.operate("integrity", {})) == {"ok": True, "problems": []}


def test_metrics_say_what_became_of_requests(http: httpx.Client, two: Fleet) -> None:
    url = two.gateway.url
    answered = sample(url, "luminet_gateway_requests_total", model=MODEL, outcome="answered")
    refused = sample(url, "luminet_gateway_errors_total", reason="model_not_found")
    routed = sample(url, "luminet_gateway_routing_seconds_count")
    complete(http)
    complete(http, model="other")
    assert sample(url, "luminet_gateway_requests_total", model=MODEL, outcome="answered") == answered + 1
    assert sample(url, "luminet_gateway_errors_total", reason="model_not_found") == refused + 1
    assert sample(url, "luminet_gateway_routing_seconds_count") == routed + 1
    assert sample(url, "luminet_gateway_engine_up") == 2
    assert json.dumps(SECRETS) not in httpx.get(f"{url}/metrics").text
