"""The tile of 24 hours and the first form on both homes, in a real browser: they move, age and say what happened."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.common.health import http_get
from controlplane.dashboard.frame.tiles import fact, tile
from tests.e2e.organisations import Own, ask, organisation_of_its_own, post
from tests.e2e.pages import Look, expect, leave, sign_in, sign_in_as, wait_past_stale
from tests.e2e.stack import Stack, is_fleet_well
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

AGES = {"measured": "goes on"}  # between two looks
PARTS = ("rate", "none", "arrow", "way", "points", "against", "measured", "requests", "noun", "prompt", "saved")
PROMPT = "Which of these four words is a colour, and which of them is none? " * 12


@pytest.fixture(scope="module")
def own(stack: Stack) -> Iterator[Own]:
    """What is counted and published here is nothing that others should find."""
    with organisation_of_its_own(stack) as own:
        yield own


@dataclass(frozen=True, slots=True)
class Counted:
    prompt: int
    cached: int


def chat(stack: Stack, own: Own, times: int) -> Counted:
    """What the headers of so many answers say together."""
    prompt = cached = 0
    for _ in range(times):
        status, headers = ask(stack, own.key, PROMPT)
        assert status == 200
        prompt += int(str(headers["x-luminet-prompt-tokens"]))
        cached += int(str(headers["x-luminet-cached-tokens"]))
    return Counted(prompt, cached)


def sign_in_as_member(page: Page, own: Own) -> None:
    sign_in_as(page, own.email, own.password)
    expect(page.locator("[data-tile]").first).to_be_visible()


def part(page: Page, name: str) -> Locator:
    return page.locator(f"[data-tile-{name}]").first


def in_force(page: Page) -> Locator:
    """Where a namespace's policy is told, and changed; its numbers stand elsewhere on the page."""
    return page.get_by_role("region", name="In force now")


def texts(page: Page) -> dict[str, str]:
    return {name: part(page, name).text_content() or "" for name in PARTS}


@pytest.fixture
def plain(browser: Browser, stack: Stack) -> Iterator[Page]:
    """A browser without JavaScript."""
    context = browser.new_context(base_url=stack.web, java_script_enabled=False)
    yield context.new_page()
    context.close()


def number_of(page: Page, name: str) -> int:
    return int((part(page, name).text_content() or "").replace(",", ""))


def test_a_customers_tile_moves_by_itself_and_says_what_a_page_without_scripts_says(
    page: Page, plain: Page, stack: Stack, own: Own
) -> None:
    sign_in_as_member(page, own)
    expect(page.locator(".live")).to_have_text(re.compile("Live"))
    before = number_of(page, "requests"), number_of(page, "saved")
    counted = chat(stack, own, 3)
    assert counted.cached > 0
    expect(part(page, "requests")).to_have_text(f"{before[0] + 3:,}")
    expect(part(page, "saved")).to_have_text(f"{before[1] + counted.cached:,}")
    expect(part(page, "next")).to_be_hidden()
    sign_in_as_member(plain, own)
    assert texts(page) | AGES == texts(plain) | AGES
    assert re.fullmatch(r"as of \d\d:\d\d:\d\d UTC", part(plain, "age").text_content() or "")


def test_the_operators_tile_moves_with_any_organisation(page: Page, stack: Stack, own: Own) -> None:
    sign_in(page, stack)
    expect(page.locator(".live")).to_have_text(re.compile("Live"))
    before = number_of(page, "prompt")
    expect(part(page, "prompt")).to_have_text(f"{before + chat(stack, own, 1).prompt:,}")


def told(seq: int, **numbers: Any) -> dict[str, Any]:
    whole = {"covered_seconds": 86_400, "requests": 50, "prompt_tokens": 3, "cached_tokens": 2, "hit_ratio": 0.5}
    whole["covered_seconds_before"] = 86_400
    fixed = {"type": "stats", "seq": seq, "as_of": "2026-01-01T00:00:00Z", "window_seconds": 86_400}
    return {**fixed, **whole, "hit_ratio_before": None, "saved_tokens": 2, **numbers}


MESSAGES = [
    told(1, requests=0, prompt_tokens=0, cached_tokens=0, hit_ratio=None, covered_seconds=0),
    told(2, cached_tokens=9_999, prompt_tokens=10_000, covered_seconds=42),
    told(3, cached_tokens=41_206_848, prompt_tokens=52_559_730, saved_tokens=41_206_848, covered_seconds=7_561),
    told(4, hit_ratio=0.784, hit_ratio_before=0.723, covered_seconds=86_399),
    told(5, hit_ratio=0.5, hit_ratio_before=0.6234, requests=1_234_567),
    told(6, hit_ratio=0.5, hit_ratio_before=0.5004),
    told(7, cached_tokens=7, prompt_tokens=7, hit_ratio_before=0.0, hit_ratio=1.0),
    told(8, hit_ratio=0.8, hit_ratio_before=0.1, covered_seconds_before=180),
    told(9, requests=1, hit_ratio=0.8, hit_ratio_before=0.1),
    told(10, requests=19),
    told(11, requests=40, prompt_tokens=0, cached_tokens=0, hit_ratio=None),
]


def test_scripts_and_server_have_the_same_words_for_every_message(page: Page, own: Own) -> None:
    sign_in_as_member(page, own)
    expect(page.locator(".live")).to_have_text(re.compile("Live"))
    path = page.locator("[data-tile]").first.get_attribute("data-tile") or ""
    for message in MESSAGES:
        later = {**message, "seq": 10**15 + message["seq"], "path": path}
        tell(page, later)
        assert texts(page) == words(message)
        if found := fact(message):
            expect(page.get_by_role("heading", level=1)).to_have_text(found)
            expect(page).to_have_title(f"{found} · Luminet")


def tell(page: Page, message: Mapping[str, Any]) -> None:
    page.evaluate("told => document.body.dispatchEvent(new CustomEvent('luminet:stats', {detail: told}))", message)


def words(message: Mapping[str, Any]) -> dict[str, str]:
    found = tile(message, slug="", title="", path="")
    one = found.change
    shown = found.rate, "no value yet" if found.is_empty else "", one.arrow, one.way, one.points, one.words
    counted = found.measured, found.requests, found.noun, found.prompt_tokens, found.saved_tokens
    return dict(zip(PARTS, (*shown, *counted), strict=True))


def test_a_tile_grows_stale_when_its_socket_falls_silent_and_recovers(page: Page, stack: Stack, own: Own) -> None:
    page.clock.install()
    sign_in_as_member(page, own)
    expect(page.locator(".live")).to_have_text(re.compile("Live"))
    expect(part(page, "age")).to_have_text(re.compile(r"^\d+ s ago$"))
    web = stack.status()["web"]["pid"]
    os.kill(web, signal.SIGSTOP)
    try:
        wait_past_stale(page)
        expect(part(page, "age")).to_have_text(re.compile(r"^\d+ s ago, stale$"))
        expect(page.locator("[data-tile]").first).to_have_class(re.compile("is-stale"))
    finally:
        os.kill(web, signal.SIGCONT)
    expect(part(page, "age")).to_have_text(re.compile(r"^\d+ s ago$"))
    wait_until(lambda: is_fleet_well(stack), "a fleet that has found its control plane again")


# On the page, wherever the window has been scrolled to.
PLACE = "(one) => { const box = one.getBoundingClientRect(); return [box.x, box.y + scrollY, box.width, box.height]; }"


def test_opening_a_form_moves_nothing_below_it(page: Page, own: Own) -> None:
    sign_in_as_member(page, own)
    last = in_force(page).get_by_role("table")
    before = last.evaluate(PLACE)
    in_force(page).get_by_role("row", name=re.compile("^support-bot")).get_by_text("Change").click()
    expect(page.get_by_role("button", name="Publish").locator("visible=true")).to_be_visible()
    assert last.evaluate(PLACE) == before


SOCKET = """
    const Real = window.WebSocket;
    window.WebSocket = class extends Real {
      addEventListener(type, listen) {
        if (type !== "message") return super.addEventListener(type, listen);
        super.addEventListener(type, (event) => { if (!window.silent?.(JSON.parse(event.data))) listen(event); });
      }
    };
"""


def test_the_fleets_tile_grows_stale_when_its_numbers_do_not_come_though_pulses_do(page: Page, stack: Stack) -> None:
    """A count that fails, or a database that is not listened to: the socket is alive, and the number is not."""
    page.add_init_script(SOCKET)
    page.clock.install()
    sign_in(page, stack)
    expect(page.locator(".live")).to_have_text(re.compile("Live"))
    newest = page.locator("[data-rows] tr").first  # of the pulses, whose count stands still after ten minutes
    pulse = newest.text_content() or ""
    page.evaluate("() => { window.silent = (message) => message.type !== 'pulse'; }")
    wait_past_stale(page)
    expect(part(page, "age")).to_have_text(re.compile(r"^\d+ s ago, stale$"))
    expect(page.locator("[data-tile]")).to_have_class(re.compile("is-stale"))
    expect(newest).not_to_have_text(pulse)
    expect(page.locator(".live")).to_have_text(re.compile("Stale"))
    page.evaluate("window.silent = null")
    expect(part(page, "age")).to_have_text(re.compile(r"^\d+ s ago$"))


def test_a_silence_of_one_organisation_turns_no_other_tile(page: Page, own: Own) -> None:
    sign_in_as_member(page, own)
    expect(page.locator(".live")).to_have_text(re.compile("Live"))
    fresh = age_colour(page)
    page.evaluate("document.body.classList.add('is-stale')")  # as another's socket does
    assert age_colour(page) == fresh
    page.locator("[data-tile]").first.evaluate("tile => tile.classList.add('is-stale')")
    assert age_colour(page) != fresh


def age_colour(page: Page) -> str:
    found: str = page.evaluate("getComputedStyle(document.querySelector('.tile__age')).color")
    return found


def test_a_customer_changes_a_ttl_and_is_told_what_became_of_it(page: Page, own: Own) -> None:
    sign_in_as_member(page, own)
    row = in_force(page).get_by_role("row", name=re.compile("^support-bot"))
    row.get_by_text("Change").click()
    minutes = int(row.get_by_label("New TTL").input_value()) + 1
    row.get_by_label("New TTL").fill(str(minutes))
    row.get_by_label("Unit").select_option("min")
    row.get_by_label("Why").fill("Chats pause longer")
    row.get_by_role("button", name="Publish").click()
    expect(page.get_by_role("status").filter(has_text=f"{own.slug}/support-bot: revision")).to_be_visible()
    expect(row).to_contain_text(f"{minutes} min sliding")
    row.get_by_text("Change").click()
    row.get_by_label("New TTL").fill("8")
    row.get_by_label("Unit").select_option("d")
    row.get_by_role("button", name="Publish").click()
    expect(page.get_by_role("alert")).to_contain_text("Not published: 8 d is more than 7 d, the most there is.")
    expect(page).to_have_title(re.compile("^Error: "))
    path = page.locator("[data-tile]").first.get_attribute("data-tile") or ""
    tell(page, {**told(10**15, requests=1_234), "path": path})  # what moves meanwhile takes it from nobody
    expect(page).to_have_title(re.compile("^Error: Hit rate"))
    expect(row.get_by_label("New TTL")).to_be_focused()
    expect(row.get_by_label("New TTL")).to_be_in_viewport()  # the page opens where it was refused
    expect(row.get_by_label("New TTL")).to_have_value("8")


@pytest.fixture
def default(stack: Stack) -> Iterator[None]:
    """The fleet's, which is in force again afterwards."""
    before = fleet_revision(stack)
    yield
    headers = {"if-match": f'"{fleet_revision(stack)}"'}
    post(stack, "/policy/rollback", {"revision": before}, **headers)


def fleet_revision(stack: Stack) -> int:
    answered = http_get(f"{stack.web}/api/v1/policy", bearer=stack.demo["operator"]["token"])
    return int(json.loads(answered)["revision"])


@pytest.mark.usefixtures("default")
def test_an_operator_changes_the_fleets_default_without_scripts(plain: Page, stack: Stack) -> None:
    sign_in(plain, stack)
    plain.locator("details.edit > summary").first.click()
    plain.get_by_label("New TTL").fill("6")
    plain.get_by_label("Unit").select_option("min")
    plain.get_by_role("button", name="Publish").click()
    expect(plain.get_by_role("heading", name="Blocks live 6 min sliding by default")).to_be_visible()
    expect(plain.get_by_role("status").filter(has_text="The fleet’s default: revision")).to_be_visible()


def test_both_homes_are_accessible_and_fit(look: Look, stack: Stack, own: Own) -> None:
    page, at = look
    sign_in_as_member(page, own)
    expect(page.locator(".live")).to_have_text(re.compile("Live"))
    at("home-of-a-customer")
    row = in_force(page).get_by_role("row", name=re.compile("^support-bot"))
    row.get_by_text("Change").click()
    row.get_by_label("New TTL").fill("8")
    row.get_by_label("Unit").select_option("d")
    row.get_by_role("button", name="Publish").click()
    expect(page.get_by_role("alert")).to_be_visible()
    expect(row.get_by_label("New TTL")).to_be_in_viewport()
    at("home-of-a-customer-refused")
    leave(page)
    sign_in(page, stack)
    expect(page.locator(".live")).to_have_text(re.compile("Live"))
    page.locator("details.edit > summary").first.click()
    at("home-of-an-operator")
