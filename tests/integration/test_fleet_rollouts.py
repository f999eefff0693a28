"""Rollouts on a running fleet: simulated agents whose hit ratio follows from the policies they hold, all else real."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.bench.pages import NotAnswered
from tests.fleet.fleets import Fleet, fleet_running
from tests.support.waiting import wait_until

AGENTS = 4
PATH = "/orgs/acme/policy"
CANARY = {"strategy": "canary", "steps": [50, 100], "bake_seconds": 8, "guards": {"min_requests": 20}}
ENDED = ("done", "rolled_back", "aborted", "superseded")
# Why a rollout pauses where agents are heard too seldom to judge by: no agent does badly then, the machine is busy.
UNSURE = ("Too little evidence", "No fresh news", "The integrity check was not answered")
END_SECONDS = 300.0


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with fleet_running() as running:
        running.ask("POST", "/orgs", {"slug": "acme", "name": "Acme"})
        part = running.simulate(AGENTS)
        try:
            running.agents_wait(AGENTS)
            yield running
        finally:
            part.stop()


def publish(fleet: Fleet, rollout: Any = None, **policy: Any) -> Any:
    """The rollout, as it began."""
    return look(fleet, fleet.ask("PUT", PATH, {"policy": policy, "rollout": rollout})["rollout"])


def look(fleet: Fleet, rollout: str) -> Any:
    return fleet.ask("GET", f"/rollouts/{rollout}")


def ended(fleet: Fleet, rollout: Any) -> Any:
    """Resumed as often as it is unsure: its bake then begins anew, with what was counted so far."""

    def over() -> Any:
        found = look(fleet, rollout["id"])
        if found["state"] == "paused" and found["why"].startswith(UNSURE):
            with suppress(NotAnswered):  # it went back meanwhile: paused, it is watched on
                fleet.ask("POST", f"/rollouts/{rollout['id']}/resume")
            return None
        return found if found["state"] in (*ENDED, "paused") else None

    return wait_until(over, f"the end of {look(fleet, rollout['id'])}\n{fleet.said()}", seconds=END_SECONDS)


def in_force(fleet: Fleet) -> Any:
    return fleet.ask("GET", PATH)["policy"]


def settled(fleet: Fleet, **policy: Any) -> None:
    """Everybody holds this, and counts under it."""
    assert ended(fleet, publish(fleet, **policy))["state"] == "done"


def test_a_policy_that_harms_is_taken_back_by_itself_with_the_numbers(fleet: Fleet) -> None:
    settled(fleet, ttl_seconds=600)
    rollout = publish(fleet, CANARY, ttl_seconds=5)
    assert [one["reached"] for one in rollout["agents"]].count(True) == AGENTS // 2
    back = ended(fleet, rollout)
    assert back["state"] == "rolled_back"
    assert "hit ratio" in back["why"]
    assert back["changed"]["hit_ratio"] < back["unchanged"]["hit_ratio"] - 0.05
    assert in_force(fleet) == {"ttl_seconds": 600}
    onward = fleet.ask("GET", "/rollouts?place=acme&limit=1")["items"][0]
    assert onward["revision"] == back["revision"] + 1
    assert ended(fleet, onward)["state"] == "done"
    fleet.agents_wait(AGENTS)
    trail = fleet.ask("GET", "/audit?limit=20")["items"]
    (record,) = [one for one in trail if one["verb"] == "rollout.roll-back"]
    assert [one["verdict"] for one in record["after"]["numbers"]].count("breached") >= 1


def test_a_policy_that_does_no_harm_comes_to_everybody(fleet: Fleet) -> None:
    settled(fleet, ttl_seconds=600)
    done = ended(fleet, publish(fleet, CANARY, ttl_seconds=610))
    assert (done["state"], done["step"]) == ("done", 1), done
    assert {one["verdict"] for one in done["bakes"][0]["findings"]} == {"kept"}
    assert all(one["acknowledged"] for one in done["agents"])
    assert in_force(fleet) == {"ttl_seconds": 610}


def test_another_format_is_cold_and_not_taken_back_for_that(fleet: Fleet) -> None:
    settled(fleet, ttl_seconds=600)
    for kv_dtype in ("bf16", "int8"):
        override = {
            "model": "simulated",
            "revision": "1",
            "backend": "simulated",
            "kv_dtype": kv_dtype,
            "note": "A test",
        }
        fleet.ask("POST", "/quality/override", override)
    rollout = publish(fleet, CANARY, ttl_seconds=600, kv_dtype="int8")
    done = ended(fleet, rollout)
    assert done["state"] == "done", done
