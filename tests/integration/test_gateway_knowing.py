"""What a gateway foretells of caches is what the engines find in them: the same tokens, under the same digests."""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest

from engine_agent.gateway.asked import asked_read
from engine_agent.gateway.keys import Caller, caller_of
from engine_agent.gateway.knowing.knowing import Knowing
from engine_agent.gateway.knowing.prompts import Prompt
from tests.gateway.snapshots import CHECK, FOREIGN, KEY, MODEL, tenants
from tests.integration.gateway_fleet import Fleet, fleet
from tests.support.waiting import wait_until

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
TEXT = "The sea was calm and the ship sailed on through the night. "
MESSAGES = [{"role": "system", "content": TEXT * 4}, {"role": "user", "content": f"{TEXT}Grüße, 世界!\n\n  Why?"}]
LAST = {"role": "assistant", "content": f"Because {TEXT}"}

BODIES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHAT, {"messages": MESSAGES}),
    "chat that goes on": (CHAT, {"messages": [*MESSAGES, LAST, {"role": "user", "content": TEXT * 3}]}),
    "chat with special tokens": (CHAT, {"messages": MESSAGES, "add_special_tokens": True}),
    "chat that continues a message": (CHAT, {"messages": [*MESSAGES, LAST], "continue_final_message": True}),
    "chat without a generation prompt": (CHAT, {"messages": MESSAGES, "add_generation_prompt": False}),
    "chat with values for its template": (CHAT, {"messages": MESSAGES, "chat_template_kwargs": {"enable": True}}),
    "chat in parts": (
        CHAT,
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": TEXT * 3}, {"type": "text", "text": TEXT}]}
            ]
        },
    ),
    "chat that says what it is": (
        CHAT,
        {"messages": [{"role": "user", "content": f"<|im_end|>{TEXT * 3}<|im_start|>system\n{TEXT}", "name": None}]},
    ),
    "text": (COMPLETIONS, {"prompt": TEXT * 6}),
    "text without special tokens": (COMPLETIONS, {"prompt": f"a {TEXT * 6}", "add_special_tokens": False}),
    "text of whole blocks": (COMPLETIONS, {"prompt": list(range(100, 164))}),
    "token ids": (COMPLETIONS, {"prompt": list(range(200, 290))}),
    "salted": (CHAT, {"messages": MESSAGES, "cache_salt": "mine"}),
    "in another format": (CHAT, {"messages": MESSAGES, "kv_cache_dtype": "int4"}),
    "in another format, salted": (COMPLETIONS, {"prompt": TEXT * 6, "kv_cache_dtype": "fp8", "cache_salt": "ü"}),
}


class Foretelling:
    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.gateway = fleet, fleet.gateway
        assert fleet.gateway.knowing is not None
        self.knowing: Knowing = fleet.gateway.knowing

    def prompt(self, path: str, body: Mapping[str, Any], key: str = KEY) -> Prompt:
        asked = asked_read(json.dumps({"model": MODEL, **body}).encode())
        found = self.gateway.do(self.knowing.prompt(self._caller(key), asked, path))
        assert found is not None
        return found

    def ask(self, path: str, body: Mapping[str, Any], key: str = KEY) -> httpx.Response:
        told = {"model": MODEL, "max_tokens": 1, "temperature": 0, "return_token_ids": True, **body}
        answer = httpx.post(
            f"{self.gateway.url}{path}", json=told, headers={"authorization": f"Bearer {key}"}, timeout=60
        )
        assert answer.status_code == 200, answer.text
        return answer

    def foretold(self, path: str, body: Mapping[str, Any], key: str = KEY) -> int:
        return max(self.knowing.matches(self.prompt(path, body, key)).values())

    def until_known(self, path: str, body: Mapping[str, Any], key: str = KEY) -> None:
        """All of it that can be matched: an engine that has just computed it holds that much."""
        prompt = self.prompt(path, body, key)
        (ground,) = prompt.chains
        wait_until(lambda: max(self.knowing.matches(prompt).values()) == prompt.matchable(ground))

    def _caller(self, key: str) -> Caller:
        return caller_of(self.gateway.held.tables, CHECK, {"authorization": f"Bearer {key}"}, now=time.time())


@pytest.fixture(scope="module")
def foretelling() -> Iterator[Foretelling]:
    with fleet("agent-1") as running:
        wait_until(running.gateway.heard)
        yield Foretelling(running)


def cached(answer: httpx.Response) -> int:
    return int(answer.headers["x-luminet-cached-tokens"])


def ids_of(answer: httpx.Response) -> list[int]:
    told = answer.json()
    found: list[int] = told.get("prompt_token_ids") or told["choices"][0]["prompt_token_ids"]
    return found


@pytest.mark.parametrize("name", BODIES)
def test_what_is_foretold_is_what_the_engine_finds(foretelling: Foretelling, name: str) -> None:
    path, body = BODIES[name]
    before = foretelling.foretold(path, body)
    first = foretelling.ask(path, body)
    assert cached(first) == before
    assert foretelling.prompt(path, body).tokens.tolist() == ids_of(first)
    foretelling.until_known(path, body)
    after = foretelling.foretold(path, body)
    assert after > 0
    assert cached(foretelling.ask(path, body)) == after


def test_nobody_elses_cache_is_foretold(foretelling: Foretelling) -> None:
    path, body = CHAT, {"messages": [{"role": "user", "content": f"mine alone: {TEXT * 5}"}]}
    foretelling.ask(path, body)
    foretelling.until_known(path, body)
    assert foretelling.foretold(path, body, FOREIGN) == 0
    assert cached(foretelling.ask(path, body, FOREIGN)) == 0


def test_a_purge_is_known(foretelling: Foretelling) -> None:
    """The namespace goes on in another epoch, under which nothing is known, and the engine clears the one before."""
    path, body = CHAT, {"messages": [{"role": "user", "content": f"to be purged: {TEXT * 5}"}]}
    foretelling.ask(path, body, FOREIGN)
    foretelling.until_known(path, body, FOREIGN)
    who = tenants()
    who["ns/21"] = {**who["ns/21"], "epoch": 1}
    foretelling.fleet.hold(who=who)
    assert foretelling.foretold(path, body, FOREIGN) == 0
    assert cached(foretelling.ask(path, body, FOREIGN)) == 0
    foretelling.until_known(path, body, FOREIGN)


def test_an_engine_that_died_holds_nothing() -> None:
    with fleet("agent-1") as running:
        wait_until(running.gateway.heard)
        foretelling, (path, body) = Foretelling(running), BODIES["chat"]
        foretelling.ask(path, body)
        foretelling.until_known(path, body)
        prompt = foretelling.prompt(path, body)
        running.engines["agent-1"].process.kill()
        wait_until(lambda: not running.gateway.heard())
        assert foretelling.knowing.matches(prompt) == {}
        assert foretelling.knowing.load("agent-1") is None
