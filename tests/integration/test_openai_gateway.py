"""The real `openai` client at a gateway: what only a gateway has, which is namespaces, limits and many models. What it
has in common with an engine is in `test_openai_client.py` and `test_openai_async.py`.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from tests.gateway.snapshots import (
    EXPIRED,
    FOREIGN,
    KEY,
    MODEL,
    READING,
    SLEEPING,
    Entries,
    gateway_snapshot,
    key,
    namespace,
    route,
    tenants,
)
from tests.integration.gateway_fleet import SECONDS, Fleet, fleet
from tests.support.waiting import wait_until

SLASHED, SEVERAL = "acme/small-7b", "lk_several"
TEXT = "The sea was calm and the ship sailed on through the night, and nobody on board was awake. " * 6
ENDLESS: Any = {"model": MODEL, "prompt": "The sea", "max_tokens": 1_500, "extra_body": {"ignore_eos": True}}
SHORT: Any = {"model": MODEL, "prompt": "The sea", "max_tokens": 2}


@pytest.fixture(scope="module")
def running() -> Iterator[Fleet]:
    with fleet("agent-1") as running:
        yield running


@pytest.fixture
def one(running: Fleet) -> Fleet:
    """One engine and a gateway, as each test finds them."""
    running.hold()
    return running


def client(one: Fleet, api_key: str = KEY, **options: Any) -> OpenAI:
    return OpenAI(
        **{"base_url": f"{one.gateway.url}/v1", "api_key": api_key, "max_retries": 0, "timeout": 30, **options}
    )


def cached(ours: OpenAI, prompt: str, **fields: Any) -> int:
    options: Any = {"model": MODEL, "prompt": prompt, "max_tokens": 1, **fields}
    return int(ours.completions.with_raw_response.create(**options).headers["x-luminet-cached-tokens"])


# Namespaces


def test_a_client_works_in_the_namespace_that_its_headers_name(one: Fleet) -> None:
    with client(one) as ours, client(one, default_headers={"x-luminet-namespace": "batch"}) as batch:
        answers = [some.completions.with_raw_response.create(**SHORT).headers for some in (ours, batch)]
        assert [headers["x-luminet-namespace"] for headers in answers] == ["default", "batch"]
        prompt = f"Apart. {TEXT}"
        assert cached(ours, prompt) == 0 < cached(ours, prompt)
        assert cached(batch, prompt) == 0
        with pytest.raises(openai.NotFoundError) as caught:
            ours.completions.create(**SHORT, extra_headers={"x-luminet-namespace": "others"})
    assert (caught.value.code, caught.value.param) == ("unknown_namespace", "x-luminet-namespace")


def test_a_key_for_several_namespaces_says_which_and_is_told_so(one: Fleet) -> None:
    one.hold(who={**tenants(), **namespace("13", "1", "nightly"), **key(SEVERAL, "1", ["12", "13"])})
    with client(one, SEVERAL) as ours:
        with pytest.raises(openai.BadRequestError, match="batch, nightly") as caught:
            ours.completions.create(**SHORT)
        assert caught.value.code == "namespace_required"
        assert ours.completions.create(**SHORT, extra_headers={"x-luminet-namespace": "nightly"}).choices


def test_one_salt_for_all_is_no_way_to_anybody_elses_cache(one: Fleet) -> None:
    prompt, extra = f"Salted. {TEXT}", {"cache_salt": "everybody's"}
    with client(one) as ours, client(one, FOREIGN) as theirs:
        assert cached(ours, prompt, extra_body=extra) == 0 < cached(ours, prompt, extra_body=extra)
        assert cached(theirs, prompt, extra_body=extra) == 0
        assert cached(theirs, prompt) == 0
        assert cached(ours, prompt) == 0


# Who may not


@pytest.mark.parametrize(("api_key", "code"), [(READING, "missing_scope"), (SLEEPING, "suspended")])
def test_who_may_not_is_denied(one: Fleet, api_key: str, code: str) -> None:
    with client(one, api_key) as ours, pytest.raises(openai.PermissionDeniedError) as caught:
        ours.completions.create(**SHORT)
    assert caught.value.code == code


def test_a_stranger_learns_of_no_model(one: Fleet) -> None:
    with client(one, EXPIRED) as stranger:
        for ask in (
            lambda: stranger.models.retrieve("gpt-9"),
            lambda: stranger.completions.create(model="gpt-9", prompt="x"),
        ):
            with pytest.raises(openai.AuthenticationError) as caught:
                ask()
            assert MODEL not in caught.value.message


def test_beyond_its_limit_a_client_comes_again_by_itself(one: Fleet) -> None:
    limited: Entries = tenants()
    limited["org/1"] = {**limited["org/1"], "limits": {"concurrent_requests": 1}}
    one.hold(who=limited)
    statuses: list[int] = []
    hooks: Any = {"response": [lambda response: statuses.append(response.status_code)]}
    with (
        client(one) as first,
        client(one, max_retries=8, http_client=openai.DefaultHttpxClient(event_hooks=hooks)) as second,
        ThreadPoolExecutor(1) as pool,
        first.completions.create(**ENDLESS, stream=True) as stream,
    ):
        next(iter(stream))
        with pytest.raises(openai.RateLimitError) as caught:
            first.completions.create(**SHORT)
        asked = pool.submit(lambda: second.completions.create(**SHORT))
        wait_until(lambda: bool(statuses))
        stream.close()
        assert asked.result(SECONDS).choices
    assert (caught.value.code, caught.value.type) == ("rate_limit_exceeded", "requests")
    assert set(statuses[:-1]) == {429}
    assert statuses[-1] == 200


# Models


def test_a_model_whose_name_has_slashes_is_listed_and_found(one: Fleet) -> None:
    (engine,) = one.engines.values()
    address = f"http://127.0.0.1:{engine.port}"
    one.gateway.apply(gateway_snapshot(tenants(), route("agent-1", address, models=[MODEL, SLASHED])))
    with client(one) as ours:
        assert [model.id for model in ours.models.list()] == [SLASHED, MODEL]
        assert ours.models.retrieve(SLASHED).id == SLASHED
        with pytest.raises(openai.NotFoundError) as caught:
            ours.models.retrieve("acme/small")
    assert caught.value.message.count(f"Served here: {SLASHED}, {MODEL}.") == 1
    headers = {"authorization": f"Bearer {KEY}"}
    for path in (SLASHED, SLASHED.replace("/", "%2F")):
        assert httpx.get(f"{one.gateway.url}/v1/models/{path}", headers=headers).json()["id"] == SLASHED


def test_where_no_engine_can_be_had_it_is_said_that_no_model_is_served(one: Fleet) -> None:
    one.hold(states={"agent-1": "draining"})
    with client(one) as ours:
        assert list(ours.models.list()) == []
        with pytest.raises(openai.NotFoundError, match=r"No model is served here now\."):
            ours.chat.completions.create(model="gpt-9", messages=[{"role": "user", "content": "x"}])
