"""What becomes of facts when the control plane does not understand what comes with them."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from engine_agent.contracts.wire import Batch, Report, batch_decode
from engine_agent.sidecar.clock import ControlPlaneClock
from engine_agent.sidecar.errors import ControlPlaneAway, ControlPlaneRefused
from engine_agent.sidecar.events import Answered, SendFailed
from engine_agent.sidecar.holder import Holder
from engine_agent.sidecar.link import Link
from engine_agent.sidecar.metrics import SidecarMetrics
from engine_agent.sidecar.reporting import Reporter, Stand
from engine_agent.sidecar.spool import Spool, SpoolFile
from engine_agent.sidecar.state import Sidecar


@dataclass
class Strict:
    """A control plane that refuses heartbeats, or one report."""

    refuses_heartbeats: bool = False
    refuses: str = ""
    refused_rows: list[dict[str, Any]] = field(default_factory=list)
    journal: dict[str, int] = field(default_factory=dict)
    away: ControlPlaneAway | None = None
    taken: list[str] = field(default_factory=list)
    upto: int = 0
    clock: ControlPlaneClock = field(default_factory=ControlPlaneClock)

    async def report(self, message: bytes) -> dict[str, Any]:
        if self.away is not None:
            raise self.away
        batch = batch_decode(message)
        names = [str(one.told["operation"]) for one in batch.reports]
        if self.refuses in names or (self.refuses_heartbeats and batch.heartbeat is not None):
            raise ControlPlaneRefused(400, "malformed", "is not a field we know")
        self.taken += names
        self.upto = _upto(batch, self.upto)
        told: dict[str, Any] = {"acknowledged": self.upto, "desired": None, "cadence_seconds": 0.5, "watch": []}
        told["journal"] = self.journal
        return {**told, "refused_rows": self.refused_rows} if self.refused_rows else told


def _upto(batch: Batch, before: int) -> int:
    return max(before, batch.first + len(batch.reports) - 1)


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    found = Spool(SpoolFile(tmp_path / "spool"))
    found.tell([Report("receipt", {"operation": f"o{n}", "ok": True, "at": 1.0, "result": {}}) for n in range(3)])
    return found


def reporter(spool: Spool, plane: Strict) -> Reporter:
    return reporter_of(spool, plane, SidecarMetrics())


def reporter_of(spool: Spool, plane: Strict, metrics: SidecarMetrics, stand: Stand | None = None) -> Reporter:
    return Reporter(Sidecar("a", boot="b"), spool, cast(Link, plane), cast(Holder, None), metrics, stand=stand)


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


def test_rows_that_were_refused_are_named_and_counted(spool: Spool, caplog: pytest.LogCaptureFixture) -> None:
    row = {"report": 3, "row": 7, "field": "minute", "problem": "is 49 hours old"}
    metrics = SidecarMetrics()
    asyncio.run(reporter_of(spool, Strict(refused_rows=[row] * 30), metrics).send())
    assert "report 3 row 7 field minute problem is 49 hours old" in caplog.text
    assert "and 10 more" in caplog.text
    assert "luminet_sidecar_refused_rows_total 30.0" in metrics.exposition().decode()


def test_how_long_to_wait_is_handed_on(spool: Spool) -> None:
    plane = Strict(away=ControlPlaneAway("too much at once", 17.0))
    assert asyncio.run(reporter(spool, plane).send()) == SendFailed("too much at once", wait_seconds=17.0)


def test_how_far_a_journal_is_counted_is_known_before_what_was_told_is_forgotten(spool: Spool) -> None:
    stood: list[tuple[str, int, int]] = []

    async def stand(boot: str, upto: int) -> None:
        stood.append((boot, upto, len(spool)))

    asyncio.run(reporter_of(spool, Strict(journal={"b1": 20}), SidecarMetrics(), stand).send())
    assert (stood, len(spool)) == ([("b1", 20, 3)], 0)


def test_where_that_cannot_be_written_down_nothing_is_forgotten(spool: Spool) -> None:
    async def stand(boot: str, upto: int) -> None:
        raise OSError("no room")

    asyncio.run(reporter_of(spool, Strict(journal={"b1": 20}), SidecarMetrics(), stand).send())
    assert len(spool) == 3
