"""From chats with a clock in their system prompt, through a real gateway and engine, to what varies in them."""

import asyncio
from collections.abc import Sequence

import httpx
import pytest

from engine_agent.contracts.wire import Report
from engine_agent.gateway.diverging import diverging, sampling
from engine_agent.gateway.diverging.diverging import Diverging
from tests.gateway.snapshots import KEY, MODEL
from tests.integration.gateway_fleet import fleet
from tests.support.waiting import wait_until

RULES = "The sea was calm and the ship sailed on through the night, and nobody asked why. " * 6


def chat(second: int) -> dict[str, object]:
    system = f"You help sailors.\nNow: 2026-11-20T10:07:{second:02}Z\n{RULES}"
    messages = [{"role": "system", "content": system}, {"role": "user", "content": f"Why {second}?"}]
    return {"model": MODEL, "messages": messages, "max_tokens": 1, "temperature": 0}


def test_a_clock_in_the_system_prompt_is_found_in_traffic(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (diverging, "LOOK_SECONDS", 0.05),
        (diverging, "TELL_SECONDS", 0.05),
        (sampling, "LOOK_SECONDS", 0.0),
        (sampling, "FIRST_LOOK_SECONDS", 0.0),
        (sampling, "LEAST_PROMPTS", 10),
    ):
        monkeypatch.setattr(module, name, value)
    told: list[Report] = []
    has_told = asyncio.Event()

    async def tell(reports: Sequence[Report]) -> None:
        told.extend(reports)
        has_told.set()

    async def run_until_told(beside: Diverging) -> None:
        running = asyncio.create_task(beside.run())
        await has_told.wait()
        running.cancel()

    beside = Diverging(now=lambda: 1000.0, tell=tell, may_tell=lambda: True)
    with fleet("agent-1") as running:
        wait_until(running.gateway.heard)
        assert running.gateway.knowing is not None
        running.gateway.knowing.on_prompt = beside.take
        for second in range(10, 20):
            answer = httpx.post(
                f"{running.gateway.url}/v1/chat/completions",
                json=chat(second),
                headers={"authorization": f"Bearer {KEY}"},
                timeout=60,
            )
            assert answer.status_code == 200, answer.text
        running.gateway.do(run_until_told(beside))
    (found,) = told[0].told["namespaces"].values()
    (one,) = found["findings"]
    assert found["prompts"] == 10
    assert one["share"] == 0.9
    assert one["recurs"] == 1.0
    assert 1 <= one["length_tokens"] <= 4
    assert found["hit_ratio_then"] > found["hit_ratio_now"] + 0.3
