"""Pins' content: brought to whoever lacks it, and tried again where it was refused, but not at once."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from engine_agent.sidecar.holder import Holder, HolderRejected
from engine_agent.sidecar.pins import REFUSED_SECONDS, PinKeeper


@dataclass
class Lacking:
    """An engine that lacks one pin's content and, for now, does not take it."""

    is_refusing: bool = True
    offered: list[str] = field(default_factory=list)
    now: float = 0.0

    async def pins_wanted(self) -> Sequence[str]:
        if self.now < 0:
            raise HolderRejected("the admin face says no")
        return ["p1"]

    async def pin_content(self, pin_id: str, content: Any) -> None:
        self.offered.append(pin_id)
        if self.is_refusing:
            raise HolderRejected("not now")

    async def pin(self, pin_id: str) -> dict[str, object]:
        return {"kind": "prompt", "content": "x"}


def keeper(lacking: Lacking) -> PinKeeper:
    return PinKeeper(cast(Holder, lacking), lacking, clock=lambda: lacking.now)


def brought(keeper: PinKeeper, boot: str = "e1", *, again: bool = False) -> int:
    return asyncio.run(keeper.bring(boot, again=again))


def test_a_refused_pin_is_offered_again_after_a_while_to_a_new_engine_and_when_it_is_asked_for() -> None:
    lacking = Lacking()
    pins = keeper(lacking)
    assert brought(pins) == brought(pins) == 0
    assert len(lacking.offered) == 1, "not at once"
    brought(pins, again=True)
    assert len(lacking.offered) == 2
    lacking.now += REFUSED_SECONDS
    brought(pins)
    assert len(lacking.offered) == 3
    lacking.is_refusing = False
    assert brought(pins, "e2") == 1


def test_an_engine_that_does_not_say_what_it_lacks_is_asked_again_later() -> None:
    assert brought(keeper(Lacking(now=-1.0))) == 0
