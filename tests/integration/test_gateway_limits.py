"""An organisation's limits as its clients meet them, at a gateway with a real engine behind it."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from tests.engines.processes import Engine, state_folder
from tests.gateway.snapshots import FOREIGN, KEY, MODEL, Entries, engine_snapshot, gateway_snapshot, route, tenants
from tests.integration.gateway_fleet import Fleet, fleet, told_as
from tests.integration.test_gateway import bearer, sample
from tests.integration.test_gateway_process import Process, gateway, joined_before
from tests.integration.test_gateway_queueing import complete, sitting
from tests.support.waiting import wait_until

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


# Several gateways


DOORS = ("gateway-1", "gateway-2")
EACH = 45  # requests to each gateway: more than all of the limit together
LIMIT = 60


@contextmanager
def two_gateways(engine: Engine, **limits: int) -> Iterator[list[Process]]:
    """As processes, of one organisation with these limits, which know of each other."""
    told = limited("1", **limits)
    assert engine.admin("POST", "/apply", told_as(engine_snapshot(told))).status == 200
    doors: Entries = {"doors/all": {"org": "fleet", "gateways": [*DOORS]}}
    snapshot = gateway_snapshot(told, route("agent-1", f"http://127.0.0.1:{engine.port}"), doors)
    with ExitStack() as opened:
        running = []
        for name in DOORS:
            home = opened.enter_context(state_folder())
            home.mkdir()
            joined_before(home, snapshot, agent=name)
            running.append(opened.enter_context(gateway("--home", str(home), "--canary-seconds", "0")))
        yield running


def let_in(url: str, count: int) -> int:
    """Of so many requests, one after the other."""
    with httpx.Client(headers=bearer(KEY), timeout=60) as http:
        statuses = [http.post(f"{url}/v1/completions", json=ASKED).status_code for _ in range(count)]
    assert set(statuses) <= {200, 429}
    return statuses.count(200)


def test_two_gateways_let_in_together_what_is_due_and_no_more(one: Fleet) -> None:
    with two_gateways(one.engines["agent-1"], requests_per_minute=LIMIT) as both, ThreadPoolExecutor(2) as pool:
        began = time.monotonic()
        found = list(pool.map(lambda running: let_in(running.url, EACH), both))
        seconds = time.monotonic() - began
        assert [count >= LIMIT // 2 for count in found] == [True, True]  # each its share at once, though it has rested
        assert sum(found) <= LIMIT + LIMIT * seconds / 60
        for running in both:
            limits = {"organisation": "acme", "limit": "requests_per_minute"}
            refused = EACH - found[both.index(running)]
            assert sample(running.url, "luminet_gateway_limited_total", **limits) == refused


def test_two_gateways_share_what_may_run_at_once(one: Fleet) -> None:
    with two_gateways(one.engines["agent-1"], concurrent_requests=2) as both:
        for running in both:
            with sitting(running.url, KEY):
                assert complete(running.url).status_code == 429
            wait_until(partial(is_served, running.url))


def is_served(url: str) -> bool:
    return complete(url).status_code == 200
