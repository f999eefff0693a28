"""An agent's disk that is really full, under a real engine, its sidecar and a gateway."""

from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from tests.fleet.fleets import Fleet, fleet_running
from tests.support.small_disk import NoSmallDisk, small_disk
from tests.support.waiting import wait_until
from tests.usage.chats import Door, chats
from tests.usage.fleets import (
    MODEL,
    customer,
    engine_agent,
    engine_of,
    gateway,
    is_ready,
    naming,
    organisation_make,
    stored,
)
from tests.usage.recount import Recount, by_namespace, journals_kept, truth_of

AGENT = "engine-1"


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with fleet_running() as running:
        organisation_make(running, "acme")
        yield running


def test_an_agent_whose_disk_is_full_refuses_and_says_so_loses_nothing_and_goes_on_by_itself(fleet: Fleet) -> None:
    with ExitStack() as opened:
        try:
            disk = opened.enter_context(small_disk(fleet.config.home / AGENT, mebibytes=48))
        except NoSmallDisk as problem:
            pytest.skip(str(problem))
        kept = opened.enter_context(journals_kept(disk.root / "kept", disk.root))
        part, _ = opened.enter_context(engine_agent(fleet, AGENT, within=disk.within))
        _, url = opened.enter_context(gateway(fleet))
        asked_by = customer(fleet, "acme")
        door = Door(url, Recount())
        wait_until(lambda: door.serves(MODEL, asked_by), "a model at the gateway")
        door.burst(list(chats([asked_by], 12, seed=1)))
        engine = engine_of(part).pid

        disk.fill()
        before = len(door.recount.doubts)
        refusal = wait_until(lambda: refused(url, asked_by.key, door), "a refusal")
        assert refusal["code"] == "journal_full"
        assert "No space left on device" in refusal["message"]
        assert str(fleet.config.home) not in refusal["message"], "clients need not know where it is"
        wait_until(lambda: "No space left" in condition(fleet), "its condition to be shown")
        wait_until(lambda: is_alert(fleet), "an alert")
        door.burst(list(chats([asked_by], 10, seed=2, manners=("whole", "stream"))))
        assert len(door.recount.doubts) > before, "the fault: there is no room for one record more"
        fleet.ask("PUT", "/orgs/acme/policy", {"policy": {"kv_dtype": "bf16", "ttl_seconds": 77}})

        disk.free()
        wait_until(lambda: is_ready(fleet, AGENT) and not condition(fleet), "it to be well again, and in sync")
        assert engine_of(part).pid == engine, "nobody was started anew"
        answered = len(door.recount.answers)
        door.burst(list(chats([asked_by], 12, seed=3, manners=("whole", "stream"))))
        assert len(door.recount.answers) == answered + 12
        truth = by_namespace(truth_of(door.recount, kept.opened()).sums)
        with naming(lambda: (truth, stored(fleet))):
            wait_until(lambda: by_namespace(stored(fleet)) == truth, "rows as headers said")


def refused(url: str, key: str, door: Door) -> dict[str, str] | None:
    """The error of a request that got no answer; what is answered is counted by the door."""
    asked = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
    known = {"authorization": f"Bearer {key}", "x-request-id": f"probe-{len(door.recount.answers)}"}
    answer = httpx.post(f"{url}/v1/chat/completions", json=asked, headers=known, timeout=60)
    if answer.status_code == 200:
        door.recount.answered(known["x-request-id"], "acme", answer.headers)
        return None
    return dict(answer.json()["error"])


def condition(fleet: Fleet) -> str:
    found = fleet.ask("GET", f"/fleet/agents/{AGENT}")["conditions"].get("unwritable")
    return str(found["why"]) if found else ""


def is_alert(fleet: Fleet) -> bool:
    return any(one["metric"] == "disk_wait" for one in fleet.ask("GET", "/alerts?state=firing")["items"])
