"""What is read of a body, how long one may be, and what `/v1/models` says where engines differ."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_agent.gateway.asked import LIGHT_BYTES, LIGHT_COMMAS, LIGHT_VALUES, Asked, Reader, asked_read, is_light
from engine_agent.gateway.limits import LEAST_BODY_BYTES, MOST_TOKEN_BYTES, Limits
from engine_agent.gateway.models import models_served, names_served
from engine_agent.gateway.refusals import no_engine, route_refusal
from engine_agent.gateway.route import UnknownModel, UnprovenFormat, UnservedFormat
from engine_agent.gateway.standing import Standing
from engine_agent.gateway.tables import Tables, tables_empty, tables_read
from engine_agent.http.errors import ApiError, model_not_found
from tests.gateway.snapshots import MODEL, gate, gateway_snapshot, route, tenants

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def tables(*entries: dict[str, Any]) -> Tables:
    return tables_read(gateway_snapshot(tenants(), *entries), tables_empty())


def test_of_a_body_model_and_format_are_read_and_it_stays_as_it_is() -> None:
    body = b'{"model": "demo", "kv_cache_dtype": "int4", "anything": [1.0]}'
    assert asked_read(body) == Asked("demo", "int4", body)
    assert asked_read(b'{"model":"demo","kv_cache_dtype":null}').kv_dtype is None


async def test_a_large_body_is_read_just_the_same() -> None:
    body = json.dumps({"model": "demo", "prompt": "x" * (2 * LIGHT_BYTES)}).encode()
    assert await Reader().read(body) == Asked("demo", None, body)
    with pytest.raises(ApiError, match="model: is missing"):
        await Reader().read(body.replace(b"model", b"madel"))


@pytest.mark.parametrize(
    ("body", "light"),
    [
        (b'{"prompt": "%b"}' % (b"x" * (LIGHT_BYTES - 20)), True),
        (b'{"prompt": "%b"}' % (b"x" * LIGHT_BYTES), False),
        (b'{"messages": [%b]}' % b",".join([b"{}"] * (LIGHT_VALUES + 1)), False),
        (b'{"prompt": %b%b}' % (b"[" * LIGHT_VALUES, b"]" * LIGHT_VALUES), False),
        (b'{"prompt": [%b]}' % b",".join([b"1"] * (LIGHT_COMMAS + 2)), False),
    ],
)
async def test_how_much_work_a_body_is_shows_before_it_is_read(body: bytes, light: bool) -> None:
    assert is_light(body) is light


@given(
    st.binary(max_size=30) | st.dictionaries(st.sampled_from(["model", "kv_cache_dtype", "x"]), JSON).map(json.dumps)
)
def test_no_body_makes_it_fail(sent: bytes | str) -> None:
    body = sent if isinstance(sent, bytes) else sent.encode()
    problem = None
    try:
        asked_read(body)
    except ApiError as error:
        problem = error
    assert problem is None or (problem.status == 400 and problem.code in ("invalid_json", "invalid_value"))


def test_a_body_may_be_as_long_as_the_longest_context_needs() -> None:
    assert Limits(lambda: 0).body_bytes == LEAST_BODY_BYTES
    large = Limits(lambda: 32_768)
    assert large.body_bytes > 32_768 * MOST_TOKEN_BYTES
    assert large.held_bytes >= 2 * large.body_bytes


def test_an_engine_that_says_it_takes_any_context_opens_no_gateway_to_any_body() -> None:
    endless = Limits(lambda: 10**15)
    assert (endless.body_bytes, endless.held_bytes) == (64 * 2**20, 256 * 2**20)


def test_where_engines_differ_a_model_has_every_proven_format_and_the_context_that_all_have() -> None:
    found = tables(
        route("agent-1", kv_dtypes=["bf16", "fp8"], context_tokens=4_096),
        route("agent-2", kv_dtypes=["bf16", "int4"], context_tokens=2_048),
        route("agent-3", models=["other"]),
        gate({"int4": "no"}),
    )
    models = models_served(found, lambda agent: Standing())
    assert list(models) == [MODEL, "other"]
    assert models[MODEL]["kv_cache_dtypes"] == ["bf16", "fp8"]
    assert models[MODEL]["max_model_len"] == 2_048
    assert list(models_served(found, lambda agent: Standing(is_reachable=agent == "agent-3"))) == ["other"]


@pytest.mark.parametrize(
    ("problem", "status", "code", "words"),
    [
        (UnknownModel("m"), 404, "model_not_found", "no model 'm' here. Served here: a, b."),
        (
            UnprovenFormat("int4", "perplexity +9 %.", ["bf16"]),
            400,
            "kv_dtype_unproven",
            "+9 %. This namespace may use bf16.",
        ),
        (UnprovenFormat("int4", "no", []), 400, "kv_dtype_unproven", "no other it may use"),
        (UnservedFormat("x" * 99, ["bf16", "fp8"]), 400, "kv_dtype_unserved", "may use bf16, fp8."),
    ],
)
def test_a_refusal_says_what_can_be_had_instead(problem: Any, status: int, code: str, words: str) -> None:
    error = route_refusal(problem, "m", lambda: ["b", "a"])
    assert (error.status, error.code) == (status, code)
    assert words in error.message
    assert len(error.message) < 300


@pytest.mark.parametrize(
    ("served", "words"),
    [
        ([], "No model is served here now."),
        (["org/b", "a"], "Served here: a, org/b."),
        ([f"m{number:02}" for number in range(10)], "m08, m09."),
        ([f"m{number:04}" for number in range(1_210)], "m0008, m0009 and 1,200 more."),
        (["x" * 9_000], f"Served here: {'x' * 100}."),
    ],
)
def test_of_the_models_there_are_some_are_named_in_order_however_many_and_long(served: list[str], words: str) -> None:
    for names in (served, served[::-1]):
        error = model_not_found("m" * 9_000, names)
        assert error.body["error"]["message"].endswith(words)
        assert len(error.message) < 500
    assert (error.status, error.param, error.code) == (404, "model", "model_not_found")


@pytest.mark.parametrize(("is_reachable", "names"), [(True, [MODEL, "other"]), (False, [])])
def test_the_models_that_are_named_are_those_that_are_listed(is_reachable: bool, names: list[str]) -> None:
    drained = route("agent-3", models=["gone"], state="draining")
    found = tables(route("agent-1", models=["other"]), route("agent-2"), drained)
    assert names_served(found, lambda agent: Standing(is_reachable=is_reachable)) == names
    assert list(models_served(found, lambda agent: Standing(is_reachable=is_reachable))) == names


def test_without_an_engine_it_is_said_why_and_when_to_come_again() -> None:
    for error, words in (
        (no_engine("m", tried=0, is_lost=False), "drained"),
        (no_engine("m", tried=2, is_lost=False), "2 engines tried"),
        (no_engine("m", tried=1, is_lost=True), "lost before it answered"),
    ):
        assert error.status == 503
        assert words in error.message
        assert int(error.headers["retry-after"]) > 0
