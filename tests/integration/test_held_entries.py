"""Older revisions of some levels instead of the newest: as in a database in which nothing newer was published."""

from collections.abc import Sequence

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine_agent.contracts.protocol import AgentKind, Snapshot, snapshot_build
from tenants.desired import desired_read
from tenants.levels import FLEET, Key, Place
from tenants.models import Namespace, Organisation, PolicyLevel, PolicyRevision
from tenants.services.namespaces import default_group
from tenants.snapshots import Older, entries_held, entries_read
from tests.database.factories import make_group, make_namespace, publish
from tests.web.api import make_organisation

pytestmark = pytest.mark.django_db


def key_of(level: PolicyLevel) -> Key:
    return level.organisation_id, level.namespace_id


def older(level: PolicyLevel, number: int) -> Older:
    found = PolicyRevision.objects.filter(level=level, number=number).first()
    return Older(number, {} if found is None else found.policy)


def held_back(held: dict[int, int], kind: AgentKind = "engine") -> Snapshot:
    """The group's snapshot with these levels at these revisions."""
    group = default_group().pk
    newest = desired_read(group, kind, now=timezone.now()).snapshot
    levels = PolicyLevel.objects.in_bulk(list(held))
    asked = {key_of(levels[pk]): older(levels[pk], number) for pk, number in held.items()}
    found = entries_held(group, asked, newest.entries)
    return newest.replaced(put=found.entries, policies=found.policies)


def as_if_never_published(held: dict[int, int]) -> Snapshot:
    with transaction.atomic():
        for pk, number in held.items():
            level = PolicyLevel.objects.get(pk=pk)
            said = older(level, number)
            PolicyLevel.objects.filter(pk=pk).update(revision=said.number, policy=said.policy)
        found = entries_read(default_group().pk, "engine", now=timezone.now())
        transaction.set_rollback(True)
    return snapshot_build("engine", found.entries, found.policies)


def places(organisations: Sequence[Organisation]) -> list[Place]:
    """The fleet, each organisation, and each of their namespaces."""
    namespaces = Namespace.objects.filter(organisation__in=organisations).select_related("organisation").order_by("pk")
    return [FLEET, *map(Place, organisations), *(Place(one.organisation, one) for one in namespaces)]


@pytest.fixture
def organisations() -> list[Organisation]:
    """Two, one of which also has a namespace that another group's agents serve."""
    acme, other = make_organisation("acme", "chat"), make_organisation("other")
    make_namespace(acme, "elsewhere", group=make_group("elsewhere"))
    return [acme, other]


publishes = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 5)), min_size=1, max_size=8)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(publishes, st.data())
def test_it_equals_a_database_where_nothing_newer_was_published(
    organisations: list[Organisation], published: list[tuple[int, int]], data: st.DataObject
) -> None:
    with transaction.atomic():
        everywhere = places(organisations)
        for place, seconds in published:
            publish(everywhere[place % len(everywhere)], ttl_seconds=seconds)
        levels = list(PolicyLevel.objects.order_by("pk"))
        chosen = data.draw(st.lists(st.sampled_from(levels), unique=True, max_size=3))
        held = {level.pk: data.draw(st.integers(0, level.revision)) for level in chosen}
        assert held_back(held) == as_if_never_published(held)
        transaction.set_rollback(True)


def test_only_namespaces_that_differ_are_among_them(organisations: list[Organisation]) -> None:
    acme, _ = organisations
    publish(Place(acme), ttl_seconds=60)
    level = PolicyLevel.objects.get(organisation=acme)
    group = default_group().pk
    entries = desired_read(group, "engine", now=timezone.now()).snapshot.entries
    found = entries_held(group, {key_of(level): older(level, 0)}, entries)
    assert found.entries.keys() == {f"ns/{one.pk}" for one in acme.namespaces.filter(group=group)}
    assert found.policies.keys() == {entry["policy"] for entry in found.entries.values()}
    assert entries_held(group, {key_of(level): older(level, 1)}, entries).entries == {}


def test_it_costs_as_many_queries_for_many_namespaces_as_for_one(organisations: list[Organisation]) -> None:
    acme, _ = organisations
    publish(Place(acme), ttl_seconds=60)
    level, group = PolicyLevel.objects.get(organisation=acme), default_group().pk

    def queries() -> int:
        entries = desired_read(group, "engine", now=timezone.now()).snapshot.entries
        with CaptureQueriesContext(connection) as seen:
            entries_held(group, {key_of(level): older(level, 0)}, entries)
        return len(seen)

    few = queries()
    for number in range(10):
        make_namespace(acme, f"more-{number}")
    assert queries() == few
