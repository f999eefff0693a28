"""Two stacks and one browser for all journeys; tests that break a stack start their own.

They are the folder's, not the run's: they end before tests of other folders begin, which cannot bear the event loop
that Playwright runs for as long as a browser of its lives.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.pages import SOON, Look, looker
from tests.e2e.secrecy import leaks
from tests.e2e.stack import Stack, new_home, running_fleet

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

METRICS_TOKEN = secrets.token_hex(24)


@pytest.fixture
def home() -> Iterator[Path]:
    with new_home() as home:
        yield home


@pytest.fixture(scope="package")
def stack() -> Iterator[Stack]:
    """With two agents on the demo model and a gateway, all of them ready, and no traffic but that of the tests.

    Whoever uses it makes organisations or people of their own, puts back what is everybody's, and ends with a fleet
    that is well. Which files do: tests/suite/files.py.
    """
    with new_home() as home, running_fleet(home) as stack:
        yield stack
        assert leaks(stack) == []


@pytest.fixture(scope="package")
def busy_stack() -> Iterator[Stack]:
    """With the demo's traffic, which tests may stop, and metrics behind a token."""
    with (
        new_home() as home,
        running_fleet(home, LUMINET_DEMO_TRAFFIC="1", LUMINET_METRICS_TOKEN=METRICS_TOKEN) as stack,
    ):
        yield stack


@pytest.fixture(scope="package")
def browser(request: pytest.FixtureRequest) -> Iterator[Browser]:
    from playwright.sync_api import expect, sync_playwright

    from tests.e2e.chromium import LAUNCH_ARGS, ChromiumUnavailable, find_or_fetch

    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():  # fetching takes seconds, and says so
        try:
            chromium = find_or_fetch()
        except ChromiumUnavailable as error:
            if os.environ.get("LUMINET_REQUIRE_BROWSER"):
                pytest.fail(f"LUMINET_REQUIRE_BROWSER is set and there is no browser: {error}")
            pytest.skip(f"no browser: {error}")
    expect.set_options(SOON)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(chromium.executable), args=[*LAUNCH_ARGS], env=dict(chromium.env)
        )
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, stack: Stack) -> Iterator[Page]:
    """A fresh browser session that fails the test when a page logs an error or breaks our own security policy."""
    context = browser.new_context(base_url=stack.web, viewport={"width": 1440, "height": 900})
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console", lambda message: complaints.append(message.text) if message.type in {"error", "warning"} else None
    )
    yield page
    context.close()
    serious = [one for one in complaints if "status of 4" not in one and "status of 503" not in one]
    assert not serious


@pytest.fixture
def look(browser: Browser, stack: Stack) -> Iterator[Look]:
    """A page, and the function that looks at it in each theme and each size."""
    context = browser.new_context(base_url=stack.web, color_scheme="light", viewport={"width": 1440, "height": 900})
    page = context.new_page()
    yield page, looker(page)
    context.close()
