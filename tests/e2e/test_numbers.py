"""The numbers of `make up`, as people and programs see them: to the token what responses said, and moving."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.organisations import demo_traffic_shown, demo_traffic_switch
from tests.e2e.pages import sign_in, sign_in_as_member
from tests.e2e.stack import Stack, luminet, new_home, running_fleet
from tests.support.waiting import wait_until
from tests.usage.chats import Customer, Door, chats
from tests.usage.recount import KeptJournals, Recount, Sum, journals_kept, sum_of, total, truth_of

if TYPE_CHECKING:
    from playwright.sync_api import Page

MODEL = "luminet-demo"
SHOWN_WITHIN_MS = 30_000
REQUESTS = "[data-tile-requests]"


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """One of its own: every engine that ever counted here still has its journal."""
    with new_home() as home, running_fleet(home, LUMINET_DEMO_TRAFFIC="1") as stack:
        yield stack


@pytest.fixture(scope="module")
def quiet(stack: Stack) -> Stack:
    """Nobody asks but these tests."""
    demo_traffic_switch(stack, is_on=False)
    wait_until(lambda: demo_traffic_shown(stack)["state"] == "paused", "paused", details=lambda: stack.said[-3000:])
    return stack


@pytest.fixture(scope="module")
def kept(quiet: Stack) -> Iterator[KeptJournals]:
    """The journals of both engines: whole, because nothing of a few MiB is cut."""
    with journals_kept(quiet.home / "kept-journals", quiet.home) as found:
        yield found


@pytest.fixture
def customers(quiet: Stack) -> list[Customer]:
    return [Customer(one["slug"], one["api_key"], "default") for one in quiet.demo["orgs"]]


@pytest.fixture
def door(quiet: Stack) -> Door:
    return Door(quiet.gateway, Recount())


def told(stack: Stack, path: str) -> Sum:
    return sum_in(answered(stack, path))


def told_by_key(stack: Stack, customer: Customer) -> Sum:
    """Of the key that this customer asks with, which is known by its beginning."""
    parts = answered(stack, f"/orgs/{customer.organisation}/stats")["by_key"]
    assert sum((sum_in(one) for one in parts), Sum()) == told(stack, f"/orgs/{customer.organisation}/stats")
    mine = [one for one in parts if one["prefix"] and customer.key.startswith(one["prefix"])]
    return sum((sum_in(one) for one in mine), Sum())


def sum_in(found: Any) -> Sum:
    return Sum(found["requests"], found["prompt_tokens"], found["cached_tokens"])


def answered(stack: Stack, path: str) -> Any:
    connection = HTTPConnection("127.0.0.1", stack.port, timeout=30)
    try:
        connection.request(
            "GET", f"/api/v1{path}?window=24h", headers={"authorization": f"Bearer {stack.demo['operator']['token']}"}
        )
        answer = connection.getresponse()
        found: Any = json.loads(answer.read())
        assert answer.status == 200, found
        return found
    finally:
        connection.close()


def journals_say(kept: KeptJournals, organisation: str | None = None) -> Sum:
    customers = (one for one in kept.opened() if one.kind == "customer")
    return sum((sum_of(one) for one in customers if organisation in (None, one.organisation)), Sum())


def test_the_rolling_24_hours_are_what_every_response_of_this_stack_said(
    quiet: Stack, kept: KeptJournals, door: Door, customers: list[Customer]
) -> None:
    """What was asked before we looked is in the journals; what we ask, in its headers too."""
    wait_until(lambda: told(quiet, "/fleet/stats") == journals_say(kept), "all that was asked before")
    before = {one.organisation: told(quiet, f"/orgs/{one.organisation}/stats") for one in customers}
    before_by_key = {one.organisation: told_by_key(quiet, one) for one in customers}
    ids = {one.request_id for one in kept.opened()}
    door.burst(list(chats(customers, 40, seed=8, model=MODEL)), at_once=4)
    wait_until(lambda: told(quiet, "/fleet/stats") == journals_say(kept), "all that was asked")
    truth = truth_of(door.recount, [one for one in kept.opened() if one.request_id not in ids])
    assert len(door.recount.answers) >= 20
    for organisation, was in before.items():
        assert told(quiet, f"/orgs/{organisation}/stats") == was + total(truth.sums, organisation)
        assert told(quiet, f"/orgs/{organisation}/stats") == journals_say(kept, organisation)
    for one in customers:
        was = before_by_key[one.organisation]
        assert told_by_key(quiet, one) == was + total(truth.sums, one.organisation), "each key has what it asked"


@pytest.mark.parametrize("role", ["member", "operator"])
def test_the_tile_of_an_open_page_moves_with_a_request(
    quiet: Stack, page: Page, door: Door, customers: list[Customer], role: str
) -> None:
    """Nobody reloads anything."""
    if role == "operator":
        sign_in(page, quiet)
    else:
        sign_in_as_member(page, quiet)
    page.wait_for_selector(".live:not(.live--off)", timeout=SHOWN_WITHIN_MS)
    marked = uuid.uuid4().hex
    page.evaluate("mark => { window.luminetMark = mark }", marked)
    for chat in chats(customers[:1], 3, seed=1, model=MODEL, manners=("stream",)):
        before = requests_shown(page)
        with door.open(chat):
            left = time.perf_counter()
            page.wait_for_function(MOVED, arg=[REQUESTS, before + 1], timeout=SHOWN_WITHIN_MS)
        print(f"{role}: the tile moved {time.perf_counter() - left:.2f} s after the headers were here")
    assert page.evaluate("window.luminetMark") == marked, "it is the page that was opened"


MOVED = """([selector, least]) => {
    const shown = document.querySelector(selector);
    return shown !== null && Number(shown.textContent.replace(/[^0-9]/g, "")) >= least;
}"""


def requests_shown(page: Page) -> int:
    return int(re.sub(r"\D", "", page.locator(REQUESTS).first.text_content() or "") or 0)


def test_the_tile_the_api_and_the_command_say_the_same(quiet: Stack, page: Page, customers: list[Customer]) -> None:
    organisation = customers[0].organisation
    sign_in_as_member(page, quiet)
    said = luminet("stats", organisation, "--json", home=quiet.home)
    assert said.returncode == 0, said.stderr
    found = told(quiet, f"/orgs/{organisation}/stats")
    assert json.loads(said.stdout)["requests"] == found.requests
    assert requests_shown(page) == found.requests
