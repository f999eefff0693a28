"""The fleet of `make up`, as whoever runs it meets it: requests, a policy on its way, and processes that die."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable
from http.client import HTTPConnection, HTTPMessage
from itertools import count, islice
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from tests.e2e.pages import Look, expect, sign_in
from tests.e2e.stack import Stack, is_fleet_well, luminet
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

QUESTION = "What does the module json do, and when would I use it? " * 12
VISITORS = 16  # each with a question of their own: that all of them go to one of two agents, nobody will see
POLICY = "/api/v1/orgs/acme/namespaces/default/policy"
MEMBERS = {"agent-1", "agent-1-engine", "agent-2", "agent-2-engine", "gateway"}


def ask(stack: Stack, visitor: int) -> HTTPMessage:
    """The headers of a chat through the gateway."""
    content = f"{visitor}. is visitor {visitor}'s number. {QUESTION}"
    body = {"model": "luminet-demo", "messages": [{"role": "user", "content": content}], "max_tokens": 2}
    key = stack.demo["orgs"][0]["api_key"]
    connection = HTTPConnection("127.0.0.1", stack.gateway_port, timeout=30)
    try:
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        said = answer.read()
        assert answer.status == 200, said
        return answer.headers
    finally:
        connection.close()


def asked_of_both(stack: Stack, visitors: Iterable[int] = range(VISITORS)) -> dict[str, HTTPMessage]:
    """What each of the two agents last said. A question goes where it was answered before."""
    said: dict[str, HTTPMessage] = {}
    for visitor in visitors:
        headers = ask(stack, visitor)
        said[str(headers["x-luminet-agent"])] = headers
    return said


_newcomers = count(1_000)


def asked_anew(stack: Stack) -> dict[str, HTTPMessage]:
    """As `asked_of_both`, with questions that no agent has answered: while one is away, the other answers them all."""
    return asked_of_both(stack, islice(_newcomers, VISITORS))


def rest(stack: Stack, method: str, path: str, body: Any = None, **headers: str) -> tuple[HTTPMessage, Any]:
    connection = HTTPConnection("127.0.0.1", stack.port, timeout=30)
    try:
        token = {"authorization": f"Bearer {stack.demo['operator']['token']}", "content-type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), {**token, **headers})
        answer = connection.getresponse()
        found = json.loads(answer.read() or b"null")
        assert answer.status < 300, found
        return answer.headers, found
    finally:
        connection.close()


def publish(stack: Stack, policy: dict[str, Any]) -> int:
    """The revision, once every agent has acknowledged it."""
    etag = rest(stack, "GET", POLICY)[0]["etag"]
    key = {"if-match": str(etag), "idempotency-key": str(uuid4())}
    _, done = rest(stack, "PUT", POLICY, {"policy": policy}, **key)
    path = f"/api/v1/rollouts/{done['rollout']}"
    wait_until(lambda: rest(stack, "GET", path)[1]["state"] == "done", f"acknowledged: {done}")
    return int(done["revision"])


def pid_of(stack: Stack, name: str) -> int | None:
    pid: int | None = stack.status().get(name, {}).get("pid")
    return pid


def test_make_up_runs_two_agents_and_a_gateway_at_the_address_in_the_demos_file(stack: Stack) -> None:
    status = stack.status()
    assert set(status) >= MEMBERS
    assert {status[name]["state"] for name in MEMBERS} == {"ready"}
    assert stack.demo["gateway"] == stack.gateway
    assert f"{stack.gateway}/v1" in stack.said
    assert set(asked_of_both(stack)) == {"agent-1", "agent-2"}


def test_an_agent_serves_what_it_has_answered_before_from_its_cache(stack: Stack) -> None:
    served = set()
    for visitor in range(VISITORS):
        before: set[str] = set()
        while (headers := ask(stack, visitor))["x-luminet-agent"] not in before:  # at most one more than agents
            before.add(str(headers["x-luminet-agent"]))
        assert float(str(headers["x-luminet-cache-hit"])) > 90
        served.add(headers["x-luminet-agent"])
    assert served == {"agent-1", "agent-2"}


def test_a_published_ttl_changes_what_requests_hit_on_both_agents(stack: Stack) -> None:
    revision = publish(stack, {"ttl_seconds": 1})
    for headers in asked_of_both(stack).values():
        assert headers["x-luminet-policy-revision"] == str(revision)
    reasons: dict[str, str] = {}
    deadline = time.monotonic() + 60
    while len(reasons) < 2 and time.monotonic() < deadline:
        reasons |= reasons_after_the_end(stack)
    assert reasons == {"agent-1": "expired", "agent-2": "expired"}
    publish(stack, {"ttl_seconds": 600})


def reasons_after_the_end(stack: Stack) -> dict[str, str]:
    """Why agents miss what they have answered a second ago and more, where the same one is asked again."""
    answered = {visitor: ask(stack, visitor)["x-luminet-agent"] for visitor in range(VISITORS)}
    time.sleep(1.2)
    again = {visitor: ask(stack, visitor) for visitor in range(VISITORS)}
    same = [headers for visitor, headers in again.items() if headers["x-luminet-agent"] == answered[visitor]]
    return {str(headers["x-luminet-agent"]): str(headers["x-luminet-miss-reason"]) for headers in same}


@pytest.mark.parametrize("name", ["agent-1", "agent-1-engine", "gateway"])
def test_whichever_process_is_killed_the_fleet_heals_by_itself(stack: Stack, name: str) -> None:
    before = pid_of(stack, name)
    assert before is not None
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: pid_of(stack, name) not in (None, before), f"{name} started again")
    wait_until(lambda: stack.status()[name]["state"] == "ready", f"{name} ready")
    wait_until(lambda: is_fleet_well(stack), "a fleet that is well")
    revision = publish(stack, {"ttl_seconds": 300})
    wait_until(lambda: set(asked_anew(stack)) == {"agent-1", "agent-2"}, "both answering")
    for headers in asked_of_both(stack).values():
        assert headers["x-luminet-policy-revision"] == str(revision)


def test_an_agent_that_is_drained_gets_nothing_until_it_is_resumed(stack: Stack) -> None:
    drained = luminet("drain", "agent-2", "--wait", home=stack.home)
    assert drained.returncode == 0, drained.stderr
    wait_until(lambda: set(asked_of_both(stack)) == {"agent-1"}, "drained")
    resumed = luminet("resume", "agent-2", "--wait", home=stack.home)
    assert resumed.returncode == 0, resumed.stderr
    wait_until(lambda: set(asked_anew(stack)) == {"agent-1", "agent-2"}, "resumed")


def test_the_page_of_the_fleet_shows_every_agent(stack: Stack, look: Look) -> None:
    page, look_at = look
    sign_in(page, stack)
    page.goto("/fleet")
    expect(page.get_by_role("heading", level=1)).to_have_text("All 3 agents are in sync")
    for agent in ("agent-1", "agent-2", "gateway-1"):
        expect(row(page, agent)).to_contain_text("ready")
        expect(row(page, agent)).to_contain_text("in sync")
    look_at("fleet")


def test_the_page_moves_with_the_agents(stack: Stack, page: Page) -> None:
    sign_in(page, stack)
    page.get_by_role("link", name="Fleet", exact=True).click()
    expect(page.get_by_text("Live", exact=False).first).to_be_visible()
    luminet("drain", "agent-2", home=stack.home)
    expect(row(page, "agent-2")).to_contain_text("draining")
    luminet("resume", "agent-2", home=stack.home)
    expect(row(page, "agent-2")).to_contain_text("ready")


def row(page: Page, agent: str) -> Locator:
    return page.locator("tbody tr", has_text=agent)
