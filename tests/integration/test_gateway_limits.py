"""An organisation's limits as its clients meet them, at a gateway with a real engine behind it."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.gateways import FOREIGN, KEY, MODEL, Entries, tenants
from tests.integration.gateway_fleet import Fleet, fleet

ASKED: Any = {"model": MODEL, "prompt": "Hello there", "max_tokens": 2, "temperature": 0}


@pytest.fixture(scope="module")
def one() -> Iterator[Fleet]:
    with fleet("agent-1") as running:
        yield running


def limited(org: str, **limits: int) -> Entries:
    """The tenants, one of them with these limits and the others with none."""
    found = {name: {**entry, "limits": {}} if name.startswith("org/") else entry for name, entry in tenants().items()}
    return {**found, f"org/{org}": {**found[f"org/{org}"], "limits": limits}}


def client(fleet: Fleet, key: str) -> OpenAI:
    return OpenAI(base_url=f"{fleet.gateway.url}/v1", api_key=key, max_retries=0, timeout=30)


def test_beyond_a_limit_openais_client_raises_its_own_error_and_others_go_on(one: Fleet) -> None:
    one.hold(who=limited("1", requests_per_minute=2))
    with client(one, KEY) as ours, client(one, FOREIGN) as others:
        told = [ours.completions.with_raw_response.create(**ASKED).headers for _ in range(2)]
        assert [headers["x-ratelimit-remaining-requests"] for headers in told] == ["1", "0"]
        with pytest.raises(openai.RateLimitError) as caught:
            ours.completions.create(**ASKED)
        assert caught.value.code == "rate_limit_exceeded"
        assert 1 <= int(caught.value.response.headers["retry-after"]) <= 30
        assert caught.value.response.headers["x-ratelimit-limit-requests"] == "2"
        answer = others.completions.with_raw_response.create(**ASKED)
        assert not [name for name in answer.headers if name.startswith("x-ratelimit-")]


def test_what_a_key_sees_of_models_costs_nothing(one: Fleet) -> None:
    one.hold(who=limited("2", requests_per_minute=1))
    with client(one, FOREIGN) as ours:
        left = [ours.models.with_raw_response.list().headers["x-ratelimit-remaining-requests"] for _ in range(3)]
    assert left == ["1"] * 3


def test_tokens_are_counted_as_the_answer_says(one: Fleet) -> None:
    one.hold(who=limited("1", tokens_per_minute=1_000_000))
    with client(one, KEY) as ours:
        answer = ours.completions.with_raw_response.create(**{**ASKED, "max_tokens": 1_000, "stop": None})
        usage = answer.parse().usage
    assert usage is not None
    used = 1_000_000 - int(answer.headers["x-ratelimit-remaining-tokens"])
    assert used <= usage.prompt_tokens + 1_000
