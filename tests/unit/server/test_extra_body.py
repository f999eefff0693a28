"""`extra_body` as a field, which is how OpenAI's JavaScript client sends it."""

import json
from typing import Any

import pytest

from engine_agent.gateway.asked import asked_read
from engine_agent.http.errors import ApiError
from engine_agent.http.extra_body import read_request


def read(**request: Any) -> dict[str, Any]:
    return read_request(json.dumps(request).encode())


def test_extra_body_fields_join_the_request() -> None:
    assert read(model="demo", extra_body={"kv_cache_dtype": "int4"}) == {"model": "demo", "kv_cache_dtype": "int4"}
    assert read(model="demo", extra_body=None) == {"model": "demo"} == read(model="demo", extra_body={})
    assert read(ttl_seconds=60, extra_body={"ttl_seconds": 60}) == {"ttl_seconds": 60}


@pytest.mark.parametrize(
    ("request_fields", "param"),
    [
        ({"extra_body": "int4"}, "extra_body"),
        ({"extra_body": [{"kv_cache_dtype": "int4"}]}, "extra_body"),
        ({"extra_body": {"extra_body": {}}}, "extra_body.extra_body"),
        ({"kv_cache_dtype": "fp8", "extra_body": {"kv_cache_dtype": "int4"}}, "kv_cache_dtype"),
        ({"stream": True, "extra_body": {"stream": 1}}, "stream"),
        ({"cache_salt": None, "extra_body": {"cache_salt": "a"}}, "cache_salt"),
    ],
)
def test_contradicting_extra_body_is_refused(request_fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        read(**request_fields)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_gateway_sends_engines_the_merged_request() -> None:
    request = {"model": "demo", "prompt": "ü\u2028", "extra_body": {"kv_cache_dtype": "int4", "seed": 10**30}}
    asked = asked_read(json.dumps(request).encode())
    assert asked.kv_dtype == "int4"
    assert json.loads(asked.body) == asked.told
    assert asked.told == {"model": "demo", "prompt": "ü\u2028", "kv_cache_dtype": "int4", "seed": 10**30}
