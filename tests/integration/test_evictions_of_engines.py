"""From real engines and a real gateway to the page: a flood shows as who flooded and who gave way."""

import html
import json
import re
from collections.abc import Iterator

import httpx
import pytest

from tests.fleet.fleets import Fleet, fleet_running, inside
from tests.support.waiting import wait_until
from tests.usage.chats import Chat, Customer, Door
from tests.usage.fleets import MODEL, customer, engine_agent, gateway, organisation_make
from tests.usage.recount import Recount

PATH = "/orgs/acme/namespaces/default"


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with fleet_running() as running:
        yield running


def chat(of: Customer, number: int) -> Chat:
    text = f"{number} times the sea was calm and the ship sailed on through the night. " * 12
    return Chat(of, "whole", [{"role": "user", "content": text}], max_tokens=1)


def part(fleet: Fleet, path: str) -> str:
    """Of a page, as an operator sees it: whole pages want static files, which a fleet of tests has not."""
    answer = httpx.get(f"{fleet.web}{path}", cookies=signed_in(fleet), timeout=30)
    assert answer.status_code == 200
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", answer.text).split()))


def signed_in(fleet: Fleet) -> dict[str, str]:
    return dict(json.loads(inside(fleet, "tests.usage.inside:operator_session")))


def test_a_flood_shows_as_the_pair_of_who_flooded_and_who_gave_way(fleet: Fleet) -> None:
    for slug in ("acme", "globex"):
        organisation_make(fleet, slug)
    victim, flooder = customer(fleet, "acme"), customer(fleet, "globex")
    with engine_agent(fleet, "engine-1", "--pool", "8MiB"), gateway(fleet) as (_, url):
        door = Door(url, Recount())
        wait_until(lambda: door.serves(MODEL, victim), "a model at the gateway")
        for number in range(12):
            door.ask(chat(victim, number))

        def pair() -> dict[str, object] | None:
            door.ask(chat(flooder, next(numbers)))
            found = fleet.ask("GET", "/fleet/evictions")["pairs"]
            return next((one for one in found if one["victim"] == "acme/default"), None)

        numbers = iter(range(1_000, 100_000))
        found = wait_until(pair, "the pair")
        assert (found["by"], found["cause"]) == ("globex/default", "pressure")
        told = part(fleet, f"{PATH}/evictions")
        assert "globex/default evicted most of default: " in told
        assert re.search(r"[\d,]+ blocks? gave way to fleet pressure", told)
        assert re.search(r"globex/default evicted acme/default most: [\d,]+ block", part(fleet, "/overview/now"))
        pool = part(fleet, "/fleet/agents/engine-1/now")
        assert re.search(r"globex/default [\d.]+ [KM]iB [\d.]+ % bf16", pool)
