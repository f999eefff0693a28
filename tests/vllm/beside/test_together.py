"""A fleet of both backends, as its operator has it: what is published in the web UI governs both, also through a death.

One journey on one stack: `make up BACKENDS=paged,vllm`.
"""

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPMessage
from uuid import uuid4

from playwright.sync_api import Page, expect

from tests.conformance.fleet_engine import START_SECONDS
from tests.e2e.organisations import (
    ask,
    key_made,
    make_organisation,
    name_of_its_own,
    open_section,
    publish,
    revisions_answered,
    ttl_typed,
    wait_for_status,
)
from tests.e2e.pages import SOON, sign_in
from tests.e2e.stack import Stack, fleet_agents, luminet, wait_until
from tests.vllm.beside.processes import core_of

BACKEND_OF = {"agent-1": "paged", "agent-2": "vllm"}
FORMAT = "bf16"  # what a mixed demo keeps: of other formats nothing was measured on vLLM
OTHER = {"agent-1": "agent-2", "agent-2": "agent-1"}
PROMPT = "What does the module json do, and when would I use it? " * 12  # blocks enough for either


def test_a_ttl_set_in_the_web_ui_governs_both_backends_also_after_vllm_died(stack: Stack, page: Page) -> None:
    sign_in(page, stack)
    with name_of_its_own(stack) as slug:
        make_organisation(page, slug)
        open_section(page, "Keys")
        key = key_made(page, "production")
        wait_for_status(stack, key, 200)
        # Right after its start vLLM may look up slowly from its work, and the other then gets what no cache knows.
        both = {"agent-1": "0", "agent-2": "0"}
        wait_until(lambda: revisions_answered(stack, key) == both, "requests at both backends", seconds=60)
        known = {agent: kept_by(stack, key, agent) for agent in BACKEND_OF}

        ttl_published(page, slug, "1", "s")
        expect(page.get_by_role("status").first).to_contain_text("All 3 agents acknowledged it", timeout=2 * SOON)
        one_state_is_held_by_both(stack)
        for agent, prompt in known.items():
            expires_after_a_second(stack, key, agent, prompt)

        with all_to(stack, key, "agent-2"):
            first = first_answer_after_death(stack, page, slug, key)
            assert first["x-luminet-policy-revision"] == "2", "served under a policy that was not in force any more"
            outlives_a_second(stack, key)
            streams_its_hits_first(stack, key)
        one_state_is_held_by_both(stack)


def chat(stack: Stack, key: str, prompt: str) -> HTTPMessage:
    status, headers = ask(stack, key, prompt)
    assert status == 200
    return headers


def new_prompt() -> str:
    return f"{uuid4()}: {PROMPT}"


@contextmanager
def all_to(stack: Stack, key: str, agent: str) -> Iterator[None]:
    """As an operator takes the other one out of service."""
    other = OTHER[agent]
    drained = luminet("drain", other, "--wait", home=stack.home)
    assert drained.returncode == 0, drained.stderr
    wait_until(lambda: set(revisions_answered(stack, key)) == {agent}, f"all requests at {agent}", seconds=30)
    try:
        yield
    finally:
        resumed = luminet("resume", other, "--wait", home=stack.home)
        assert resumed.returncode == 0, resumed.stderr


def kept_by(stack: Stack, key: str, agent: str) -> str:
    """A prompt that this agent has in its cache, as it says itself."""
    prompt = new_prompt()
    with all_to(stack, key, agent):
        assert chat(stack, key, prompt)["x-luminet-miss-reason"] == "cold"
        again = chat(stack, key, prompt)
    assert again["x-luminet-agent"] == agent
    assert again["x-luminet-kv-dtype"] == FORMAT
    assert again["x-luminet-miss-reason"] == "none"
    assert int(str(again["x-luminet-cached-tokens"])) > 0
    return prompt


def ttl_typed_in(page: Page, slug: str, amount: str, unit: str) -> None:
    page.goto(f"/orgs/{slug}/namespaces/default/policy")
    ttl_typed(page, amount, unit)


def ttl_published(page: Page, slug: str, amount: str, unit: str) -> None:
    ttl_typed_in(page, slug, amount, unit)
    publish(page)


def one_state_is_held_by_both(stack: Stack) -> None:
    """By the hash of what they hold, which is the one that is published."""
    agents = {one["id"]: one for one in fleet_agents(stack)}
    held = {agents[name]["applied_hash"] for name in BACKEND_OF} | {agents[name]["desired_hash"] for name in BACKEND_OF}
    assert len(held) == 1, agents
    assert held != {None}


def expires_after_a_second(stack: Stack, key: str, agent: str, prompt: str) -> None:
    """What it kept from before, and what it computes under the new policy."""
    newer = new_prompt()
    with all_to(stack, key, agent):
        chat(stack, key, newer)
        time.sleep(1.2)
        for one in (prompt, newer):
            headers = chat(stack, key, one)
            assert headers["x-luminet-agent"] == agent
            assert headers["x-luminet-policy-revision"] == "1"
            assert headers["x-luminet-miss-reason"] == "expired"
            assert headers["x-luminet-cached-tokens"] == "0"


def first_answer_after_death(stack: Stack, page: Page, slug: str, key: str) -> HTTPMessage:
    """vLLM's engine is killed, and while it is away another time to live is published."""
    ttl_typed_in(page, slug, "10", "min")
    front = stack.status()["agent-2-engine"]["pid"]
    os.kill(core_of(front), signal.SIGKILL)
    wait_until(lambda: stack.status()["agent-2-engine"]["pid"] != front, "the end of its engine", stack.process)
    publish(page)
    expect(page.get_by_role("status").first).to_contain_text("revision 2 is published", timeout=SOON)
    assert stack.status()["agent-2-engine"]["state"] != "ready", "it was back before the policy was published"
    first: list[HTTPMessage] = []
    wait_until(lambda: answered(stack, key, first), "an answer of vLLM", stack.process, seconds=START_SECONDS)
    assert first[0]["x-luminet-agent"] == "agent-2"
    return first[0]


def answered(stack: Stack, key: str, into: list[HTTPMessage]) -> bool:
    """Asked as somebody asks who tries again and again."""
    try:
        status, headers = ask(stack, key, new_prompt())
    except (OSError, HTTPException):
        return False
    if status == 200:
        into.append(headers)
    return bool(into)


def outlives_a_second(stack: Stack, key: str) -> None:
    """The policy from before it died would have it expire."""
    prompt = new_prompt()
    chat(stack, key, prompt)
    time.sleep(1.2)
    assert chat(stack, key, prompt)["x-luminet-miss-reason"] == "none"


def streams_its_hits_first(stack: Stack, key: str) -> None:
    """In the headers, before anything was said; and what the end of the stream says is the same number."""
    prompt = new_prompt()
    chat(stack, key, prompt)
    body = {"model": "luminet-demo", "messages": [{"role": "user", "content": prompt}], "max_tokens": 8, "stream": True}
    body["stream_options"] = {"include_usage": True}
    about = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    connection = HTTPConnection("127.0.0.1", stack.gateway_port, timeout=60)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), about)
        answer = connection.getresponse()  # its headers have come, and nothing was read of its body
        assert answer.status == 200
        assert answer.headers["x-luminet-agent"] == "agent-2"
        assert re.fullmatch(r"\d+\.\d", str(answer.headers["x-luminet-cache-hit"]))
        assert float(str(answer.headers["x-luminet-cache-hit"])) > 50
        cached = int(str(answer.headers["x-luminet-cached-tokens"]))
        lines = answer.read().decode().splitlines()
    finally:
        connection.close()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert "".join(one["choices"][0]["delta"].get("content") or "" for one in events if one["choices"])
    assert events[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] == cached
