"""A pin says why it is not there, and what cannot be is not tried all the time."""

from collections import UserList
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine_agent.contracts.protocol import Snapshot
from engine_agent.engine.warming import LOOK_SECONDS, PATIENCE_SECONDS
from tests.engines.driving import Driven, drive, make_prompt
from tests.engines.snapshots import make_snapshot

PAST, FUTURE = "2020-01-31T23:59:59Z", "2120-01-31T23:59:59Z"


class _Content(UserList[int]):
    """Knows how often it was read through."""

    reads = 0

    def __iter__(self) -> Iterator[int]:
        self.reads += 1
        return iter(self.data)


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def look(self, driven: Driven, seconds: float) -> None:
        """So many seconds of an engine with nothing to do."""
        until = self.now + seconds
        while self.now < until:
            self.now += LOOK_SECONDS
            driven.engine.tick()


def _pinning(*pins: str, expires_at: str | None = None, **policy: Any) -> Snapshot:
    found = make_snapshot({"one": {"pin_share": 0.5} | policy}, pins=dict.fromkeys(pins, "one"))
    ends = {f"pin/{pin}": {**found.entries[f"pin/{pin}"], "expires_at": expires_at} for pin in pins}
    return found.replaced(put=ends)


def _state(driven: Driven, pin_id: str = "p") -> str:
    (found,) = [str(pin["state"]) for pin in driven.engine.pins.status() if pin["id"] == pin_id]
    return found


@pytest.mark.parametrize(
    ("snapshot", "tokens", "state"),
    [
        (_pinning("p", pin_share=0.01), 200, "over_budget"),
        (_pinning("p", expires_at=PAST), 200, "expired"),
        (_pinning("p", prefix_caching=False), 200, "disabled"),
        (_pinning("p"), 15, "refused"),  # no full block
    ],
)
def test_a_pin_that_cannot_be_says_what_stands_in_its_way(
    llama: Path, snapshot: Snapshot, tokens: int, state: str
) -> None:
    driven = drive(llama, snapshot=snapshot)
    driven.engine.pins.set_content("p", make_prompt(tokens))
    (pin,) = driven.engine.pins.status()
    assert pin["state"] == state
    assert pin["problem"]
    assert driven.engine.manager.pins("one") == []


@pytest.mark.parametrize(
    ("snapshot", "reads"),
    [
        (_pinning("p", pin_share=0.01), (2, 3)),  # room may be found, so it is tried now and then
        (_pinning("p", expires_at=FUTURE, pin_share=0.0), (2, 3)),
        (_pinning("p", expires_at=PAST), (0,)),
        (_pinning("p", prefix_caching=False), (0,)),
    ],
)
def test_a_content_is_not_hashed_at_every_look(llama: Path, snapshot: Snapshot, reads: tuple[int, ...]) -> None:
    clock, content = _Clock(), _Content(make_prompt(200))
    driven = drive(llama, snapshot=snapshot, clock=clock)
    driven.engine.pins.set_content("p", content)
    clock.look(driven, 2 * PATIENCE_SECONDS)
    assert content.reads in reads


def test_a_pin_that_comes_back_without_its_content_waits_for_that(llama: Path) -> None:
    small = _pinning("p", pin_share=0.01)
    driven = drive(llama, snapshot=small)
    driven.engine.pins.set_content("p", make_prompt(200))
    assert _state(driven) == "over_budget"
    driven.engine.apply(make_snapshot({"one": {"pin_share": 0.01}}))
    driven.engine.apply(small)
    (pin,) = driven.engine.pins.status()
    assert (pin["state"], pin["problem"]) == ("content_missing", "")


def test_what_stood_in_a_pins_way_is_looked_at_again_when_it_changes(llama: Path) -> None:
    driven = drive(llama, snapshot=_pinning("p", prefix_caching=False))
    driven.engine.pins.set_content("p", make_prompt(200))
    for snapshot, state in (
        (_pinning("p"), "active"),
        (_pinning("p", expires_at=PAST), "expired"),
        (_pinning("p", expires_at=FUTURE), "active"),
    ):
        driven.engine.apply(snapshot)
        assert _state(driven) == state


def test_a_pin_gets_the_room_of_one_that_goes_at_once_and_of_one_that_ends_before_long(llama: Path) -> None:
    clock = _Clock()
    driven = drive(llama, snapshot=_pinning("p", "q", pin_share=0.04), clock=clock)  # 16 pages
    for pin_id, seed in (("p", 1), ("q", 2)):
        driven.engine.pins.set_content(pin_id, make_prompt(200, seed=seed))
    assert [_state(driven, pin_id) for pin_id in "pq"] == ["active", "over_budget"]
    driven.engine.manager.unpin("one", "p")  # as when its time is over
    clock.look(driven, PATIENCE_SECONDS)
    assert [_state(driven, pin_id) for pin_id in "pq"] == ["expired", "active"]
    driven.engine.apply(_pinning("q", "r", pin_share=0.04))
    driven.engine.pins.set_content("r", make_prompt(200, seed=3))
    assert _state(driven, "r") == "over_budget"
    driven.engine.apply(_pinning("r", pin_share=0.04))
    assert _state(driven, "r") == "active"
