"""From a leak to its alert: a real engine that mixes two tenants up, a gateway's canary, the agents' door, alerts."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from django.db.models import F
from django.utils import timezone

from controlplane.alerts.evaluating import alerts_evaluate, built_in_rules_ensure
from controlplane.alerts.models import Alert
from controlplane.fleet.canaries import WINDOW
from controlplane.fleet.keys import identity_secret
from controlplane.fleet.models import Agent, CanaryMinute
from controlplane.rollouts.planner import plan_carry_out
from controlplane.rollouts.serving import snapshot_for
from engine_agent.contracts.protocol import Snapshot, snapshot_decode
from engine_agent.contracts.wire import Report
from engine_agent.gateway.canary import watch
from engine_agent.gateway.canary.watch import Canary
from engine_agent.gateway.held import Held
from engine_agent.gateway.looking import session_open
from engine_agent.gateway.tables import tables_read
from tests.database.factories import make_agent
from tests.engines.leaking import LEAK, LEAKED, PROGRAM
from tests.engines.processes import Engine, engine, state_folder
from tests.fleet.doors import Sender, sender
from tests.integration.gateway_fleet import told_as
from tests.web.api import Api, make_organisation, said

pytestmark = pytest.mark.django_db(transaction=True)
AGENT, GATEWAY = "agent-1", "gateway-1"
PATIENCE_SECONDS = 90
CANARY_SECONDS = TELL_SECONDS = 0.5


@pytest.fixture(autouse=True)
async def _connections_end(transactional_db: None) -> AsyncIterator[None]:
    """Those that tests open in asgiref's thread."""
    yield
    await sync_to_async(lambda: connection.close())()


@dataclass(frozen=True, slots=True)
class Leaking:
    """An engine of the fleet, and the folder by which its fault is switched."""

    engine: Engine
    folder: Path

    def leak(self, *, does: bool) -> None:
        (self.folder / LEAK).touch() if does else (self.folder / LEAK).unlink()

    @property
    def leaked(self) -> int:
        """How often its fault has happened."""
        path = self.folder / LEAKED
        return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
def leaking(transactional_db: None) -> Iterator[Leaking]:
    with state_folder() as folder:
        folder.mkdir()
        secret = folder / "identity-secret"
        secret.write_text(base64.b64encode(identity_secret(AGENT, 1)).decode())
        options = ("--identity-secret-file", str(secret), "--agent-id", AGENT)
        with engine(*options, state=folder, program=(PROGRAM, str(folder))) as running:
            yield Leaking(running, folder)


def snapshots(port: int) -> tuple[Snapshot, Snapshot]:
    """What the control plane has the engine and the gateway hold."""
    make_organisation("acme")
    model = {"name": "demo", "revision": "r1", "kv_dtypes": ["bf16", "fp8"], "context_tokens": 2048}
    agent = make_agent(AGENT, address=f"http://127.0.0.1:{port}", models=[model])
    assert Agent.objects.get(pk=agent.pk).key_number == 1
    plan_carry_out(now=timezone.now())
    return snapshot_decode(snapshot_for(AGENT).body), snapshot_decode(snapshot_for(GATEWAY).body)


def firing(now: datetime) -> list[str]:
    alerts_evaluate(now=now)
    found = Alert.objects.filter(state="firing", agent=AGENT, built_in__startswith="isolation")
    return sorted(found.values_list("built_in", flat=True))


def an_hour_passes() -> None:
    """For what was found so far."""
    CanaryMinute.objects.update(minute=F("minute") - WINDOW - timedelta(minutes=1))


class Site:
    """A gateway's canary at work, which tells the control plane by its door."""

    def __init__(self, leaking: Leaking, gateway: Sender, operator: Api) -> None:
        self.leaking, self._gateway, self._operator = leaking, gateway, operator
        self.held = Held()
        self.canary = Canary(
            self.held,
            seconds=CANARY_SECONDS,
            now=time.time,
            tell=self._tell,
            may_tell=lambda: True,
            own=GATEWAY,
        )

    async def _tell(self, reports: Sequence[Report]) -> None:
        assert (await self._gateway.report(*reports)).status == 200

    async def isolation(self) -> Any:
        return said(await sync_to_async(self._operator.get)(f"/fleet/agents/{AGENT}"))["isolation"]

    async def until(self, check: Callable[[Any], bool]) -> Any:
        """How isolated the engine is, when that is so."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not check(found := await self.isolation()):  # noqa: ASYNC110 (it is in the database)
                await asyncio.sleep(0.1)
        return found

    async def firing(self, *, later: float = 0.0) -> list[str]:
        return await sync_to_async(firing)(timezone.now() + timedelta(seconds=later))


@pytest.fixture
async def site(leaking: Leaking, operator: Api, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.setattr(watch, "TELL_SECONDS", TELL_SECONDS)
    gateway = await sync_to_async(sender)(GATEWAY, kind="gateway")
    found = Site(leaking, gateway, operator)
    engines, gateways = await sync_to_async(snapshots)(leaking.engine.port)
    assert leaking.engine.admin("POST", "/apply", told_as(engines)).status == 200
    found.held.hold(tables_read(gateways, found.held.tables))
    await sync_to_async(built_in_rules_ensure)(now=timezone.now())
    async with session_open() as session:
        running = asyncio.create_task(found.canary.run(session))
        yield found
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_leak_fires_its_alert_which_ends_an_hour_after_the_engine_is_well_again(site: Site) -> None:
    leaking = site.leaking
    await site.until(lambda found: found["rounds"]["isolated"] >= 2)
    assert (await site.firing(), leaking.leaked) == ([], 0)

    leaking.leak(does=True)
    broken = await site.until(lambda found: found["rounds"]["leaked"] >= 1)
    assert leaking.leaked >= 1, "the fault happened"
    assert broken["state"] == "broken"
    assert "of another organisation's prompt were cached" in broken["last_failure"]
    assert await site.firing() == ["isolation_failed"]

    leaking.leak(does=False)
    await site.until(lambda found: found["rounds"]["isolated"] >= broken["rounds"]["isolated"] + 3)
    assert await site.firing() == ["isolation_failed"], "a leak counts for an hour"

    await sync_to_async(an_hour_passes)()
    well = await site.until(lambda found: found["rounds"]["isolated"] >= 1)
    assert (well["state"], well["rounds"]["leaked"]) == ("isolated", 0)
    assert await site.firing() == ["isolation_failed"], "not over before it was well for a minute"
    assert [await site.firing(later=seconds) for seconds in (30, 61)][-1] == []
