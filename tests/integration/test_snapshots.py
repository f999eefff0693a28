"""What agents must hold, from the real database: built from nothing, and kept current by the audit trail."""

import base64
import hmac
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane import fleet, rollouts
from engine_agent.contracts.protocol import (
    AgentKind,
    Snapshot,
    change_apply,
    change_between,
    policy_hash,
    snapshot_encode,
)
from engine_agent.contracts.wire import OPERATED
from tenants import desired as desired_module
from tenants import services
from tenants.actor import SYSTEM
from tenants.bounds import Bounds
from tenants.crypto import key_check_secret
from tenants.desired import IGNORED_VERBS, Desired, Mark, desired_read, desired_refresh
from tenants.errors import TenantsError
from tenants.levels import FLEET, Place
from tenants.limits import Limits
from tenants.models import AgentGroup, ApiKey, AuditRecord, Namespace, Organisation, Pin
from tenants.policy import BUILT_IN, Policy
from tenants.services.groups import group_create
from tenants.services.keys import key_create, key_revoke
from tenants.services.members import member_invite
from tenants.services.namespaces import default_group, namespace_create, namespace_delete, namespace_update
from tenants.services.operations import purge
from tenants.services.organisations import (
    bounds_put,
    limits_put,
    organisation_create,
    organisation_delete,
    organisation_update,
    remains_remove,
)
from tenants.services.pins import pin_create, pin_delete
from tenants.services.policies import policy_publish, policy_rollback
from tenants.snapshots import entries_read
from tests.web.api import make_organisation

pytestmark = pytest.mark.django_db
KINDS: tuple[AgentKind, ...] = ("engine", "gateway")
HOUR = timedelta(hours=1)


def of(organisation: Organisation, slug: str = "default") -> Namespace:
    found = Namespace.objects.select_related("organisation").get(organisation=organisation, slug=slug)
    return found


def publish(place: Place, **policy: Any) -> None:
    policy_publish(actor=SYSTEM, place=place, policy=Policy(**policy), expected=None)


def make_pin(namespace: Namespace, name: str = "handbook", expires_at: datetime | None = None) -> Pin:
    return pin_create(
        actor=SYSTEM,
        namespace=namespace,
        name=name,
        model="m",
        content_kind="token_ids",
        content=[1, 2, 3],
        expires_at=expires_at,
    )


def read(kind: AgentKind = "engine", group: AgentGroup | None = None, now: datetime | None = None) -> Desired:
    return desired_read((group or default_group()).pk, kind, now=now or timezone.now())


def same(one: Snapshot, other: Snapshot) -> bool:
    """Equal in everything, not only by hash."""
    return one == other and one.buckets == other.buckets and snapshot_encode(one) == snapshot_encode(other)


# Built from nothing.


def test_an_engine_holds_organisations_namespaces_and_pins_of_its_group() -> None:
    acme = make_organisation("acme")
    default = of(acme)
    publish(Place(acme, default), ttl_seconds=60)
    pin = make_pin(default)
    snapshot = read().snapshot
    policy = {**BUILT_IN, "ttl_seconds": 60}
    key = snapshot.entries[f"ns/{default.pk}"]["key"]
    assert len(base64.b64decode(key)) == 32
    org = str(acme.pk)
    assert snapshot.entries == {
        f"org/{org}": {"org": org, "slug": "acme", "state": "active", "limits": {}},
        f"ns/{default.pk}": {
            "org": org,
            "slug": "default",
            "epoch": 1,
            "key": key,
            "revision": 1,
            "policy": policy_hash(policy),
        },
        f"pin/{pin.pk}": {
            "org": org,
            "ns": str(default.pk),
            "name": "handbook",
            "model": "m",
            "kind": "token_ids",
            "bytes": len("[1,2,3]"),
            "expires_at": None,
        },
    }
    assert snapshot.policies == {policy_hash(policy): policy}


def test_a_gateway_holds_keys_that_infer_with_limits_and_no_pins() -> None:
    acme = make_organisation("acme", "chat")
    make_pin(of(acme))
    limits_put(actor=SYSTEM, organisation=acme, limits=Limits(requests_per_minute=600, max_keys=7), expected=None)
    expires_at = datetime(2099, 1, 31, 23, 59, 59, 250_000, tzinfo=UTC)
    whole, secret = key_create(
        actor=SYSTEM, organisation=acme, name="a", scopes=["infer", "stats:read"], expires_at=expires_at
    )
    bound, _ = key_create(actor=SYSTEM, organisation=acme, name="b", scopes=["infer"], namespaces=[of(acme, "chat")])
    key_create(actor=SYSTEM, organisation=acme, name="c", scopes=["admin"])
    revoked, _ = key_create(actor=SYSTEM, organisation=acme, name="d", scopes=["infer"])
    key_revoke(actor=SYSTEM, key=revoked)
    entries = read("gateway").snapshot.entries
    assert {key for key in entries if not key.startswith("ns/")} == {
        f"org/{acme.pk}",
        f"key/{whole.pk}",
        f"key/{bound.pk}",
    }
    assert entries[f"org/{acme.pk}"]["limits"] == {"requests_per_minute": 600}
    assert entries[f"key/{whole.pk}"] == {
        "org": str(acme.pk),
        "hash": hmac.digest(key_check_secret(), secret.secret.encode(), "sha256").hex(),
        "namespaces": None,
        "scopes": ["infer", "stats:read"],
        "expires_at": "2099-01-31T23:59:59.250000Z",
    }
    assert entries[f"key/{bound.pk}"]["namespaces"] == [str(of(acme, "chat").pk)]


def test_a_group_gets_what_belongs_to_it_and_nothing_else() -> None:
    europe = group_create(actor=SYSTEM, slug="europe", name="Europe")
    acme, globex = make_organisation("acme"), make_organisation("globex")
    chat = namespace_create(actor=SYSTEM, organisation=acme, slug="chat", group=europe)
    gone = namespace_create(actor=SYSTEM, organisation=acme, slug="gone", group=europe)
    key, _ = key_create(actor=SYSTEM, organisation=acme, name="a", scopes=["infer"], namespaces=[of(acme), chat, gone])
    key_create(actor=SYSTEM, organisation=globex, name="b", scopes=["infer"])
    namespace_delete(actor=SYSTEM, namespace=of(acme, "gone"), expected=None)
    make_pin(of(acme))
    entries = read("gateway", europe).snapshot.entries
    assert set(entries) == {f"org/{acme.pk}", f"ns/{chat.pk}", f"key/{key.pk}"}
    assert entries[f"key/{key.pk}"]["namespaces"] == [str(chat.pk)]
    assert set(read("engine", europe).snapshot.entries) == {f"org/{acme.pk}", f"ns/{chat.pk}"}


def test_a_key_bound_elsewhere_is_known_but_good_for_nothing() -> None:
    europe = group_create(actor=SYSTEM, slug="europe", name="Europe")
    acme = make_organisation("acme")
    namespace_create(actor=SYSTEM, organisation=acme, slug="chat", group=europe)
    key, _ = key_create(actor=SYSTEM, organisation=acme, name="a", scopes=["infer"], namespaces=[of(acme)])
    assert read("gateway", europe).snapshot.entries[f"key/{key.pk}"]["namespaces"] == []


def test_suspended_is_shown_and_deleted_is_gone() -> None:
    acme, globex = make_organisation("acme"), make_organisation("globex")
    organisation_update(actor=SYSTEM, organisation=acme, state="suspended", expected=None)
    organisation_delete(actor=SYSTEM, organisation=globex, expected=None)
    for kind in KINDS:
        snapshot = read(kind).snapshot
        assert set(snapshot.buckets) == {str(acme.pk)}
        assert snapshot.entries[f"org/{acme.pk}"]["state"] == "suspended"


def test_equal_policies_are_held_once() -> None:
    acme, globex = make_organisation("acme", "chat", "batch"), make_organisation("globex")
    publish(FLEET, weight=2.0)
    publish(Place(acme, of(acme, "chat")), ttl_seconds=60)
    publish(Place(globex), ttl_seconds=60)
    snapshot = read().snapshot
    assert len(snapshot.policies) == 2
    assert {policy["weight"] for policy in snapshot.policies.values()} == {2.0}
    assert snapshot.entries[f"ns/{of(acme, 'chat').pk}"]["policy"] == snapshot.entries[f"ns/{of(globex).pk}"]["policy"]


def test_a_purge_gives_another_key_and_the_next_epoch() -> None:
    acme = make_organisation("acme")
    before = read().snapshot.entries[f"ns/{of(acme).pk}"]
    purge(actor=SYSTEM, organisation=acme)
    after = read().snapshot.entries[f"ns/{of(acme).pk}"]
    assert (before["epoch"], after["epoch"]) == (1, 2)
    assert before["key"] != after["key"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_expired_is_left_out(kind: AgentKind) -> None:
    acme = make_organisation("acme")
    soon = timezone.now() + HOUR
    make_pin(of(acme), expires_at=soon)
    key_create(actor=SYSTEM, organisation=acme, name="a", scopes=["infer"], expires_at=soon)
    assert len(read(kind, now=soon - timedelta(seconds=1)).snapshot.entries) == 3
    assert len(read(kind, now=soon).snapshot.entries) == 2


def test_no_key_of_a_namespace_is_shown_by_accident() -> None:
    acme = make_organisation("acme")
    found = read()
    assert found.snapshot.entries[f"ns/{of(acme).pk}"]["key"] not in repr(found)


@pytest.mark.parametrize("kind", KINDS)
def test_however_many_there_are_the_queries_stay_the_same(kind: AgentKind, django_assert_num_queries: Any) -> None:
    def fill(*slugs: str) -> None:
        for slug in slugs:
            organisation = make_organisation(slug, "chat")
            make_pin(of(organisation))
            key_create(actor=SYSTEM, organisation=organisation, name="a", scopes=["infer"])

    group = default_group()
    fill("acme")
    with django_assert_num_queries(4):
        read(kind, group)
    fill(*(f"org-{number}" for number in range(20)))
    with django_assert_num_queries(4):
        assert len(read(kind, group).snapshot.buckets) == 21


# Kept current.


def test_where_nothing_happened_one_query_says_so(django_assert_num_queries: Any) -> None:
    make_organisation("acme")
    before = read()
    with django_assert_num_queries(1):
        assert desired_refresh(before, now=timezone.now()).snapshot is before.snapshot


def test_what_no_snapshot_holds_costs_no_snapshot(django_assert_num_queries: Any) -> None:
    acme = make_organisation("acme")
    before = read()
    member_invite(actor=SYSTEM, organisation=acme, email="kim@acme.example", role="viewer")
    bounds_put(actor=SYSTEM, organisation=acme, bounds=Bounds(), expected=None)
    group_create(actor=SYSTEM, slug="europe", name="Europe")
    with django_assert_num_queries(3):
        after = desired_refresh(before, now=timezone.now())
    assert after.snapshot is before.snapshot
    assert after.mark.seq == before.mark.seq + 3


def test_one_change_rereads_one_organisation_and_travels_as_one_entry(django_assert_num_queries: Any) -> None:
    acme, _ = make_organisation("acme", "chat"), make_organisation("globex")
    before = read()
    publish(Place(acme, of(acme)), ttl_seconds=60)
    with django_assert_num_queries(6):
        after = desired_refresh(before, now=timezone.now())
    assert same(after.snapshot, read().snapshot)
    change = change_between(before.snapshot, after.snapshot)
    assert list(change.put) == [f"ns/{of(acme).pk}"]
    assert same(change_apply(before.snapshot, change), after.snapshot)


def test_a_policy_of_the_fleet_reaches_every_namespace() -> None:
    for slug in ("acme", "globex"):
        make_organisation(slug)
    before = read()
    publish(FLEET, ttl_seconds=60)
    after = desired_refresh(before, now=timezone.now())
    assert {policy["ttl_seconds"] for policy in after.snapshot.policies.values()} == {60}
    assert same(after.snapshot, read().snapshot)


def test_expiry_needs_no_record_to_be_noticed() -> None:
    acme = make_organisation("acme")
    soon = timezone.now() + HOUR
    pin = make_pin(of(acme), expires_at=soon)
    before = read()
    after = desired_refresh(before, now=soon)
    assert f"pin/{pin.pk}" in before.snapshot.entries
    assert same(after.snapshot, read(now=soon).snapshot)
    assert after.ends == {}


def test_another_trail_than_the_one_known_means_reading_everything() -> None:
    make_organisation("acme")
    known = read()
    elsewhere = Desired(known.group_id, "engine", known.snapshot, Mark(known.mark.seq - 1, b"\0" * 32), {})
    ahead = Desired(known.group_id, "engine", known.snapshot, Mark(known.mark.seq + 9, b"\0" * 32), {})
    for one in (elsewhere, ahead):
        again = desired_refresh(one, now=timezone.now())
        assert again.mark == known.mark
        assert same(again.snapshot, read().snapshot)


def changed_meanwhile(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Somebody else's change lands after the head of the trail was read, and before any row is."""

    def late(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(desired_module, "entries_read", entries_read)
        change()
        return entries_read(*args, **kwargs)

    monkeypatch.setattr(desired_module, "entries_read", late)


def test_rows_newer_than_the_head_are_only_read_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    acme = make_organisation("acme")
    changed_meanwhile(monkeypatch, lambda: publish(Place(acme), ttl_seconds=60))
    torn = read()
    assert torn.mark.seq == AuditRecord.objects.count() - 1
    after = desired_refresh(torn, now=timezone.now())
    assert after.mark.seq == AuditRecord.objects.count()
    assert same(after.snapshot, read().snapshot)


@pytest.mark.django_db(transaction=True)
def test_outside_a_transaction_head_and_rows_are_of_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    acme = make_organisation("acme")
    default_group()

    def elsewhere() -> None:
        publish(Place(acme), ttl_seconds=60)
        connection.close()

    def change() -> None:
        other = threading.Thread(target=elsewhere)
        other.start()
        other.join()

    changed_meanwhile(monkeypatch, change)
    before = read()
    assert {policy["ttl_seconds"] for policy in before.snapshot.policies.values()} == {BUILT_IN["ttl_seconds"]}
    after = desired_refresh(before, now=timezone.now())
    assert after.mark.seq == before.mark.seq + 1
    assert {policy["ttl_seconds"] for policy in after.snapshot.policies.values()} == {60}


# Whatever happens: what is kept current equals what is built from nothing.


class World:
    """A little fleet to which things happen. `pick` chooses among what there is, so every step finds something."""

    def __init__(self) -> None:
        self.now = timezone.now()
        self.made = 0
        europe = group_create(actor=SYSTEM, slug="europe", name="Europe")
        for slug in ("acme", "globex"):
            organisation = make_organisation(slug)
            namespace_create(actor=SYSTEM, organisation=organisation, slug="chat", group=europe)
            make_pin(of(organisation), expires_at=self.end(1))
            make_pin(of(organisation, "chat"))
            key_create(actor=SYSTEM, organisation=organisation, name="x", scopes=["infer"], expires_at=self.end(9))
        groups = AgentGroup.objects.order_by("pk")
        self.known = {(group.pk, kind): self.built(group.pk, kind) for group in groups for kind in KINDS}

    def built(self, group_id: int, kind: AgentKind) -> Desired:
        return desired_read(group_id, kind, now=self.now)

    def look(self, number: int) -> None:
        """One of the agents' snapshots catches up, with one change or with many."""
        group_id, kind = list(self.known)[number % len(self.known)]
        found = desired_refresh(self.known[group_id, kind], now=self.now)
        fresh = self.built(group_id, kind)
        assert same(found.snapshot, fresh.snapshot)
        assert (found.mark, found.ends) == (fresh.mark, fresh.ends)
        self.known[group_id, kind] = found

    def look_at_all(self) -> None:
        for number in range(len(self.known)):
            self.look(number)

    def name(self) -> str:
        self.made += 1
        return f"x{self.made}"

    def organisation(self, number: int) -> Organisation:
        found = list(Organisation.objects.exclude(state="deleted").order_by("pk"))
        return found[number % len(found)] if found else organisation_create(actor=SYSTEM, slug=self.name(), name="X")

    def namespace(self, number: int) -> Namespace:
        found = Namespace.objects.filter(organisation=self.organisation(number), deleted_at=None).order_by("pk")
        chosen = list(found.select_related("organisation"))
        return chosen[number // 3 % len(chosen)]

    def place(self, number: int) -> Place:
        namespace = self.namespace(number)
        return (FLEET, Place(namespace.organisation), Place(namespace.organisation, namespace))[number % 3]

    def group(self, number: int) -> AgentGroup:
        return AgentGroup.objects.order_by("pk")[number % 2]

    def end(self, number: int) -> datetime | None:
        return timezone.now() + timedelta(seconds=number) if number % 2 else None


POLICIES: list[dict[str, Any]] = [
    {},
    {"ttl_seconds": 60},
    {"weight": 2.0, "kv_dtype": "int4"},
    {"models": {"m": {"ttl_seconds": 10}}},
    {"reserved_share": 0.3},
]


def unpin() -> None:
    for pin in Pin.objects.select_related("namespace__organisation").order_by("name")[:1]:
        pin_delete(actor=SYSTEM, pin=pin)


def revoke() -> None:
    for key in ApiKey.objects.filter(revoked_at=None).select_related("organisation").order_by("pk")[:1]:
        key_revoke(actor=SYSTEM, key=key)


Step = Callable[[World, int], object]
STEPS: dict[str, Step] = {
    "look": World.look,
    "wait": lambda world, n: setattr(world, "now", world.now + timedelta(seconds=n)),
    "create organisation": lambda world, n: organisation_create(actor=SYSTEM, slug=world.name(), name="X"),
    "rename organisation": lambda world, n: organisation_update(
        actor=SYSTEM, organisation=world.organisation(n), name=world.name(), expected=None
    ),
    "suspend or bring back": lambda world, n: organisation_update(
        actor=SYSTEM, organisation=world.organisation(n), state=("active", "suspended")[n // 2 % 2], expected=None
    ),
    "delete organisation": lambda world, n: organisation_delete(
        actor=SYSTEM, organisation=world.organisation(n), expected=None
    ),
    "limits": lambda world, n: limits_put(
        actor=SYSTEM, organisation=world.organisation(n), limits=Limits(tokens_per_minute=n + 1), expected=None
    ),
    "bounds": lambda world, n: bounds_put(
        actor=SYSTEM, organisation=world.organisation(n), bounds=Bounds(), expected=None
    ),
    "invite": lambda world, n: member_invite(
        actor=SYSTEM, organisation=world.organisation(n), email=f"{world.name()}@acme.example", role="viewer"
    ),
    "create group": lambda world, n: group_create(actor=SYSTEM, slug=world.name(), name="X"),
    "create namespace": lambda world, n: namespace_create(
        actor=SYSTEM, organisation=world.organisation(n), slug=world.name(), group=world.group(n // 2)
    ),
    "rename namespace": lambda world, n: namespace_update(
        actor=SYSTEM, namespace=world.namespace(n), name=world.name(), expected=None
    ),
    "move namespace": lambda world, n: namespace_update(
        actor=SYSTEM, namespace=world.namespace(n), group=world.group(n), expected=None
    ),
    "delete namespace": lambda world, n: namespace_delete(actor=SYSTEM, namespace=world.namespace(n), expected=None),
    "purge namespace": lambda world, n: purge(
        actor=SYSTEM,
        organisation=world.namespace(n).organisation,
        namespace=world.namespace(n),
        include_pins=bool(n % 2),
    ),
    "purge organisation": lambda world, n: purge(actor=SYSTEM, organisation=world.organisation(n)),
    "publish": lambda world, n: publish(world.place(n), **POLICIES[n // 7 % len(POLICIES)]),
    "roll back": lambda world, n: policy_rollback(
        actor=SYSTEM, place=world.place(n), to_revision=n // 7 % 2, expected=None
    ),
    "pin": lambda world, n: make_pin(world.namespace(n), world.name(), world.end(n)),
    "unpin": lambda world, n: unpin(),
    "create key": lambda world, n: key_create(
        actor=SYSTEM,
        organisation=world.namespace(n).organisation,
        name="x",
        scopes=("infer", "stats:read")[n % 3 == 0 :][:1],
        namespaces=[world.namespace(n)] if n % 5 == 0 else None,
        expires_at=world.end(n),
    ),
    "revoke key": lambda world, n: revoke(),
    "remove remains": lambda world, n: remains_remove(),
}


@pytest.mark.parametrize("step", STEPS)
def test_each_deed_alone_is_noticed(step: str) -> None:
    world, done = World(), 0
    for number in (0, 1, 5, 7, 14):
        with suppress(TenantsError), transaction.atomic():
            STEPS[step](world, number)
            done += 1
        world.look_at_all()
    assert done


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(list(STEPS)), st.integers(0, 1000)), min_size=1, max_size=25))
def test_kept_current_equals_built_from_nothing(db: None, steps: list[tuple[str, int]]) -> None:
    with transaction.atomic():
        world = World()
        for step, number in steps:
            with suppress(TenantsError), transaction.atomic():
                STEPS[step](world, number)
        world.look_at_all()
        transaction.set_rollback(True)


def test_what_is_ignored_is_something_that_happens() -> None:
    """A verb in that list that nobody writes would be a typing error, and the real one would cost a whole snapshot."""
    folders = [Path(one.__path__[0]) for one in (services, fleet, rollouts)]
    written = "".join(file.read_text() for folder in folders for file in folder.glob("*.py"))
    asked_of_agents = {f"agent.{deed.replace('_', '-')}" for deed in OPERATED}
    assert not [verb for verb in IGNORED_VERBS - asked_of_agents if f'"{verb}"' not in written]
