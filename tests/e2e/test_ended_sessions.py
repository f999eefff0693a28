"""A session that ends while somebody types: the page stays, a dialog signs in, and only a person sends the form."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.e2e.pages import expect, sign_in_as, sign_in_as_member, violations
from tests.e2e.stack import Stack

if TYPE_CHECKING:
    from playwright.sync_api import Page

FRESH_MS = 30_000  # static/luminet/session.js
POLICY = "/orgs/acme/namespaces/default/policy"
REASON = "Chats end sooner"


def type_reason(page: Page, stack: Stack) -> None:
    """Type into the policy editor, and wait until the server has to be asked before the form is sent."""
    page.clock.install()
    sign_in_as_member(page, stack)
    page.goto(POLICY)
    page.get_by_label("Why", exact=True).fill(REASON)
    page.clock.fast_forward(FRESH_MS + 1_000)


def preview(page: Page) -> None:
    page.get_by_role("button", name="Preview", exact=True).click()


def fill_dialog(page: Page, email: str, password: str) -> None:
    dialog = page.get_by_role("dialog", name="Sign in again")
    dialog.get_by_label("E-mail address").fill(email)
    dialog.get_by_label("Password").fill(password)
    dialog.get_by_role("button", name="Sign in").click()


def test_typed_text_survives_the_end_of_a_session(page: Page, stack: Stack) -> None:
    member = stack.demo["orgs"][0]["member"]
    type_reason(page, stack)
    page.context.clear_cookies(name="luminet_session")
    preview(page)
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Nothing was sent, and what you typed is still here.")
    assert violations(page) == []
    fill_dialog(page, member["email"], "not this one")
    expect(dialog).to_contain_text("do not match an active account")
    fill_dialog(page, member["email"], member["password"])
    expect(page.get_by_role("status").first).to_contain_text("You are signed in again. Nothing was sent")
    expect(dialog).to_be_hidden()
    expect(page.get_by_label("Why", exact=True)).to_have_value(REASON)
    with page.expect_event("load"):
        preview(page)
    expect(page.get_by_label("Why", exact=True)).to_have_value(REASON)
    expect(page.get_by_text("You are signed in again")).to_be_hidden()


def test_parts_offer_the_dialog_too(page: Page, stack: Stack) -> None:
    member = stack.demo["orgs"][0]["member"]
    type_reason(page, stack)
    page.context.clear_cookies(name="luminet_session")
    page.get_by_label("Why", exact=True).press_sequentially(".")
    page.clock.fast_forward(1_000)
    page.locator("#preview").get_by_role("link", name="Sign in again").click()
    fill_dialog(page, member["email"], member["password"])
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.locator("#preview")).not_to_contain_text("Your session has ended")
    expect(page.get_by_label("Why", exact=True)).to_have_value(f"{REASON}.")


def test_page_is_live_again_after_the_dialog(page: Page, stack: Stack) -> None:
    """Also within the seconds in which the page would not ask: it has said that the session has ended."""
    member = stack.demo["orgs"][0]["member"]
    sign_in_as_member(page, stack)
    page.goto("/")
    expect(page.locator("[data-live]")).to_contain_text("Live")
    amount = page.locator("form.ttl [name=amount]").first
    amount.evaluate("field => { field.value = '7'; }")
    other = page.context.new_page()
    other.goto("/")
    other.get_by_role("button", name="Sign out", include_hidden=True).dispatch_event("click")
    expect(other).to_have_url(re.compile("/sign-in"))
    other.close()
    expect(page.locator("#access-ended")).to_contain_text("What you typed is still here")
    page.locator("form.ttl button[type=submit]").first.dispatch_event("click")
    with page.expect_websocket():  # anew
        fill_dialog(page, member["email"], member["password"])
    expect(page.get_by_role("status").filter(has_text="You are signed in again")).to_be_visible()
    expect(page.locator("#access-ended")).to_have_count(0)
    expect(page.locator("[data-live]")).to_contain_text("Live")
    expect(amount).to_have_value("7")


def test_session_of_another_tab_sends_the_form(page: Page, stack: Stack) -> None:
    type_reason(page, stack)
    page.context.clear_cookies()
    other = page.context.new_page()
    sign_in_as_member(other, stack)
    other.close()
    with page.expect_event("load"):
        preview(page)
    expect(page.get_by_label("Why", exact=True)).to_have_value(REASON)


def test_another_account_never_sees_typed_text(page: Page, stack: Stack) -> None:
    operator = stack.demo["operator"]
    type_reason(page, stack)
    page.context.clear_cookies(name="luminet_session")
    preview(page)
    fill_dialog(page, operator["email"], operator["password"])
    expect(page.locator("#headline")).to_be_visible()
    page.go_back()
    expect(page.get_by_text(operator["email"])).to_be_visible()
    assert REASON not in page.content()


def test_form_of_another_account_is_refused(page: Page, stack: Stack) -> None:
    operator = stack.demo["operator"]
    type_reason(page, stack)
    page.context.clear_cookies()
    other = page.context.new_page()
    sign_in_as(other, operator["email"], operator["password"])
    other.close()
    with page.expect_event("load"):
        preview(page)
    expect(page.get_by_role("heading", level=1)).to_have_text("This form is too old to be sent")
    assert REASON not in page.content()
