"""The six experiments of the page of five minutes, each by its button on a fleet as `make up` starts it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.e2e.pages import expect, sign_in
from tests.e2e.stack import Stack, is_fleet_well, readyz
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# What each has to show, as a title that is computed from what was measured.
SHOWN = {
    "hit": r"Hit: [\d,]+ tokens again, 0\.0 %, then (99|100)\.\d % from cache",
    "isolation": r"Isolation: 9\d\.\d % for Globex again, 0\.0 % for Initech with the same prompt",
    "policy": r"Policy: 5 min → 5 s, 3/3 acknowledged, then “expired”",
    "prompt": r"Prompt fix: differs at token \d+; at the end \d+ % instead of \d+ %",
    "flood": r"Flood: the quiet tenant keeps \d+\.\d %, \d+\.\d % in one LRU cache",
    # The one request that is under way when its engine dies may be cut short; the experiment itself judges that.
    "fault": r"Fault: (?:(\d+) of \1 requests answered|"
    r"\d+ of \d+ requests answered, 1 cut short by the kill and told so) "
    r"meanwhile; 0 tokens apart in reconciliation",
}
MOST_SECONDS = 240.0


@pytest.fixture
def page(browser: Browser, stack: Stack) -> Iterator[Page]:
    """One that fails the test when a script of it breaks. That its server is away is part of one experiment."""
    context = browser.new_context(base_url=stack.web, viewport={"width": 1440, "height": 900})
    page, broken = context.new_page(), list[str]()
    page.on("pageerror", lambda error: broken.append(str(error)))
    yield page
    context.close()
    assert broken == []


@pytest.mark.parametrize("kind", SHOWN)
def test_it_shows_what_it_promises_and_undoes_itself(page: Page, stack: Stack, kind: str) -> None:
    wait_until(lambda: readyz(stack.web).get("status") == "ok", "ready", details=lambda: stack.said[-2000:])
    wait_until(lambda: is_fleet_well(stack), "a fleet that is well")
    sign_in(page, stack)
    expect(page.get_by_role("link", name="Open the experiments")).to_be_visible()
    page.goto("/five-minutes")
    panel = page.locator(f"#{kind}")
    panel.get_by_role("button").click()
    over = re.compile("shown|did not come through")
    expect(panel.get_by_role("status")).to_have_text(over, timeout=MOST_SECONDS * 1000)
    assert re.fullmatch(SHOWN[kind], panel.get_by_role("heading").inner_text()), panel.inner_text()
    expect(panel.get_by_role("status")).to_have_text("shown")
    keys = [one for org in ("acme", "globex", "initech") for one in keys_of(page, org)]
    assert [name for name in keys if "test request" in name] == []


def keys_of(page: Page, org: str) -> list[str]:
    answer = page.goto(f"/orgs/{org}/keys")
    assert answer is not None
    if answer.status == 404:
        return []
    return page.locator("tbody th").all_inner_texts()
