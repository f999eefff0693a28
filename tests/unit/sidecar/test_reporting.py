"""What becomes of facts when the control plane does not understand what comes with them."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from engine_agent.sidecar.clock import ControlPlaneClock
from engine_agent.sidecar.errors import ControlPlaneRefused
from engine_agent.sidecar.events import Answered, SendFailed
from engine_agent.sidecar.holder import Holder
from engine_agent.sidecar.link import Link
from engine_agent.sidecar.metrics import SidecarMetrics
from engine_agent.sidecar.reporting import Reporter
from engine_agent.sidecar.spool import Spool, SpoolFile
from engine_agent.sidecar.state import Sidecar
from engine_agent.wire import Batch, Report, batch_decode


@dataclass
class Strict:
    """A control plane that refuses heartbeats, or one report."""

    refuses_heartbeats: bool = False
    refuses: str = ""
    taken: list[str] = field(default_factory=list)
    upto: int = 0
    clock: ControlPlaneClock = field(default_factory=ControlPlaneClock)

    async def report(self, message: bytes) -> dict[str, Any]:
        batch = batch_decode(message)
        names = [str(one.told["operation"]) for one in batch.reports]
        if self.refuses in names or (self.refuses_heartbeats and batch.heartbeat is not None):
            raise ControlPlaneRefused(400, "malformed", "is not a field we know")
        self.taken += names
        self.upto = _upto(batch, self.upto)
        return {"acknowledged": self.upto, "desired": None, "cadence_seconds": 0.5, "watch": []}


def _upto(batch: Batch, before: int) -> int:
    return max(before, batch.first + len(batch.reports) - 1)


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    found = Spool(SpoolFile(tmp_path / "spool"))
    found.tell([Report("receipt", {"operation": f"o{n}", "ok": True, "at": 1.0, "result": {}}) for n in range(3)])
    return found


def reporter(spool: Spool, plane: Strict) -> Reporter:
    return Reporter(Sidecar("a", boot="b"), spool, cast(Link, plane), cast(Holder, None), SidecarMetrics())


def test_a_heartbeat_that_is_not_understood_costs_no_fact(spool: Spool) -> None:
    plane = Strict(refuses_heartbeats=True)
    assert isinstance(asyncio.run(reporter(spool, plane).send()), Answered)
    assert (plane.taken, len(spool)) == (["o0", "o1", "o2"], 0)


def test_a_report_that_is_not_understood_is_given_up_alone(spool: Spool) -> None:
    plane = Strict(refuses="o1")
    sending = reporter(spool, plane)

    async def all_of_it() -> list[type]:
        return [type(await sending.send()) for _ in range(5)]

    assert asyncio.run(all_of_it()) == [SendFailed, Answered, SendFailed, SendFailed, Answered]
    assert (plane.taken, len(spool)) == (["o0", "o2"], 0)
