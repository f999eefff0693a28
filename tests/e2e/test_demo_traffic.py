"""The demo's traffic as `make up` runs it: it finds the gateway, its numbers move, and a stop outlives the stack."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stack import Stack, luminet, new_home, running, wait_until
from tests.ports import free_engine_port, free_port

LONG_SECONDS = 180  # engines load their model, and may have to compile first


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with new_home() as found:
        yield found


def settings() -> dict[str, str]:
    ports = {"LUMINET_ENGINE_PORT": str(free_engine_port()), "LUMINET_GATEWAY_PORT": str(free_port())}
    return {"LUMINET_RUN_ENGINE": "yes", "LUMINET_DEMO_TRAFFIC": "1", **ports}


def said(stack: Stack, *arguments: str) -> Any:
    shown = luminet(*arguments, "--json", home=stack.home)
    return json.loads(shown.stdout) if shown.returncode == 0 else {}


def state(stack: Stack) -> str | None:
    found: str | None = said(stack, "demo-traffic", "status").get("state")
    return found


def hits(stack: Stack) -> int:
    namespaces = said(stack, "stats", "acme", "--namespace", "support-bot")
    return int(namespaces.get("cached_tokens", 0))


def wait_for_state(stack: Stack, wanted: str) -> None:
    what = f"demo traffic that {wanted}:\n{stack.said[-3000:]}"
    wait_until(lambda: state(stack) == wanted, what, stack.process, LONG_SECONDS)


def test_it_finds_the_gateway_its_numbers_move_and_a_stop_outlives_the_stack(home: Path) -> None:
    with running(home, None, **settings()) as stack:
        wait_for_state(stack, "sends")
        assert stack.status()["demo-traffic"]["state"] == "ready"
        wait_until(lambda: hits(stack) > 0, "hits of shared system prompts", stack.process, LONG_SECONDS)
        assert said(stack, "demo-traffic", "stop")["is_on"] is False
        wait_for_state(stack, "paused")
    with running(home, None, **settings()) as stack:
        wait_for_state(stack, "paused")
        assert said(stack, "demo-traffic", "status")["is_on"] is False
