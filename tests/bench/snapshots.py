"""What the worker that pushes will do with snapshots, timed on the database of a stack by way of inside.py."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeVar

from django.utils import timezone

from engine_agent.contracts.protocol import AgentKind, change_between, change_encode, snapshot_encode
from tenants.actor import SYSTEM
from tenants.desired import Desired, desired_read, desired_refresh
from tenants.levels import FLEET, Place
from tenants.models import Namespace
from tenants.policy import Policy
from tenants.services.namespaces import default_group
from tenants.services.policies import policy_publish
from tests.bench.tenants import BIG

FLEET_PUBLISHES = 5
Found = TypeVar("Found")


@dataclass(slots=True)
class Samples:
    """Milliseconds, and bytes of what travels."""

    build: list[float] = field(default_factory=list)
    encode: list[float] = field(default_factory=list)
    one_publish: list[float] = field(default_factory=list)
    big_publish: list[float] = field(default_factory=list)
    nothing: list[float] = field(default_factory=list)
    fleet_publish: list[float] = field(default_factory=list)
    change_bytes: list[int] = field(default_factory=list)
    snapshot_bytes: int = 0
    namespaces: int = 0
    policies: int = 0


def measure(kind: AgentKind, repetitions: int) -> dict[str, Any]:
    """Built from nothing, then kept current: after one publish, after nothing, after a publish for everybody."""
    samples = Samples()
    desired = _builds(samples, kind, repetitions)
    desired = _publishes(samples, desired, repetitions)
    desired = _fleet_publishes(samples, desired)
    if desired_read(desired.group_id, kind, now=timezone.now()).snapshot != desired.snapshot:
        raise AssertionError("what was kept current is not what is built from nothing")
    samples.snapshot_bytes = len(snapshot_encode(desired.snapshot))
    samples.namespaces = sum(key.startswith("ns/") for key in desired.snapshot.entries)
    samples.policies = len(desired.snapshot.policies)
    return asdict(samples)


def _builds(samples: Samples, kind: AgentKind, repetitions: int) -> Desired:
    read = partial(desired_read, default_group().pk, kind, now=timezone.now())
    desired = read()
    for _ in range(repetitions):
        desired = _timed(samples.build, read)
        _timed(samples.encode, partial(snapshot_encode, desired.snapshot))
    return desired


def _publishes(samples: Samples, desired: Desired, repetitions: int) -> Desired:
    everybody = Namespace.objects.select_related("organisation").order_by("pk")
    small, big = everybody.exclude(organisation__slug=BIG), everybody.filter(organisation__slug=BIG)
    for number, namespace in enumerate(small[:repetitions]):
        _publish(Place(namespace.organisation, namespace), 1_000 + number)
        before = desired
        desired = _timed(samples.one_publish, partial(desired_refresh, before, now=timezone.now()))
        _timed(samples.nothing, partial(desired_refresh, desired, now=timezone.now()))
        change = change_between(before.snapshot, desired.snapshot)
        samples.change_bytes.append(len(change_encode(change)))
    for number, namespace in enumerate(big[:repetitions]):
        _publish(Place(namespace.organisation, namespace), 1_000 + number)
        desired = _timed(samples.big_publish, partial(desired_refresh, desired, now=timezone.now()))
    return desired


def _fleet_publishes(samples: Samples, desired: Desired) -> Desired:
    for number in range(FLEET_PUBLISHES):
        _publish(FLEET, 2_000 + number)
        desired = _timed(samples.fleet_publish, partial(desired_refresh, desired, now=timezone.now()))
    return desired


def _publish(place: Place, ttl_seconds: int) -> None:
    policy_publish(actor=SYSTEM, place=place, policy=Policy(ttl_seconds=ttl_seconds), expected=None)


def _timed(samples: list[float], work: Callable[[], Found]) -> Found:
    began = time.perf_counter()
    found = work()
    samples.append((time.perf_counter() - began) * 1e3)
    return found
