"""A hostile chat template in a real engine and behind a gateway: its chats are refused, everybody else is served."""

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import httpx
import pytest

from engine_agent.gateway.knowing import prompts
from engine_agent.prompts.bounds import Bounds
from engine_agent.prompts.bundle import Bundle
from tests.integration.openai_doors import before
from tests.integration.openai_engine import FOLDER, MODEL, running
from tests.unit.server.identities import KEY

SECONDS = 300  # of a machine that is busy with other things
BOUNDS = Bounds(cpu_seconds=0.5, memory_bytes=512 << 20)
SLOW, LARGE = "slow", "large"
TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.content == 'slow' %}{% for a in range(99999) %}{% for a in range(99999) %}{% endfor %}{% endfor %}"
    "{% elif message.content == 'large' %}{{ message.content.ljust(2 ** 40) }}"
    "{% else %}{{ message.content }}{% endif %}{% endfor %}"
)


@dataclass(frozen=True, slots=True)
class Door:
    client: httpx.Client

    def chat(self, content: str) -> httpx.Response:
        body: Any = {"model": MODEL, "messages": [{"role": "user", "content": content}], "max_tokens": 1}
        return self.client.post("/v1/chat/completions", json=body)

    def completion(self) -> httpx.Response:
        return self.client.post("/v1/completions", json={"model": MODEL, "prompt": "a", "max_tokens": 1})


@dataclass(frozen=True, slots=True)
class Doors:
    engine: Door
    gateway: Door

    @property
    def others(self) -> list[Callable[[], httpx.Response]]:
        """Requests that have nothing to do with the hostile one."""
        healths = [partial(door.client.get, "/health") for door in (self.engine, self.gateway)]
        return [*healths, self.gateway.completion, partial(self.gateway.chat, "hello")]


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    bundle = replace(Bundle.from_folder(FOLDER), template_source=TEMPLATE, contents="text")
    headers = {"authorization": f"Bearer {KEY}"}
    with (
        pytest.MonkeyPatch.context() as patched,
        running(tmp_path_factory.mktemp("journal"), bundle=bundle, bounds=BOUNDS) as engine,
    ):
        patched.setattr(prompts, "RENDER_BOUNDS", BOUNDS)
        with (
            before(engine) as gateway,
            httpx.Client(base_url=engine.url, headers=headers, timeout=SECONDS) as direct,
            httpx.Client(base_url=gateway.url, headers=headers, timeout=SECONDS) as through,
        ):
            yield Doors(Door(direct), Door(through))


def test_slow_template_stops_nobody_else(doors: Doors) -> None:
    """The gateway renders it first, then the engine: both for as long as they may."""
    served = 0
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(doors.gateway.chat, SLOW)
        for ask in itertools.cycle(doors.others):
            assert ask().status_code == 200
            if slow.done():
                break
            served += 1
    assert served
    refused(slow.result(), "0.5 s of processor time")


def test_large_template_is_refused_by_name(doors: Doors) -> None:
    refused(doors.gateway.chat(LARGE), "512 MiB of memory")
    assert {ask().status_code for ask in doors.others} == {200}


def refused(answer: httpx.Response, bound: str) -> None:
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "template_budget_exceeded", "messages")
    assert bound in error["message"]
