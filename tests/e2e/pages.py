"""What browser tests do with a page: sign in, look for what is inaccessible, keep a picture for people."""

from collections.abc import Callable

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.e2e.stack import CHECKOUT, Stack

SIZES = {"wide": (1440, 900), "narrow": (390, 844)}
PICTURES = CHECKOUT / ".luminet" / "pictures"
Look = tuple[Page, Callable[[str], None]]


def sign_in_as(page: Page, email: str, password: str) -> None:
    page.goto("/sign-in")
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()


def sign_in(page: Page, stack: Stack) -> None:
    """As the demo's operator."""
    sign_in_as(page, stack.demo["operator"]["email"], stack.demo["operator"]["password"])


def leave(page: Page) -> None:
    """Signed out as far as the browser knows. No page is open then: one that is live would look for itself again."""
    page.goto("about:blank")
    page.context.clear_cookies()


def violations(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {node['html'][:120]}" for one in found for node in one["nodes"]]


def looker(page: Page, suffix: str) -> Callable[[str], None]:
    """Looks at a page under a name: accessible, no wider than its window, and kept as a picture."""
    PICTURES.mkdir(parents=True, exist_ok=True)

    def at(name: str) -> None:
        page.screenshot(path=str(PICTURES / f"{name}-{suffix}.png"), full_page=True)
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")

    return at
