from __future__ import annotations

import json
import os
import re
import signal
from typing import TYPE_CHECKING

import pytest

from tests.e2e.pages import Look, expect, sign_in, sign_in_as, sign_in_as_member, violations, wait_past_stale
from tests.e2e.stack import Stack, django_shell, luminet

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


def test_an_operator_signs_in_and_sees_the_control_plane_answer(page: Page, stack: Stack) -> None:
    sign_in(page, stack)
    expect(page.locator("#headline")).to_contain_text("All 5 parts of the control plane answer")
    expect(page.locator("#parts h2")).to_have_text("All 5 parts of the control plane answer")
    expect(page.locator("#parts tbody tr")).to_have_count(5)
    expect(page.locator(".live")).to_have_text(re.compile(r"Live · \d+ s ago"))


def test_the_page_moves_by_itself_without_a_reload(page: Page, stack: Stack) -> None:
    sign_in(page, stack)
    newest = page.locator("[data-rows] tr").first  # the count stands still when there are ten minutes of them
    expect(newest).not_to_have_text(newest.text_content() or "")
    expect(page.locator("[data-chart] canvas")).to_be_visible()
    asked = page.locator("#parts time").get_attribute("datetime")
    expect(page.locator("#parts time")).not_to_have_attribute("datetime", asked or "")


def test_show_data_holds_what_the_chart_shows(page: Page, stack: Stack) -> None:
    sign_in(page, stack)
    data = page.locator("#pulse-data")
    data.get_by_text("Show data").click()
    expect(data.locator("tbody tr").first).to_contain_text(re.compile(r"\d+\.\d"))
    for _ in range(2):  # also after it has moved
        count = int(page.locator("[data-count]").inner_text())
        assert data.locator("tbody tr").count() in {count, count + 1}
        newest = data.locator("tbody tr").first
        expect(newest).not_to_have_text(newest.text_content() or "")


def test_a_wrong_password_keeps_the_address_and_says_what_is_wrong(page: Page, stack: Stack) -> None:
    page.goto("/sign-in")
    page.get_by_label("E-mail address").fill("somebody@acme.example")
    page.get_by_label("Password").fill("not this one")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("do not match an active account")
    expect(page.get_by_label("E-mail address")).to_have_value("somebody@acme.example")


def test_the_theme_is_chosen_in_the_menu_and_stays(page: Page, stack: Stack) -> None:
    sign_in(page, stack)
    for theme, background in (("Dark", "rgb(13, 19, 26)"), ("Light", "rgb(246, 247, 249)")):
        page.get_by_text(stack.demo["operator"]["email"]).click()
        with page.expect_navigation():
            page.get_by_role("button", name=theme).click()
        page.goto("/account/password")
        expect(page.locator("body")).to_have_css("background-color", background)


def test_the_menu_closes_on_escape_and_gives_the_focus_back(page: Page, stack: Stack) -> None:
    sign_in(page, stack)
    summary = page.locator(".menu summary")
    summary.click()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Sign out")).to_be_hidden()
    expect(summary).to_be_focused()


def test_a_password_is_changed_and_the_old_one_is_over(page: Page, stack: Stack) -> None:
    made = luminet("create-operator", "second@luminet.example", home=stack.home)
    password = re.search(r'"password": "(.+)"', made.stdout)
    assert password, made.stderr
    sign_in_as(page, "second@luminet.example", password[1])
    page.get_by_role("link", name="Password").click()
    page.get_by_label("Current password").fill(password[1])
    page.get_by_label("New password", exact=True).fill("a much better password")
    page.get_by_label("New password, once more").fill("a much better password")
    page.get_by_role("button", name="Change password").click()
    expect(page.get_by_role("status")).to_contain_text("Your password is changed")
    page.locator(".menu summary").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(re.compile("/sign-in$"))


def test_everything_can_be_reached_with_the_keyboard(page: Page, stack: Stack) -> None:
    sign_in(page, stack)
    expect(page.get_by_role("link", name="Overview")).to_be_visible()  # or the reload overtakes the signing in
    page.reload()
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to content")).to_be_focused()
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.textContent.trim()"))
    data = "Show data of the hit rate"
    assert {"Overview", "Password", "Support", data, stack.demo["operator"]["email"]} <= reached
    assert "How it is counted: Money saved" in reached


def test_the_pages_work_without_javascript(browser: Browser, stack: Stack) -> None:
    context = browser.new_context(base_url=stack.web, java_script_enabled=False)
    page = context.new_page()
    sign_in(page, stack)
    expect(page.locator("#headline")).to_contain_text("All 5 parts of the control plane answer")
    page.locator("#pulse-data").get_by_text("Show data").click()
    expect(page.locator("#pulse-data tbody tr").first).to_be_visible()
    page.get_by_text(stack.demo["operator"]["email"]).click()
    page.get_by_role("button", name="Dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.get_by_text(stack.demo["operator"]["email"]).click()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    context.close()


def test_every_page_is_accessible_and_fits(look: Look, stack: Stack) -> None:
    page, at = look
    page.goto("/sign-in")
    at("sign-in")
    sign_in(page, stack)
    expect(page.locator(".live")).to_have_text(re.compile("Live"))
    at("overview")
    page.goto("/no/such/page")
    at("missing")
    page.goto("/account/password")
    at("password")
    page.get_by_role("button", name="Change password").click()
    at("password-refused")
    page.locator(".menu summary").click()
    at("menu")


def test_what_customers_see_is_accessible_and_fits(look: Look, stack: Stack, nobody: tuple[str, str]) -> None:
    page, at = look
    page.goto("/sign-in")
    page.get_by_label("E-mail address").fill("nobody@acme.example")
    page.get_by_label("Password").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_be_visible()
    at("refused")
    sign_in_as(page, *nobody)
    expect(page.get_by_role("heading", level=1)).to_have_text("Your cache hits will be counted here")
    at("customer-of-nobody")


def test_what_a_member_of_an_organisation_sees_is_accessible_and_fits(look: Look, stack: Stack) -> None:
    page, at = look
    sign_in_as_member(page, stack)
    expect(page.locator(".title")).to_contain_text("Acme Support has 3 namespaces")
    in_force = page.get_by_role("region", name="In force now")
    expect(in_force.get_by_role("row", name=re.compile("support-bot"))).to_contain_text("15 min sliding")
    at("customer")


@pytest.fixture
def nobody(stack: Stack) -> tuple[str, str]:
    """A person of no organisation. Whoever is invited joins one, so this one is made as support would."""
    email = "customer@acme.example"
    made = luminet("create-operator", email, home=stack.home)
    person = f"User.objects.filter(email={email!r})"
    django_shell(stack.home, f"from tenants.models import User; {person}.update(is_operator=False)")
    return email, str(json.loads(made.stdout)["password"])


def test_a_page_whose_socket_falls_silent_says_so_and_recovers(page: Page, stack: Stack) -> None:
    page.clock.install()
    sign_in(page, stack)
    expect(page.locator(".live")).to_have_text(re.compile("Live"))
    worker = stack.status()["worker"]["pid"]
    os.kill(worker, signal.SIGSTOP)
    try:
        wait_past_stale(page)
        expect(page.locator(".live")).to_have_text(re.compile(r"Stale · \d+ s ago"))
        expect(page.locator("[data-headline]")).to_have_text("Worker does not answer")
        expect(page.locator("#headline")).to_contain_text("worker.log")
    finally:
        os.kill(worker, signal.SIGCONT)
    expect(page.locator(".live")).to_have_text(re.compile("Live"))
    expect(page.locator("[data-headline]")).to_have_text("All 5 parts of the control plane answer")


def test_the_support_site_wears_the_same_colours(page: Page, stack: Stack) -> None:
    sign_in(page, stack)
    page.get_by_role("link", name="Support").click()
    expect(page.locator("body")).to_have_css("background-color", "rgb(246, 247, 249)")
    page.get_by_role("link", name="Users").first.click()
    expect(page.get_by_role("link", name=stack.demo["operator"]["email"])).to_be_visible()


def test_axe_does_find_what_is_wrong(page: Page, stack: Stack) -> None:
    """The claim above could not fail otherwise."""
    page.goto("/sign-in")
    page.evaluate("document.querySelector('label').remove()")
    assert any(one.startswith("label") for one in violations(page))
