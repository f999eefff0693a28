"""Where the only engine is full, requests wait at the gateway and are told when it was in vain."""

import httpx

from engine_agent.gateway.standing import Standing
from tests.gateways import KEY, MODEL, gateway_snapshot, route, tenants
from tests.integration.gateway_fleet import Gateway

FULL = Standing(seats=1, in_flight=1)


def test_a_request_that_found_no_room_in_time_is_told_that_engines_are_full() -> None:
    running = Gateway(queue_seconds=0.2)
    running.engines.standing = lambda agent: FULL  # type: ignore[method-assign]
    running.start()
    try:
        running.apply(gateway_snapshot(tenants(), route("agent-1")))
        headers = {"authorization": f"Bearer {KEY}"}
        answer = httpx.post(f"{running.url}/v1/completions", json={"model": MODEL, "prompt": "Hello"}, headers=headers)
    finally:
        running.stop()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "overloaded")
    assert answer.headers["retry-after"]
    assert running.gate.waiting == 0
