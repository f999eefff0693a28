"""Every page of the web UI in a real browser: accessible, within its window, light to load, and kept as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.e2e.pages import Scheme, expect, look_of, looker, sign_in, sign_in_as_member
from tests.e2e.stack import Stack
from tests.web.dashboard_pages import ALL_PAGES, ALL_URLS, NOWHERE
from tests.web.dashboard_pages import Page as Listed

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

DOWNLOADS = {"stats-csv", "stats-parts-csv", "audit-export"}
SHOWN = [one for one in ALL_PAGES if one.kind == "page" and NOWHERE not in one.arguments and one.view not in DOWNLOADS]
SHOWN = [one for one in SHOWN if one.audience != "outside"]
MOST_BYTES = 150_000  # over the wire, of a page that nothing is cached of
LOOKS: tuple[tuple[Scheme, str], ...] = (("light", "wide"), ("dark", "narrow"))


@dataclass  # Playwright keeps what it needs of a listener in an attribute of its own: no slots
class Window:
    """Somebody's, signed in; `asked` and `complaints` are of the page that was opened last."""

    page: Page
    asked: set[str] = field(default_factory=set)  # whose server
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("request", self._note)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _note(self, request: Request) -> None:
        if request.url.startswith("http"):
            self.asked.add(urlsplit(request.url).netloc)

    def open(self, one: Listed, stack: Stack) -> None:
        """It is there, light, without a mistake, and asks for nothing from elsewhere."""
        self.asked.clear()
        self.complaints.clear()
        answer = self.page.goto(path_of(one))
        assert answer is not None
        assert answer.status == 200
        assert len(answer.body()) <= MOST_BYTES
        expect(self.page.get_by_role("heading", level=1)).to_have_count(1)
        assert self.asked == {urlsplit(stack.web).netloc}
        assert self.complaints == []


@pytest.fixture(scope="module")
def windows(browser: Browser, stack: Stack) -> Iterator[tuple[Window, Window]]:
    """An operator's and a customer's."""
    with ExitStack() as contexts:
        operator, customer = (
            contexts.enter_context(browser.new_context(base_url=stack.web)).new_page() for _ in range(2)
        )
        sign_in(operator, stack)
        expect(operator.get_by_role("link", name="Organisations")).to_be_visible()
        sign_in_as_member(customer, stack)
        expect(customer.get_by_role("link", name="Calculator")).to_be_visible()
        yield Window(operator), Window(customer)


def path_of(one: Listed) -> str:
    from django.urls import reverse  # settings are not there while tests are collected

    return reverse(one.view, ALL_URLS, args=one.arguments)


def test_every_page_is_accessible_and_fits(
    windows: tuple[Window, Window], stack: Stack, subtests: pytest.Subtests
) -> None:
    """Every other page is opened in the one look, the rest in the other; each is then looked at in both."""
    operator, customer = windows
    assert len(SHOWN) > 30
    for place, one in enumerate(SHOWN):
        looks = LOOKS if place % 2 else LOOKS[::-1]
        window = operator if one.audience == "operators" else customer
        with subtests.test(msg=one.view):
            look_of(window.page, *looks[0])
            window.open(one, stack)
            looker(window.page, looks)(f"page-{one.view}")
            assert window.complaints == []


def test_an_operator_finds_every_page(windows: tuple[Window, Window], stack: Stack, subtests: pytest.Subtests) -> None:
    """Those of a customer, too; what only operators have is opened above."""
    operator, _ = windows
    of_everybody = [one for one in SHOWN if one.audience != "operators"]
    assert len(of_everybody) > 20
    look_of(operator.page, *LOOKS[0])
    for one in of_everybody:
        with subtests.test(msg=one.view):
            operator.open(one, stack)


def test_the_question_before_a_price_is_removed_is_accessible(windows: tuple[Window, Window]) -> None:
    """Without a price its address leads elsewhere: above, only that was looked at."""
    page = windows[0].page
    look_of(page, *LOOKS[0])
    page.goto("/settings/prices")
    page.get_by_role("link", name="Remove…").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Remove the price of")
    looker(page, LOOKS)("page-settings-price-remove-asked")


def test_navigation_takes_two_rows_of_what_a_finger_hits_where_the_window_is_narrow(
    windows: tuple[Window, Window],
) -> None:
    page = windows[0].page
    look_of(page, "dark", "narrow")
    page.goto("/")
    boxes = [link.bounding_box() for link in page.locator(".nav a:visible").all()]
    shown = [one for one in boxes if one is not None]
    assert len(shown) == len(boxes) == 9
    assert len({round(one["y"]) for one in shown}) <= 2
    assert min(min(one["width"], one["height"]) for one in shown) >= 44
    expect(page.locator(".nav a[aria-current]")).to_be_in_viewport()
