"""One-time links as people meet them: invited through REST, opened in a browser, and home."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.organisations import delete_if_there, post
from tests.e2e.pages import Look, expect, leave, sign_in_as
from tests.e2e.stack import Stack

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

PASSWORD = "four plain words here"


def invite(stack: Stack, email: str | None = None, role: str = "editor") -> dict[str, Any]:
    email = email or f"ada-{secrets.token_hex(4)}@acme.example"
    return post(stack, "/orgs/acme/members", {"email": email, "role": role})


def choose(page: Page, label: str, password: str = PASSWORD) -> None:
    page.get_by_label(label, exact=True).fill(password)
    page.get_by_label(re.compile("once more")).fill(password)
    page.locator("form button").click()


def said(page: Page) -> Locator:
    """What the page says happened; the socket and the tile have a say of their own."""
    return page.locator("main > .note").and_(page.get_by_role("status"))


def title(page: Page) -> Locator:
    """The headline and what stands under it: which of the two an organisation is in depends on what was counted."""
    return page.locator(".title")


def join(page: Page, stack: Stack) -> dict[str, Any]:
    member = invite(stack)
    page.goto(member["invitation_url"])
    choose(page, "Password")
    expect(title(page)).to_contain_text("Acme Support has 3 namespaces")
    return member


def test_somebody_invited_chooses_a_password_and_is_home(look: Look, stack: Stack) -> None:
    page, at = look
    member = invite(stack)
    page.goto(member["invitation_url"])
    expect(page.get_by_role("heading", level=1)).to_have_text("Acme Support invites you")
    expect(page.get_by_label("Password", exact=True)).to_be_focused()
    at("invitation")
    choose(page, "Password", "short")
    expect(page.get_by_text("too short")).to_be_visible()
    at("invitation-refused")
    choose(page, "Password")
    expect(said(page)).to_have_text("Welcome. You are part of Acme Support now.")
    expect(title(page)).to_contain_text("Acme Support has 3 namespaces")
    at("customer-joined")
    page.goto(invite(stack)["invitation_url"])
    expect(page.get_by_role("heading", level=1)).to_have_text("You are signed in as somebody else")
    at("link-for-another")
    page.get_by_role("button", name="Sign out and go on").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Acme Support invites you")
    page.goto(member["invitation_url"])
    at("link-spent")


def test_somebody_with_an_account_joins_a_second_organisation_with_their_password(look: Look, stack: Stack) -> None:
    page, at = look
    email = join(page, stack)["email"]
    page.locator(".menu summary").click()
    page.get_by_role("button", name="Sign out").click()
    page.goto(post(stack, "/orgs/globex/members", {"email": email, "role": "viewer"})["invitation_url"])
    page.get_by_label("Password", exact=True).fill("not this one")
    page.keyboard.press("Enter")
    expect(page.get_by_text("No account here fits this password")).to_be_visible()
    at("invitation-known-refused")
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("You belong to 2 organisations")
    at("customer-of-two")


def test_a_forgotten_password_is_set_anew(look: Look, stack: Stack) -> None:
    page, at = look
    member = join(page, stack)
    leave(page)
    link = post(stack, f"/orgs/acme/members/{member['id']}/link", {})
    assert link["kind"] == "reset"
    page.goto(link["url"])
    at("reset")
    choose(page, "New password", "entirely other words")
    expect(said(page)).to_contain_text("Your new password is set")
    leave(page)
    page.goto(link["url"])
    expect(page.get_by_role("heading", level=1)).to_have_text("This link does not work, or not any more")
    at("reset-spent")
    sign_in_as(page, member["email"], "entirely other words")
    expect(title(page)).to_contain_text("Acme Support has 3 namespaces")


def test_the_longest_names_there_can_be_fit(look: Look, stack: Stack) -> None:
    page, at = look
    slug = "x" * 55 + secrets.token_hex(4)
    post(stack, "/orgs", {"slug": slug, "name": "W" * 100})
    post(stack, f"/orgs/{slug}/namespaces", {"slug": "n" * 63, "name": "M" * 100})
    email = f"{'e' * 40}-{secrets.token_hex(4)}@{'d' * 60}.{'d' * 60}.{'d' * 60}.example"
    member = post(stack, f"/orgs/{slug}/members", {"email": email, "role": "admin"})
    page.goto(member["invitation_url"])
    at("long-invitation")
    choose(page, "Password")
    expect(page.get_by_role("heading", level=1)).to_contain_text("has 2 namespaces")
    at("long-customer")
    page.goto(invite(stack)["invitation_url"])
    at("long-link-for-another")
    delete_if_there(stack, slug)


@pytest.mark.parametrize("kind", ["invitation", "reset"])
def test_links_work_without_javascript(browser: Browser, stack: Stack, kind: str) -> None:
    context = browser.new_context(base_url=stack.web, java_script_enabled=False)
    page = context.new_page()
    member = join(page, stack)
    if kind == "reset":
        leave(page)
        page.goto(post(stack, f"/orgs/acme/members/{member['id']}/link", {})["url"])
        choose(page, "New password", "entirely other words")
        expect(said(page)).to_contain_text("Your new password is set")
    context.close()


def test_the_secret_of_a_link_is_in_no_request_but_its_own(page: Page, stack: Stack) -> None:
    """No log of ours, and none of a proxy in front, may hold it as a Referer."""
    url = invite(stack)["invitation_url"]
    secret = url.rsplit("/", 1)[1]
    leaks = []
    page.on(
        "request", lambda request: leaks.append(request.url) if secret in request.headers.get("referer", "") else None
    )
    page.goto(url)
    choose(page, "Password")
    expect(title(page)).to_contain_text("Acme Support has 3 namespaces")
    assert leaks == []
    logs = "".join(file.read_text() for file in (stack.home / "logs").iterdir())
    assert secret not in logs
    assert "/invitation/…" in logs
