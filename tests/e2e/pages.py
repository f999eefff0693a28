"""What browser tests do with a page: sign in, look for what is inaccessible, keep a picture for people."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tests.e2e.stack import CHECKOUT, Stack

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from playwright.sync_api import expect as expect
else:

    def expect(*asked: Any) -> Any:
        """Playwright's, which is imported when first asked for: collecting the tests needs no browser."""
        from playwright import sync_api

        return sync_api.expect(*asked)


SOON = 40_000  # milliseconds in which what takes moments is there, also on a machine that is busy with something else
STALE_AFTER_MS = 10_000  # static/luminet/live.js
SIZES = {"wide": (1440, 900), "narrow": (390, 844)}
PICTURES = CHECKOUT / ".luminet" / "pictures"
ARE_KEPT = "LUMINET_PICTURES" in os.environ
Scheme: TypeAlias = Literal["light", "dark"]
LOOKS: tuple[tuple[Scheme, str], ...] = (("light", "wide"), ("light", "narrow"), ("dark", "wide"), ("dark", "narrow"))
Look: TypeAlias = "tuple[Page, Callable[[str], None]]"


def sign_in_as(page: Page, email: str, password: str) -> None:
    """Until the page that answers has loaded: before its last style sheet has come, nothing is in its place."""
    page.goto("/sign-in")
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Password").fill(password)
    with page.expect_event("load"):
        page.get_by_role("button", name="Sign in").click()


def sign_in(page: Page, stack: Stack) -> None:
    """As the demo's operator."""
    sign_in_as(page, stack.demo["operator"]["email"], stack.demo["operator"]["password"])


def sign_in_as_member(page: Page, stack: Stack) -> None:
    """Of acme, as the demo has it."""
    member = stack.demo["orgs"][0]["member"]
    sign_in_as(page, member["email"], member["password"])


def leave(page: Page) -> None:
    """Signed out as far as the browser knows. No page is open then: one that is live would look for itself again."""
    page.goto("about:blank")
    page.context.clear_cookies()


def wait_past_stale(page: Page) -> None:
    """Of a page whose clock was installed before it was opened: it has heard nothing for longer than it bears."""
    page.clock.fast_forward(STALE_AFTER_MS + 1_000)


def violations(page: Page) -> list[str]:
    """What axe finds. A page that has it already, because it was looked at before, is not given it again."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(_axe_script())
    found: list[str] = page.evaluate(VIOLATIONS)
    return found


VIOLATIONS = """async () => {
    const { violations } = await axe.run({resultTypes: ["violations"]});
    return violations.flatMap(one => one.nodes.map(node => `${one.id}: ${node.html.slice(0, 120)}`));
}"""


@functools.cache
def _axe_script() -> str:
    from axe_playwright_python.sync_playwright import Axe

    return str(Axe().axe_script)


TWO_FRAMES = "() => new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(() => drawn(true))))"
TRANSITIONS_ENDED = """() => document.getAnimations().every(
    one => one.playState === "finished" || one.effect.getComputedTiming().endTime === Infinity
)"""


def look_of(page: Page, scheme: Scheme, size: str) -> None:
    """Show the page in that theme and that size, and wait until it is drawn so."""
    width, height = SIZES[size]
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": height})
    # Not `evaluate`, which has no timeout: a page that draws nothing would hold up the whole run.
    page.wait_for_function(TWO_FRAMES)
    page.wait_for_function(TRANSITIONS_ENDED, polling=50)  # half-way, colours are neither theme's


def looker(page: Page, looks: Sequence[tuple[Scheme, str]] = LOOKS) -> Callable[[str], None]:
    """Looks at a page under a name: accessible and no wider than its window in every look; a picture is kept if asked.

    The page is left in the first look.
    """
    if ARE_KEPT:
        PICTURES.mkdir(parents=True, exist_ok=True)

    def at(name: str) -> None:
        wrong: dict[str, list[str]] = {}
        for scheme, size in looks:
            look_of(page, scheme, size)
            if ARE_KEPT:
                page.screenshot(path=str(PICTURES / f"{name}-{scheme}-{size}.png"), full_page=True)
            wrong[f"{name}-{scheme}-{size}"] = violations(page)
            if not page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"):
                wrong[f"{name}-{scheme}-{size}"].append("wider than its window")
        look_of(page, *looks[0])
        found = {look: problems for look, problems in wrong.items() if problems}
        assert not found, found

    return at
