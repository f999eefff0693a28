"""The control plane's secrets replaced while engines run: they hold what they are to hold, and need no restart."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings
from django.utils import timezone

from controlplane.rollouts import desired
from controlplane.rollouts.canaries import EPOCH
from controlplane.rollouts.planner import plan_carry_out
from controlplane.rollouts.serving import snapshot_for
from engine_agent.contracts.protocol import CANARIES, Snapshot, snapshot_decode
from tenants import crypto
from tenants.services.master_key import master_key_rotate
from tests.database.factories import make_agent
from tests.engines.processes import Engine
from tests.integration.gateway_fleet import fleet_engine, told_as
from tests.web.api import make_organisation

pytestmark = pytest.mark.django_db
FIRST, SECOND = b"1" * 32, b"2" * 32


def forgotten() -> None:
    """What a process that is started anew does not remember."""
    crypto.purpose_key.cache_clear()
    crypto._aeads.cache_clear()
    desired._current.clear()
    for remembered in (desired._variants, desired._probed, desired.recent):
        remembered._held.clear()


@contextmanager
def started_with(**secrets: Any) -> Iterator[None]:
    """A control plane with these among its secrets."""
    environment = settings.ENVIRONMENT
    changed = replace(environment, secrets=replace(environment.secrets, **secrets))
    try:
        with override_settings(ENVIRONMENT=changed):
            forgotten()
            yield
    finally:
        forgotten()


@pytest.fixture
def fleet() -> None:
    make_organisation("acme")
    make_agent("agent-1")
    make_agent("gateway-1", kind="gateway")


def held(name: str) -> Snapshot:
    plan_carry_out(now=timezone.now())
    return snapshot_decode(snapshot_for(name).body)


def obeyed(engine: Engine, snapshot: Snapshot) -> bool:
    """Whether it holds that afterwards."""
    answer = engine.admin("POST", "/apply", told_as(snapshot))
    return answer.status == 200 and engine.admin("GET", "/snapshot").json["hash"] == snapshot.hash


def with_other_keys(snapshot: Snapshot, epoch: int) -> Snapshot:
    """As it would be if canaries' keys had come of a secret."""
    key = base64.b64encode(b"of another secret".ljust(32)).decode()
    entries = {f"ns/{name}": {**snapshot.entries[f"ns/{name}"], "key": key, "epoch": epoch} for name in CANARIES}
    return snapshot.replaced(put=entries)


@pytest.mark.usefixtures("fleet")
def test_engines_stay_in_sync_while_the_signing_key_is_replaced_and_comes_back() -> None:
    with fleet_engine("agent-1") as engine:
        identities = set()
        for key in (FIRST, SECOND, FIRST):
            with started_with(signing_key=key):
                identities.add(crypto.purpose_key("signing_key", "agents"))
                wanted = held("agent-1")
            assert {f"ns/{name}" for name in CANARIES} <= wanted.entries.keys()
            assert obeyed(engine, wanted)
        assert len(identities) == 2, "the key was replaced"
        assert not obeyed(engine, with_other_keys(wanted, EPOCH)), "this is what an engine would have refused"


@pytest.mark.usefixtures("fleet")
def test_an_engine_that_holds_canaries_of_before_takes_those_of_today() -> None:
    wanted = held("agent-1")
    with fleet_engine("agent-1") as engine:
        assert obeyed(engine, with_other_keys(wanted, EPOCH - 1))
        assert obeyed(engine, wanted)


@pytest.mark.usefixtures("fleet")
def test_namespaces_keep_their_keys_whatever_their_master_key_is_replaced_by() -> None:
    with started_with(master_key=FIRST, previous_master_key=settings.ENVIRONMENT.secrets.master_key):
        before = held("agent-1")
        assert master_key_rotate()
    with started_with(master_key=FIRST, previous_master_key=None):
        assert held("agent-1").hash == before.hash
