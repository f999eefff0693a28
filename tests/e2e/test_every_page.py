"""Every page of the web UI in a real browser: accessible, within its window, light to load, and kept as a picture."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from tests.dashboard_pages import NOWHERE, PAGES
from tests.dashboard_pages import Page as Listed
from tests.e2e.pages import SIZES, looker, sign_in, sign_in_as
from tests.e2e.stack import Stack

DOWNLOADS = {"stats-csv", "stats-parts-csv", "audit-export"}
SHOWN = [one for one in PAGES if one.kind == "page" and NOWHERE not in one.arguments and one.view not in DOWNLOADS]
SHOWN = [one for one in SHOWN if one.audience != "outside"]
MOST_BYTES = 150_000  # over the wire, of a page that nothing is cached of
LOOKS = [("light", "wide"), ("dark", "narrow")]


@pytest.fixture(scope="package")
def stack(fleet_stack: Stack) -> Stack:
    """With agents and a gateway: pages show what a fleet says."""
    return fleet_stack


@pytest.fixture(scope="module", params=LOOKS, ids="-".join)
def window(request: pytest.FixtureRequest, browser: Browser, stack: Stack) -> Iterator[tuple[Page, Page, str]]:
    """An operator's page and a customer's, each signed in for all of this module."""
    scheme, size = request.param
    width, height = SIZES[size]
    contexts = [
        browser.new_context(base_url=stack.web, color_scheme=scheme, viewport={"width": width, "height": height})
        for _ in range(2)
    ]
    operator, customer = (context.new_page() for context in contexts)
    sign_in(operator, stack)
    expect(operator.get_by_role("link", name="Organisations")).to_be_visible()
    member = stack.demo["orgs"][0]["member"]
    sign_in_as(customer, member["email"], member["password"])
    expect(customer.get_by_role("link", name="Calculator")).to_be_visible()
    yield operator, customer, f"{scheme}-{size}"
    for context in contexts:
        context.close()


def path_of(one: Listed) -> str:
    from django.urls import reverse  # settings are not there while tests are collected

    return reverse(one.view, args=one.arguments)


@pytest.mark.parametrize("one", SHOWN, ids=lambda one: one.view)
def test_it_is_accessible_and_fits(one: Listed, window: tuple[Page, Page, str], stack: Stack) -> None:
    operator, customer, look = window
    page = operator if one.audience == "operators" else customer
    complaints: list[str] = []

    def note(said: object) -> None:
        complaints.append(str(said))

    page.on("pageerror", note)
    answer = page.goto(path_of(one))
    assert answer is not None
    assert answer.status == 200, f"{one.view} answers {answer.status}"
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    looker(page, look)(f"page-{one.view}")
    page.remove_listener("pageerror", note)
    assert complaints == []


def test_navigation_takes_two_rows_of_what_a_finger_hits_where_the_window_is_narrow(
    window: tuple[Page, Page, str],
) -> None:
    operator, _, look = window
    if not look.endswith("-narrow"):
        return
    operator.goto("/")
    boxes = [link.bounding_box() for link in operator.locator(".nav a:visible").all()]
    shown = [one for one in boxes if one is not None]
    assert len(shown) == len(boxes) == 9
    assert len({round(one["y"]) for one in shown}) <= 2
    assert min(min(one["width"], one["height"]) for one in shown) >= 44
    expect(operator.locator(".nav a[aria-current]")).to_be_in_viewport()


@pytest.mark.parametrize("one", [one for one in SHOWN if one.audience != "operators"], ids=lambda one: one.view)
def test_an_operator_finds_it_too(one: Listed, window: tuple[Page, Page, str]) -> None:
    operator, _, look = window
    if look != "-".join(LOOKS[0]):
        return
    answer = operator.goto(path_of(one))
    assert answer is not None
    assert answer.status == 200, f"{one.view} answers {answer.status}"


def test_no_page_asks_for_anything_from_elsewhere(window: tuple[Page, Page, str], stack: Stack) -> None:
    """And the first paint, with nothing cached, is light."""
    operator, _, _ = window
    asked: list[str] = []

    def note(request: Request) -> None:
        asked.append(request.url)

    operator.on("request", note)
    sizes = {}
    for one in SHOWN:
        answer = operator.goto(path_of(one))
        sizes[one.view] = len(answer.body()) if answer else 0
    operator.remove_listener("request", note)
    assert {urlsplit(url).netloc for url in asked if url.startswith("http")} == {urlsplit(stack.web).netloc}
    assert {view: size for view, size in sizes.items() if size > MOST_BYTES} == {}
