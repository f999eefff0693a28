"""The demo's traffic as `make up` runs it: it finds the gateway, its numbers move, and a stop outlives the stack."""

import json
from typing import Any

import pytest

from controlplane.stack.leftovers import is_alive
from tests.e2e.organisations import demo_traffic_shown, demo_traffic_switch
from tests.e2e.stack import Stack, data_at, luminet, wait_serving
from tests.support.waiting import wait_until


@pytest.fixture
def sending(busy_stack: Stack) -> Stack:
    demo_traffic_switch(busy_stack, is_on=True)
    return busy_stack


def said(stack: Stack, *arguments: str) -> Any:
    shown = luminet(*arguments, "--json", home=stack.home)
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout)


def wait_for_state(stack: Stack, wanted: str) -> None:
    what = f"demo traffic that {wanted}"
    wait_until(
        lambda: demo_traffic_shown(stack)["state"] == wanted, what, stack.process, details=lambda: stack.said[-3000:]
    )


def test_it_finds_the_gateway_its_numbers_move_and_a_stop_outlives_the_stack(sending: Stack) -> None:
    wait_for_state(sending, "sends")
    sending.wait_status("demo-traffic", "ready")
    wait_until(lambda: hits(sending) > 0, "hits of shared system prompts", sending.process)
    assert said(sending, "stats", "acme", "--namespace", "support-bot")["cached_tokens"] > 0
    assert said(sending, "demo-traffic", "stop")["is_on"] is False
    wait_for_state(sending, "paused")
    stop_and_start_again(sending)
    wait_for_state(sending, "paused")
    assert said(sending, "demo-traffic", "status")["is_on"] is False


def hits(stack: Stack) -> int:
    path = "/api/v1/orgs/acme/stats?namespace=support-bot"
    return int((data_at(f"{stack.web}{path}", stack.demo["operator"]["token"]) or {}).get("cached_tokens", 0))


def stop_and_start_again(stack: Stack) -> None:
    """By the signal that ends a service, which leaves nothing."""
    before = [row["pid"] for row in stack.status().values() if row["pid"]]
    stack.stop()
    wait_until(lambda: "stopped in" in stack.said, "told that it stopped")
    assert not any(is_alive(pid) for pid in before)
    assert stack.status() == {}
    stack.start_again()
    wait_serving(stack)
