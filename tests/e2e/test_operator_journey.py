"""An operator's first customer: organisation, namespace, key, a policy on a few engines first, and the way back."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.e2e.organisations import (
    key_made,
    make_organisation,
    name_of_its_own,
    open_section,
    publish,
    revisions_answered,
    ttl_typed,
    wait_for_status,
)
from tests.e2e.pages import expect, sign_in
from tests.e2e.stack import Stack
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

ENGINES = {"agent-1", "agent-2"}


@pytest.fixture
def slug(stack: Stack) -> Iterator[str]:
    with name_of_its_own(stack) as slug:
        yield slug


def test_a_customer_from_its_first_day_to_its_last(stack: Stack, page: Page, slug: str) -> None:
    sign_in(page, stack)
    make_organisation(page, slug)
    make_namespace(page, "chat")
    open_section(page, "Keys")
    key = key_made(page, "production", namespace="chat")
    wait_for_status(stack, key, 200)
    assert revisions_answered(stack, key) == dict.fromkeys(ENGINES, "0")

    open_policy(page, slug)
    publish_to_a_few(page)
    first = one_engine_alone_has(stack, key, "1")
    promote(page, slug)
    assert revisions_answered(stack, key) == dict.fromkeys(ENGINES, "1"), f"{first} was first"

    go_back(page, slug)
    assert revisions_answered(stack, key) == dict.fromkeys(ENGINES, "2")
    with asleep(stack, "agent-2"):
        purge(page, slug)
    expect(title(page)).to_have_text(re.compile("The purge of .+ is done: all 3 agents have proved it"))
    expect(page.locator("tbody tr", has_text="proved")).to_have_count(3)
    delete(page, slug)
    wait_for_status(stack, key, 401)


def title(page: Page) -> Locator:
    return page.get_by_role("heading", level=1)


def make_namespace(page: Page, slug: str) -> None:
    page.get_by_text("Create a namespace", exact=True).click()
    page.locator("#new-namespace").get_by_role("textbox", name="Slug").fill(slug)
    page.get_by_role("button", name="Create namespace").click()
    expect(page.get_by_role("status").first).to_contain_text(slug)


def open_policy(page: Page, slug: str) -> None:
    """As somebody who looks for it: organisation, namespace, policy."""
    open_section(page, "Namespaces")
    page.get_by_role("table").get_by_role("link", name="chat", exact=True).click()
    open_section(page, "Policy")
    expect(page).to_have_url(re.compile(f"/orgs/{slug}/namespaces/chat/policy$"))
    expect(title(page)).to_contain_text("chat keeps blocks for")


def publish_to_a_few(page: Page) -> None:
    """Looked at first, as a difference that can be read; then to half of the engines."""
    ttl_typed(page, "12", "min")
    page.get_by_role("button", name="Preview", exact=True).click()
    preview = page.get_by_role("region", name="What revision 1 would change")
    expect(preview.get_by_role("deletion")).to_contain_text("5 min")
    expect(preview.get_by_role("insertion")).to_contain_text("12 min")
    expect(page.get_by_label("TTL", exact=True)).to_have_value("12")
    page.get_by_role("radio", name="A few first").check()
    page.get_by_label("Steps, % of the engines").fill("50, 100")
    page.get_by_role("textbox", name="Each bakes").fill("1")
    page.get_by_label("Unit of how long each bakes").select_option("s")
    page.get_by_label("Why", exact=True).fill("Chats come back within ten minutes")
    expect(page.get_by_role("button", name="Publish revision 1 to 1 of 2 engines first")).to_be_visible()
    publish(page)
    expect(page.get_by_role("status").first).to_contain_text("revision 1 is published")


def one_engine_alone_has(stack: Stack, key: str, revision: str) -> str:
    """While the rollout stands at its first step, which it leaves only when somebody says so."""
    wait_until(lambda: revision in revisions_answered(stack, key).values(), f"revision {revision} at an engine")
    found = revisions_answered(stack, key)
    assert set(found) == ENGINES
    (first,) = (agent for agent, held in found.items() if held == revision)
    return first


def promote(page: Page, slug: str) -> None:
    """A handful of requests is no evidence: it has paused, and somebody decides."""
    page.get_by_role("link", name="Rollouts").click()
    page.get_by_role("link", name=f"{slug}/chat, revision 1").click()
    expect(title(page)).to_contain_text("is paused at step 1 of 2")
    page.get_by_role("button", name="Promote to step 2").click()
    expect(title(page)).to_have_text(f"{slug}/chat, revision 1 is on all 3 agents")


def go_back(page: Page, slug: str) -> None:
    page.goto(f"/orgs/{slug}/namespaces/chat/policy")
    open_section(page, "Revisions")
    expect(page.get_by_role("row", name=re.compile("^1 in force"))).to_contain_text("Chats come back")
    page.get_by_role("link", name="Go back to 0…").click()
    page.get_by_role("button", name="Publish revision 2 to 3 agents at once").click()
    expect(page.get_by_role("status").first).to_contain_text("All 3 agents acknowledged it")
    expect(title(page)).to_contain_text("chat keeps blocks for 5 min")


@contextmanager
def asleep(stack: Stack, name: str) -> Iterator[None]:
    """Held still for as long as that takes: what its receipt does to a page that is open can be seen then."""
    pid = stack.status()[name]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def purge(page: Page, slug: str) -> None:
    """Of three agents two can answer."""
    page.goto(f"/orgs/{slug}/namespaces/chat/purge")
    page.get_by_label("Type chat to confirm").fill("chat")
    page.get_by_role("button", name="Purge chat").click()
    expect(title(page)).to_have_text(re.compile(f"The purge of {slug}/chat: 2 of 3 agents have proved it"))
    expect(page.get_by_role("row", name=re.compile("agent-2"))).to_contain_text("awaited")


def delete(page: Page, slug: str) -> None:
    page.goto(f"/orgs/{slug}")
    page.get_by_role("link", name="Delete this organisation").click()
    page.get_by_label(f"Type {slug} to confirm").fill(slug)
    page.get_by_role("button", name=f"Delete {slug} and its 2 namespaces").click()
    expect(page.get_by_role("status").first).to_contain_text("is deleted")
    expect(page).to_have_url(re.compile("/operations/"))
    expect(title(page)).to_have_text(re.compile(f"The purge of {slug} is done: all 3 agents have proved it"))
    answer = page.goto(f"/orgs/{slug}")
    assert answer is not None
    assert answer.status == 404
