"""One stack and one browser for all journeys; tests that break a stack start their own.

Stacks are the folder's, not the run's: they end before tests of other folders begin.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.e2e.chromium import LAUNCH_ARGS, ChromiumUnavailable, find_or_fetch
from tests.e2e.pages import SIZES, Look, looker
from tests.e2e.secrecy import leaks
from tests.e2e.stack import Stack, new_home, running, running_fleet


@pytest.fixture
def home() -> Iterator[Path]:
    with new_home() as home:
        yield home


@pytest.fixture(scope="package")
def stack() -> Iterator[Stack]:
    with new_home() as home, running(home) as stack:
        yield stack
        assert leaks(stack) == []


@pytest.fixture(scope="package")
def fleet_stack() -> Iterator[Stack]:
    """One with two agents on the demo model and a gateway, all of them ready."""
    with new_home() as home, running_fleet(home) as stack:
        yield stack
        assert leaks(stack) == []


@pytest.fixture(scope="module")
def browser(request: pytest.FixtureRequest) -> Iterator[Browser]:
    """For one file of tests: Playwright's event loop runs for as long as this lives, and other tests cannot bear it."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():  # fetching takes seconds, and says so
        try:
            chromium = find_or_fetch()
        except ChromiumUnavailable as error:
            if os.environ.get("LUMINET_REQUIRE_BROWSER"):
                pytest.fail(f"LUMINET_REQUIRE_BROWSER is set and there is no browser: {error}")
            pytest.skip(f"no browser: {error}")
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


@pytest.fixture(params=[(scheme, size) for scheme in ("light", "dark") for size in SIZES], ids="-".join)
def look(request: pytest.FixtureRequest, browser: Browser, stack: Stack) -> Iterator[Look]:
    """A page in one theme and one size, and the function that looks at it."""
    scheme, size = request.param
    width, height = SIZES[size]
    context = browser.new_context(base_url=stack.web, color_scheme=scheme, viewport={"width": width, "height": height})
    page = context.new_page()
    yield page, looker(page, f"{scheme}-{size}")
    context.close()
