"""Requests find the cache: real engines tell what they hold, and a real gateway sends each prompt where it lies."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import httpx
import pytest

from engine_agent.gateway import standing
from tests.gateway.snapshots import FOREIGN, KEY, MODEL, split
from tests.integration.gateway_fleet import Fleet, fleet, gateway
from tests.support.waiting import wait_until

AGENTS = ("agent-1", "agent-2")
numbers = count(1)


@pytest.fixture(scope="module")
def two() -> Iterator[Fleet]:
    with fleet(*AGENTS) as running:
        yield running


@pytest.fixture(autouse=True)
def however_slow_this_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a prompt lies decides here, not which engine answered sooner while something else ran beside it."""
    monkeypatch.setattr(standing, "STEP_SECONDS", 3600.0)


@pytest.fixture(autouse=True)
def as_it_was(two: Fleet) -> None:
    two.hold()
    two.until_idle()
    wait_until(two.gateway.heard)


def fresh() -> str:
    """A prompt of some hundred tokens that begins like no other."""
    number = next(numbers)
    return f"Story {number}. " + " ".join(f"Chapter {number * k} is about the number {k}." for k in range(40))


def complete(url: str, prompt: str, *, key: str = KEY, **fields: Any) -> httpx.Headers:
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 1, "temperature": 0, **fields}
    answer = httpx.post(f"{url}/v1/completions", json=body, headers={"authorization": f"Bearer {key}"}, timeout=30)
    assert answer.status_code == 200, answer.text
    return answer.headers


def cached(headers: httpx.Headers) -> int:
    return int(headers["x-luminet-cached-tokens"])


def agents(found: Sequence[httpx.Headers]) -> list[str]:
    return [one["x-luminet-agent"] for one in found]


def counted(running: Fleet) -> dict[str, float]:
    names = ("predicted", "cached", "prompt")
    registry = running.gateway.observer.registry
    return {name: registry.get_sample_value(f"luminet_gateway_{name}_tokens_total") or 0.0 for name in names}


def warmed(two: Fleet, agent: str, prompt: str) -> None:
    """It lies there, and the gateway knows."""
    two.hold(split([agent], 1.0))
    assert complete(two.gateway.url, prompt)["x-luminet-agent"] == agent
    before = counted(two)["predicted"]
    wait_until(lambda: complete(two.gateway.url, prompt) is not None and counted(two)["predicted"] > before)
    two.hold()


def test_a_prompt_goes_to_the_engine_that_has_it_and_so_does_what_goes_on_from_it(two: Fleet) -> None:
    for agent in AGENTS:
        prompt = fresh()
        warmed(two, agent, prompt)
        again = [complete(two.gateway.url, f"{prompt} And then, {k},") for k in range(5)]
        assert agents(again) == [agent] * 5
        assert min(map(cached, again)) > 200


def test_a_chat_that_grows_stays_where_it_began(two: Fleet) -> None:
    messages = [{"role": "system", "content": fresh()}, {"role": "user", "content": "Begin."}]
    seen: list[httpx.Headers] = []
    for turn in range(5):
        body = {"model": MODEL, "messages": messages, "max_tokens": 4, "temperature": 0}
        headers = {"authorization": f"Bearer {KEY}"}
        answer = httpx.post(f"{two.gateway.url}/v1/chat/completions", json=body, headers=headers, timeout=30)
        seen.append(answer.headers)
        messages += [answer.json()["choices"][0]["message"], {"role": "user", "content": f"Go on: {turn}."}]
    assert len(set(agents(seen))) == 1
    assert [cached(one) for one in seen] == sorted(cached(one) for one in seen)
    assert cached(seen[1]) > 200


def test_what_was_foretold_is_what_the_engine_finds(two: Fleet) -> None:
    prompt = fresh()
    warmed(two, "agent-1", prompt)
    before = counted(two)
    found = [complete(two.gateway.url, prompt) for _ in range(3)]
    after = counted(two)
    grown = {name: after[name] - before[name] for name in after}
    assert grown["predicted"] == grown["cached"] == sum(map(cached, found)) > 600
    assert grown["prompt"] == sum(int(one["x-luminet-prompt-tokens"]) for one in found)


def test_another_namespaces_cache_is_no_reason_to_go_anywhere(two: Fleet) -> None:
    prompt = fresh()
    warmed(two, "agent-1", prompt)
    before = counted(two)["predicted"]
    assert cached(complete(two.gateway.url, prompt, key=FOREIGN)) == 0
    assert counted(two)["predicted"] == before


def test_a_longer_match_elsewhere_is_why_it_missed(two: Fleet) -> None:
    prompt = fresh()
    warmed(two, "agent-1", prompt)
    two.hold(split(["agent-2"], 1.0))
    found = complete(two.gateway.url, prompt)
    assert (found["x-luminet-agent"], cached(found)) == ("agent-2", 0)
    assert found["x-luminet-miss-reason"] == "other-agent"
    two.hold(split(["agent-2"], 1.0))
    wait_until(lambda: cached(complete(two.gateway.url, prompt)) > 0)
    assert complete(two.gateway.url, prompt)["x-luminet-miss-reason"] == "none"


def test_a_session_stays_with_one_engine_whatever_it_says(two: Fleet) -> None:
    seen = {
        session: set(agents([complete(two.gateway.url, fresh(), **session_of(session)) for _ in range(4)]))
        for session in range(8)
    }
    assert all(len(found) == 1 for found in seen.values())
    assert set.union(*seen.values()) == set(AGENTS)


def session_of(number: int) -> dict[str, str]:
    return {"prompt_cache_key" if number % 2 else "user": f"session-{number}"}


def test_a_drained_engine_gets_nothing_new_whatever_it_holds(two: Fleet) -> None:
    prompt = fresh()
    warmed(two, "agent-1", prompt)
    two.hold(states={"agent-1": "draining"})
    assert agents([complete(two.gateway.url, prompt) for _ in range(3)]) == ["agent-2"] * 3


def test_a_second_gateway_finds_what_came_by_the_first(two: Fleet) -> None:
    prompt = fresh()
    with gateway() as second:
        second.apply(two.gateway.held.tables.snapshot)
        wait_until(second.heard)
        first = complete(two.gateway.url, prompt)
        wait_until(lambda: cached(complete(second.url, prompt)) > 200)
        again = [complete(one.url, prompt) for _ in range(3) for one in (second, two.gateway)]
    assert set(agents(again)) == {first["x-luminet-agent"]}


def test_in_turn_every_engine_computes_everything(two: Fleet) -> None:
    prompt = fresh()
    with gateway("round-robin") as other:
        other.apply(two.gateway.held.tables.snapshot)
        seen = [complete(other.url, prompt) for _ in range(4)]
    assert Counter(agents(seen)) == dict.fromkeys(AGENTS, 2)
    assert [cached(one) > 0 for one in seen] == [False, False, True, True]
