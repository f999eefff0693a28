"""Organisations that journeys make on a fleet which others use, too: with names of their own, and gone in the end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPMessage
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tests.e2e.pages import expect
from tests.e2e.stack import Stack
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page

TRIES = 30  # until both engines have answered: idle ones take turns


@contextmanager
def name_of_its_own(stack: Stack) -> Iterator[str]:
    """A slug for one organisation, which is deleted afterwards if its journey has not come that far."""
    slug = f"journey-{uuid4().hex[:8]}"
    try:
        yield slug
    finally:
        delete_if_there(stack, slug)


def delete_if_there(stack: Stack, slug: str) -> None:
    status, headers = rest(stack, "GET", f"/api/v1/orgs/{slug}")
    if status == 200:
        status, _ = rest(stack, "DELETE", f"/api/v1/orgs/{slug}", **{"if-match": str(headers["etag"])})
        assert status == 202


@dataclass(frozen=True, slots=True)
class Own:
    """An organisation with the namespaces default and support-bot, a member who has joined, and a key."""

    slug: str
    name: str
    email: str
    password: str = field(repr=False)
    key: str = field(repr=False)


@contextmanager
def organisation_of_its_own(stack: Stack) -> Iterator[Own]:
    """For a file whose tests count, publish or change what no other should find."""
    import httpx

    with name_of_its_own(stack) as slug:
        name, email, password = f"Journey {slug}", f"someone@{slug}.example", "eight calm herons wade"
        post(stack, "/orgs", {"slug": slug, "name": name})
        post(stack, f"/orgs/{slug}/namespaces", {"slug": "support-bot", "name": "Support bot"})
        invited = post(stack, f"/orgs/{slug}/members", {"email": email, "role": "admin"})["invitation_url"]
        with httpx.Client(trust_env=False) as client:
            client.get(invited)
            form = {"csrfmiddlewaretoken": client.cookies["luminet_csrf"], "new": password, "again": password}
            assert client.post(invited, data=form).status_code == 302
        key = post(stack, f"/orgs/{slug}/keys", {"name": "journey", "scopes": ["infer"]})["secret"]
        wait_for_status(stack, key, 200)
        yield Own(slug, name, email, password, key)


def post(stack: Stack, path: str, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    """As the demo's operator, over REST."""
    return _told_operator(stack, "POST", path, body, **headers)


def demo_traffic_switch(stack: Stack, *, is_on: bool) -> None:
    _told_operator(stack, "PUT", "/demo-traffic", {"is_on": is_on})


def demo_traffic_shown(stack: Stack) -> dict[str, Any]:
    return _told_operator(stack, "GET", "/demo-traffic")


def _told_operator(
    stack: Stack, method: str, path: str, body: dict[str, Any] | None = None, **headers: str
) -> dict[str, Any]:
    import httpx

    token = {"authorization": f"Bearer {stack.demo['operator']['token']}"}
    with httpx.Client(base_url=f"{stack.web}/api/v1", trust_env=False, timeout=60) as client:
        answer = client.request(method, path, json=body, headers={**token, **headers})
    assert answer.is_success, answer.text
    found: dict[str, Any] = answer.json()
    return found


def rest(stack: Stack, method: str, path: str, **headers: str) -> tuple[int, HTTPMessage]:
    token = {"authorization": f"Bearer {stack.demo['operator']['token']}"}
    return _answer(stack.port, method, path, None, {**token, **headers})


def ask(stack: Stack, key: str, text: str) -> tuple[int, HTTPMessage]:
    """A chat through the gateway."""
    body = {"model": "luminet-demo", "messages": [{"role": "user", "content": text}], "max_tokens": 2}
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    return _answer(stack.gateway_port, "POST", "/v1/chat/completions", json.dumps(body), headers)


def _answer(port: int, method: str, path: str, body: str | None, headers: dict[str, str]) -> tuple[int, HTTPMessage]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.headers
    finally:
        connection.close()


def wait_for_status(stack: Stack, key: str, status: int) -> None:
    """Gateways hold a key, and its end, a moment after the page has said so."""
    wait_until(lambda: ask(stack, key, "Hello.")[0] == status, f"{status} at the gateway")


def revisions_answered(stack: Stack, key: str) -> dict[str, str]:
    """By which revision each engine has just served that key: prompts that no cache knows go to either."""
    found: dict[str, str] = {}
    for _ in range(TRIES):
        status, headers = ask(stack, key, f"{uuid4()}: what is this?")
        assert status == 200
        found[str(headers["x-luminet-agent"])] = str(headers["x-luminet-policy-revision"])
        if len(found) == 2:
            break
    return found


def make_organisation(page: Page, slug: str) -> None:
    """As an operator does it, from wherever that is."""
    page.get_by_role("link", name="Organisations").click()
    page.get_by_role("link", name="New organisation").click()
    page.get_by_role("textbox", name="Slug").fill(slug)
    page.get_by_role("textbox", name="Name").fill(f"Journey {slug}")
    page.get_by_role("button", name="Create organisation").click()
    expect(page.get_by_role("status").first).to_contain_text("is there, with the namespace default")


def open_section(page: Page, label: str) -> None:
    """Of the organisation whose page it is."""
    page.get_by_role("navigation").get_by_role("link", name=label, exact=True).last.click()


def key_made(page: Page, name: str, *, namespace: str = "") -> str:
    """On the page of keys, which shows its secret this once."""
    page.get_by_role("textbox", name="Name", exact=True).fill(name)
    if namespace:
        page.get_by_role("checkbox", name=namespace, exact=True).check()
    page.get_by_role("button", name="Create key").click()
    secret = page.get_by_label("Secret", exact=True)
    expect(secret).to_have_value(re.compile("^lmk_"))
    shown = secret.input_value()
    page.get_by_role("link", name="I have copied it").click()
    expect(page.get_by_role("row", name=re.compile(name))).to_be_visible()
    assert shown not in page.content()
    return shown


def ttl_typed(page: Page, amount: str, unit: str) -> None:
    """Into the policy's form."""
    page.get_by_role("textbox", name="TTL", exact=True).fill(amount)
    page.get_by_label("Unit of TTL", exact=True).select_option(unit)


def publish(page: Page) -> None:
    page.get_by_role("button", name=re.compile(r"^Publish revision \d+")).click()
