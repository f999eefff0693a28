"""A customer's first hour, from the invitation to a policy of their own; and what is none of their business."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

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
from tests.e2e.pages import expect, sign_in, sign_in_as
from tests.e2e.stack import Stack
from tests.support.waiting import wait_until
from tests.web.dashboard_pages import ALL_PAGES, ALL_URLS
from tests.web.dashboard_pages import Page as Listed

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Locator, Page

ASKED = [one for one in ALL_PAGES if one.kind != "deed"]
OF_OPERATORS = [one for one in ASKED if one.audience == "operators"]
OF_MEMBERS = [one for one in ASKED if one.audience == "members"]
NAMES = ("Ada", "Grace", "Alan", "Edsger", "Barbara", "Donald", "Frances", "Ken", "Radia", "Leslie")
RULES = (
    "Answer in one short sentence, name the module you speak of, and say when somebody would rather not use it. " * 5
)
QUESTION = "What does the module json do, and when would I use it? " * 6
HEADING = re.compile(r"<h1[^>]*>([^<]+)</h1>")
PASSWORD = "seven plain otters paint"


@dataclass(frozen=True, slots=True)
class Invited:
    slug: str
    email: str
    link: str


@pytest.fixture
def invited(stack: Stack, browser: Browser) -> Iterator[Invited]:
    """By an operator, to an organisation whose members may choose a time to live of at most ten minutes."""
    context = browser.new_context(base_url=stack.web)
    page = context.new_page()
    with name_of_its_own(stack) as slug:
        sign_in(page, stack)
        make_organisation(page, slug)
        bind(page)
        yield Invited(slug, f"someone@{slug}.example", invite(page, f"someone@{slug}.example"))
    context.close()


def bind(page: Page) -> None:
    open_section(page, "Limits and bounds")
    page.get_by_role("group", name="TTL", exact=True).get_by_label("at most").fill("10 min")
    page.get_by_role("button", name="Set bounds, revision 1").click()
    expect(page.get_by_role("button", name="Set bounds, revision 2")).to_be_visible()


def invite(page: Page, email: str) -> str:
    open_section(page, "Members")
    page.get_by_role("textbox", name="E-mail address").last.fill(email)
    page.get_by_label("Role").select_option("admin")
    page.get_by_role("button", name="Invite").click()
    link = page.get_by_label("Link, shown now and never again")
    expect(link).to_have_value(re.compile("/invitation/"))
    return link.input_value()


def test_a_customer_from_the_invitation_to_a_policy_of_their_own(stack: Stack, page: Page, invited: Invited) -> None:
    join(page, invited)
    send_test_requests(page, invited.slug)
    open_section(page, "Keys")
    key = key_made(page, "production")
    wait_for_status(stack, key, 200)
    see_the_number_move(stack, page, key)
    ask_with_names_first(stack, key)
    see_why_misses_happen(page, invited.slug)
    see_where_prompts_part(page)
    open_policy(page, invited.slug)
    be_refused_out_of_bounds(page)
    change_within_bounds(page)
    assert set(revisions_answered(stack, key).values()) == {"1"}


def test_of_two_tabs_with_one_policy_the_second_learns_what_changed_and_keeps_its_text(
    page: Page, invited: Invited
) -> None:
    join(page, invited)
    other = page.context.new_page()
    for tab in (page, other):
        tab.goto(f"/orgs/{invited.slug}/namespaces/default/policy")
    ttl_typed(page, "7", "min")
    page.get_by_label("Why", exact=True).fill("Chats end sooner than that")
    ttl_typed(other, "9", "min")
    publish(other)
    expect(other.get_by_role("status").first).to_contain_text("revision 1 is published")
    publish(page)
    expect(page.get_by_role("alert").first).to_contain_text("Revision 1 was published meanwhile")
    expect(page.get_by_role("listitem").filter(has_text="TTL:")).to_contain_text("9 min")
    expect(ttl(page)).to_have_value("7")
    expect(page.get_by_label("Why", exact=True)).to_have_value("Chats end sooner than that")
    publish(page)
    expect(page.get_by_role("status").first).to_contain_text("revision 2 is published")
    expect(title(page)).to_contain_text("default keeps blocks for 7 min")


def title(page: Page) -> Locator:
    return page.get_by_role("heading", level=1)


def ttl(page: Page) -> Locator:
    return page.get_by_role("textbox", name="TTL", exact=True)


def requests_counted(page: Page) -> Locator:
    return page.locator("[data-tile-requests]").first


def join(page: Page, invited: Invited) -> None:
    """With a password of their own, and what they see then: 24 hours in which nothing was asked yet."""
    page.goto(invited.link)
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_label("The same password, once more").fill(PASSWORD)
    page.get_by_role("button", name=f"Join Journey {invited.slug}").click()
    expect(title(page)).to_have_text(f"Journey {invited.slug} has 1 namespace")
    expect(page.get_by_role("heading", level=2, name="Prompt tokens served from cache").first).to_be_visible()
    expect(page.get_by_text("Nothing has been counted in these 24 h")).to_be_visible()


def send_test_requests(page: Page, slug: str) -> None:
    page.get_by_role("navigation").get_by_role("link", name=f"Journey {slug}").click()
    open_section(page, "Get hits")
    page.get_by_role("button", name="Send a test request").click()
    outcome = page.get_by_role("region", name=re.compile(r"^The same prompt twice: 0\.0 %, then \d+\.\d %"))
    expect(outcome.get_by_role("row", name=re.compile("^First request"))).to_contain_text("0.0 %")
    outcome.get_by_text("Headers of the second request").click()
    expect(outcome.get_by_label("Headers of the second request")).to_contain_text("x-luminet-cache-hit: 9")
    expect(requests_counted(page)).to_have_text("2")


def see_the_number_move(stack: Stack, page: Page, key: str) -> None:
    """On a page that nobody reloads."""
    page.goto("/")
    expect(page.locator(".live").first).to_have_text(re.compile("Live"))
    expect(requests_counted(page)).to_have_text("3")  # of the test two, and the key's first
    page.evaluate("window.sameAsBefore = true")
    for _ in range(3):
        assert ask(stack, key, QUESTION)[0] == 200
    expect(requests_counted(page)).to_have_text("6")
    assert page.evaluate("window.sameAsBefore")


def ask_with_names_first(stack: Stack, key: str) -> None:
    for name in NAMES:
        assert ask(stack, key, f"My name is {name}. {RULES}")[0] == 200


def see_why_misses_happen(page: Page, slug: str) -> None:
    page.get_by_role("navigation").get_by_role("link", name=f"Journey {slug}").click()
    open_section(page, "Why misses happen")
    expect(title(page)).to_contain_text("of prompt tokens were not served from cache")
    expect(page.get_by_role("columnheader", name="What to do")).to_be_visible()
    expect(page.get_by_role("link", name="default", exact=True)).to_be_visible()


def see_where_prompts_part(page: Page) -> None:
    """What a gateway finds some seconds after it has seen enough, and what moving the name would bring."""
    finding = page.get_by_text(
        re.compile(r"of the prompts differ first at token \d+ and agree again \d+ tokens? later")
    )
    wait_until(lambda: page.reload() and finding.count(), "a finding on the page")
    expect(finding.first).to_contain_text("Move what varies to the end: hit rate")
    expect(page.get_by_role("heading", level=2, name=re.compile(r"would bring \d+ points?$"))).to_be_visible()


def open_policy(page: Page, slug: str) -> None:
    page.get_by_role("link", name="default", exact=True).click()
    open_section(page, "Policy")
    expect(page).to_have_url(re.compile(f"/orgs/{slug}/namespaces/default/policy$"))
    expect(page.get_by_text("Your operator lets you choose at most 10 min.")).to_be_visible()


def be_refused_out_of_bounds(page: Page) -> None:
    ttl_typed(page, "20", "min")
    page.get_by_label("Why", exact=True).fill("Longer chats")
    expect(page.get_by_role("button", name=re.compile(r"^Publish revision \d+"))).to_be_disabled()
    expect(page.get_by_text("Cannot be published: correct the problem first.")).to_be_visible()
    expect(page.locator("#ttl_seconds-hint")).to_contain_text("20 min is more than 10 min")
    expect(page.locator("#preview")).not_to_contain_text("No changes yet")
    expect(ttl(page)).to_have_value("20")
    expect(page.get_by_label("Why", exact=True)).to_have_value("Longer chats")


def change_within_bounds(page: Page) -> None:
    ttl_typed(page, "8", "min")
    publish(page)
    expect(page.get_by_role("status").first).to_contain_text("All 3 agents acknowledged it")
    expect(title(page)).to_contain_text("default keeps blocks for 8 min")


# What is none of their business


@pytest.fixture
def customer(stack: Stack, browser: Browser) -> Iterator[BrowserContext]:
    """Of acme, signed in."""
    context = browser.new_context(base_url=stack.web)
    page = context.new_page()
    member = stack.demo["orgs"][0]["member"]
    sign_in_as(page, member["email"], member["password"])
    expect(page.get_by_role("link", name="Calculator")).to_be_visible()
    yield context
    context.close()


def address(one: Listed, *, org: str) -> str:
    from django.urls import reverse  # settings are not there while tests are collected

    return reverse(one.view, ALL_URLS, args=[org if each == "acme" else each for each in one.arguments])


def see_no_such_page(customer: BrowserContext, path: str) -> None:
    """With the cookies of the browser; what that makes of the answer is looked at elsewhere."""
    answer = customer.request.get(path, headers={"accept": "text/html"})
    assert (answer.status, HEADING.findall(answer.text())) == (404, ["There is no such page"]), path
    answer.dispose()


def test_no_page_of_operators_is_there_for_a_customer(customer: BrowserContext) -> None:
    assert len(OF_OPERATORS) > 20
    for one in OF_OPERATORS:
        see_no_such_page(customer, address(one, org="acme"))


def test_another_organisation_is_not_there_for_a_customer(customer: BrowserContext) -> None:
    """As if its name were one that nobody has."""
    assert len(OF_MEMBERS) > 20
    for one in OF_MEMBERS:
        for org in ("globex", "nobody-here"):
            see_no_such_page(customer, address(one, org=org))
