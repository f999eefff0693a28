"""The guides of docs/ are followed word for word on a running stack, and what they show is what comes out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.guides import BY_HAND, DOCS, Step, disagreement, disagreements
from tests.e2e.organisations import delete_if_there
from tests.e2e.pages import LOOKS, expect, look_of, violations
from tests.e2e.stack import Stack, fleet_told, is_fleet_well
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page

GUIDES = ("cli.md", "calculator.md", "fleet.md")  # that of the API: tests/e2e/test_stack.py
MADE = ("umbrella", "initrode")  # organisations, by more than one guide
REFERENCE = ("/api/v1/docs", "/api/v1/docs/policies", "/api/v1/docs/objects")


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_can_be_followed_word_for_word(guide: str, stack: Stack, tmp_path: Path) -> None:
    wait_until(lambda: is_fleet_well(stack), "a fleet that is well", details=lambda: fleet_told(stack))
    assert disagreements(guide, stack, tmp_path) == []
    for made in MADE:
        delete_if_there(stack, made)


def test_what_the_reader_does_by_hand_is_still_in_the_text() -> None:
    text = "".join((DOCS / guide).read_text(encoding="utf-8") for guide in GUIDES)
    assert [said for said in BY_HAND if said not in text] == []


def test_a_guide_that_shows_something_else_would_be_found() -> None:
    wrong = [
        (Step("", "json", '{"a": 1}'), '{"a": 2}'),
        (Step("", "json", '{"a": "x…"}'), '{"a": "y"}'),
        (Step("", "json", '{"a": 1}'), '{"a": 1, "b": 2}'),
        (Step("", "json", '{"a": [1]}'), '{"a": [1, 2]}'),
        (Step("", "json", '{"a": 1}'), '{"a": true}'),
        (Step("", "text", "one\nthree"), "one\ntwo"),
    ]
    assert all(disagreement(step, printed) for step, printed in wrong)
    assert disagreement(Step("", "json", '{"a": "x…"}'), '{"a": "xyz"}') is None
    assert disagreement(Step("", "text", "ETag: …"), 'etag: "1"\nother') is None


def test_the_reference_of_the_api_is_accessible_and_fits(page: Page, stack: Stack, subtests: pytest.Subtests) -> None:
    """Without their pictures: the longest is 19,000 pixels high."""
    for path in REFERENCE:
        page.goto(path)
        for scheme, size in LOOKS[0], LOOKS[-1]:
            with subtests.test(msg=f"{path}-{scheme}-{size}"):
                look_of(page, scheme, size)
                assert violations(page) == []
                assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_the_reference_of_the_api_leads_to_each_operation(page: Page, stack: Stack) -> None:
    page.goto("/api/v1/docs")
    contents = page.get_by_role("navigation", name="Contents", exact=True)
    contents.get_by_role("link", name="All operations").click()
    page.get_by_role("main").get_by_role("link", name="PUT Publish the policy of a namespace").click()
    expect(page).to_have_url(re.compile("/docs/policies#namespace_policy_put$"))
    expect(page.get_by_role("heading", name="Publish the policy of a namespace")).to_be_in_viewport()
    operation = page.get_by_role("article", name="Publish the policy of a namespace")
    expect(operation).to_contain_text("If-Match")
    operation.get_by_role("link", name="412").click()
    expect(page).to_have_url(re.compile("/docs#problem-stale$"))
    expect(page.get_by_role("row", name="stale 412")).to_be_in_viewport()


def test_the_reference_of_the_api_can_be_read_on_a_phone(page: Page, stack: Stack) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/api/v1/docs/people-and-keys")
    page.locator(".docs-fold summary").click()
    page.get_by_role("link", name="POST Create a key").click()
    expect(page.get_by_role("heading", name="Create a key")).to_be_in_viewport()
