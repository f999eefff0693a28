"""Organisations that journeys make on a fleet which others use, too: with names of their own, and gone in the end."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPMessage
from uuid import uuid4

from playwright.sync_api import Page, expect

from tests.e2e.stack import Stack, wait_until

SOON = 20_000  # milliseconds; of what takes moments on a machine that has nothing else to do
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
    wait_until(lambda: ask(stack, key, "Hello.")[0] == status, f"{status} at the gateway", seconds=60)


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
    expect(page.get_by_role("status").first).to_contain_text("is there, with the namespace default", timeout=SOON)


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
    expect(secret).to_have_value(re.compile("^lmk_"), timeout=SOON)
    shown = secret.input_value()
    page.get_by_role("link", name="I have copied it").click()
    expect(page.get_by_role("row", name=re.compile(name))).to_be_visible(timeout=SOON)
    assert shown not in page.content()
    return shown


def ttl_typed(page: Page, amount: str, unit: str) -> None:
    """Into the policy's form."""
    page.get_by_role("textbox", name="Time to live", exact=True).fill(amount)
    page.get_by_label("Unit of Time to live", exact=True).select_option(unit)


def publish(page: Page) -> None:
    page.get_by_role("button", name=re.compile(r"^Publish revision \d+")).click()
