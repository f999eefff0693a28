"""What only a real browser can tell: bytes over the wire of a first visit, and what axe finds on a page."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.e2e.chromium import LAUNCH_ARGS, find_or_fetch

Scheme = Literal["light", "dark"]

FINISH_SECONDS = 10
PLANTED = "document.body.append(Object.assign(document.createElement('img'), {src: 'data:,'}))"
PLANTED_RULE = "image-alt"


class BlindChecker(Exception):
    """axe missed a fault planted for it, so that it found none elsewhere means nothing."""


@dataclass(frozen=True, slots=True)
class FirstLoad:
    wire_bytes: float
    requests: int


@contextmanager
def chromium_running() -> Iterator[Browser]:
    """Raises ChromiumUnavailable."""
    chromium = find_or_fetch()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(chromium.executable), env=dict(chromium.env), args=list(LAUNCH_ARGS)
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visitor(
    browser: Browser, address: str, cookies: Mapping[str, str], *, scheme: Scheme = "light"
) -> Iterator[BrowserContext]:
    """Somebody who has never been here, with an empty cache, but signed in by these cookies."""
    context = browser.new_context(color_scheme=scheme)
    try:
        context.add_cookies([{"name": name, "value": value, "url": address} for name, value in cookies.items()])
        yield context
    finally:
        context.close()


def first_load(context: BrowserContext, url: str) -> FirstLoad:
    """Headers and bodies as they came over the wire, of every request made until the page's load event."""
    page = context.new_page()
    devtools = context.new_cdp_session(page)
    asked: list[str] = []
    wire_bytes: dict[str, float] = {}

    def on_failed(event: dict[str, Any]) -> None:
        raise RuntimeError(f"{url}: a request failed: {event['errorText']}")

    devtools.on("Network.requestWillBeSent", lambda event: asked.append(event["requestId"]))
    devtools.on(
        "Network.loadingFinished", lambda event: wire_bytes.update({event["requestId"]: event["encodedDataLength"]})
    )
    devtools.on("Network.loadingFailed", on_failed)
    devtools.send("Network.enable")
    page.goto(url, wait_until="load")
    first = set(asked)  # later ones are the page refreshing itself
    for _ in range(FINISH_SECONDS * 50):
        if first <= wire_bytes.keys():
            break
        page.wait_for_timeout(20)
    missing = first - wire_bytes.keys()
    if missing:
        raise RuntimeError(f"{url}: {len(missing)} of {len(first)} requests did not finish in {FINISH_SECONDS} s")
    return FirstLoad(sum(wire_bytes[request] for request in first), len(first))


def axe_violations(context: BrowserContext, url: str) -> list[str]:
    """The rules this page breaks and how often. A fault planted afterwards must then be found, or BlindChecker."""
    page = context.new_page()
    answer = page.goto(url, wait_until="load")
    if answer is None or answer.status != 200 or page.url != url:
        raise RuntimeError(f"expected status 200 at {url}, found {answer and answer.status} at {page.url}")
    found = _broken_rules(page)
    page.evaluate(PLANTED)
    if _broken_rules(page).get(PLANTED_RULE, 0) <= found.get(PLANTED_RULE, 0):
        raise BlindChecker(f"{url}: axe did not see an image without alternative text")
    return [f"{rule} × {count}" for rule, count in found.items()]


def _broken_rules(page: Page) -> dict[str, int]:
    # Axe evaluates its script rather than adding it as an element, which our Content-Security-Policy would refuse.
    response = Axe().run(page).response
    return {violation["id"]: len(violation["nodes"]) for violation in response["violations"]}
