"""What the database refuses by itself, whatever code asks it. Triggers that keep the trail are in test_audit.py."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.apps import apps
from django.db import DataError, IntegrityError, connection, transaction
from django.db.models import CheckConstraint, Model, UniqueConstraint
from django.utils import timezone

from tenants.models import (
    AgentGroup,
    ApiKey,
    AuditHead,
    IdempotentRequest,
    Member,
    Namespace,
    NamespaceKey,
    OneTimeLink,
    Operation,
    OperatorToken,
    Organisation,
    Pin,
    PolicyLevel,
    PolicyRevision,
    User,
)
from tests.database.undoing import undone
from tests.web.api import make_organisation

pytestmark = pytest.mark.django_db
NOW = timezone.now()
FAR = datetime(9999, 12, 31, tzinfo=UTC)
NOTHING = b""


class World:
    """One of what others refer to."""

    def __init__(self) -> None:
        self.organisation = make_organisation()
        self.namespace = self.organisation.namespaces.get()
        self.group = self.namespace.group
        self.level = PolicyLevel.objects.get(namespace=self.namespace)
        self.user = User.objects.create(email="kim@acme.example")
        self.member = Member.objects.create(organisation=self.organisation, email="kim@acme.example", role="viewer")
        self.key = ApiKey.objects.create(organisation=self.organisation, hash=b"k", scopes=["infer"])
        PolicyLevel.objects.get_or_create(kind="fleet")
        AuditHead.objects.update_or_create(pk=1, defaults={"seq": 0, "hash": NOTHING})


@pytest.fixture
def world(db: None) -> World:
    return World()


Make = Callable[[World], Model | int]


def organisation(**fields: Any) -> Make:
    return lambda world: Organisation.objects.create(**{"slug": "globex", "name": "x", **fields})


def namespace(**fields: Any) -> Make:
    return lambda world: Namespace.objects.create(
        **{"organisation": world.organisation, "group": world.group, "slug": "chat", **fields}
    )


def namespace_key(**fields: Any) -> Make:
    return lambda world: NamespaceKey.objects.create(
        **{"namespace": world.namespace, "epoch": 2, "sealed": b"x", **fields}
    )


def key(**fields: Any) -> Make:
    return lambda world: ApiKey.objects.create(
        **{"organisation": world.organisation, "hash": b"x", "scopes": ["infer"], **fields}
    )


def token(**fields: Any) -> Make:
    return lambda world: OperatorToken.objects.create(
        **{"user": world.user, "hash": b"x", "scopes": ["admin"], **fields}
    )


def member(**fields: Any) -> Make:
    return lambda world: Member.objects.create(
        **{"organisation": world.organisation, "email": "l@acme.example", "role": "viewer", **fields}
    )


def link(**owner: str) -> Make:
    return lambda world: OneTimeLink.objects.create(
        purpose=owner["purpose"],
        hash=b"x",
        expires_at=NOW,
        member=world.member if "member" in owner else None,
        user=world.user if "user" in owner else None,
    )


def pin(**fields: Any) -> Make:
    return lambda world: Pin.objects.create(
        **{
            "namespace": world.namespace,
            "name": "p",
            "content_kind": "prompt",
            "content_bytes": 1,
            "sealed_content": b"x",
            **fields,
        }
    )


def operation(**fields: Any) -> Make:
    return lambda world: Operation.objects.create(**{"kind": "purge", "scope": "x", "state": "running", **fields})


def level(*owners: str, kind: str) -> Make:
    def make(world: World) -> Model:
        PolicyLevel.objects.exclude(kind="fleet").delete()
        return PolicyLevel.objects.create(
            kind=kind,
            organisation=world.organisation if "organisation" in owners else None,
            namespace=world.namespace if "namespace" in owners else None,
        )

    return make


def second_level(world: World) -> Model:
    return PolicyLevel.objects.create(kind="organisation", organisation=world.organisation)


def revision(**fields: Any) -> Make:
    return lambda world: PolicyRevision.objects.create(
        **{"level": world.level, "number": 1, "policy": {}, "author_is_operator": True, **fields}
    )


def twice(make: Make) -> Make:
    def both(world: World) -> Model | int:
        make(world)
        return make(world)

    return both


def request(**fields: Any) -> Make:
    return lambda world: IdempotentRequest.objects.create(caller="key:1", key="k", fingerprint=b"x", **fields)


def head(**fields: Any) -> Make:
    return lambda world: AuditHead.objects.create(**{"seq": 0, "hash": NOTHING, **fields})


WRONG_SLUGS = ("", "-a", "a-", "A", "a_b", "x\ny", "x\n", "é")
REFUSED: list[tuple[str, Make]] = [
    *(("organisation_slug_is_well_formed", organisation(slug=slug)) for slug in WRONG_SLUGS),
    *(("namespace_slug_is_well_formed", namespace(slug=slug)) for slug in WRONG_SLUGS),
    ("group_slug_is_well_formed", lambda world: AgentGroup.objects.create(slug="A")),
    ("organisation_slug_is_unique_among_the_living", organisation(slug="acme")),
    ("organisation_slug_is_unique_among_the_living", organisation(slug="acme", state="suspended")),
    ("organisation_state_is_known", organisation(state="paused")),
    ("organisation_deleted_at_goes_with_its_state", organisation(state="deleted")),
    ("organisation_deleted_at_goes_with_its_state", organisation(deleted_at=NOW)),
    ("namespace_slug_is_unique_among_the_living", namespace(slug="default")),
    ("namespace_epoch_is_positive", namespace(epoch=0)),
    ("one_key_an_epoch", namespace_key(epoch=1)),
    ("a_retired_key_is_erased", namespace_key(retired_at=NOW)),
    ("a_retired_key_is_erased", namespace_key(sealed=None)),
    *(("key_scopes_are_known", key(scopes=scopes)) for scopes in ([], ["root"], ["infer", "root"], ["ADMIN"])),
    *(("operator_token_scopes_are_known", token(scopes=scopes)) for scopes in ([], ["root"])),
    ("tenants_apikey_hash_", key(hash=b"k")),
    ("tenants_operatortoken_hash_", twice(token())),
    ("one_membership_an_address", member(email="kim@acme.example")),
    ("member_email_is_lower_case", member(email="L@acme.example")),
    ("member_role_is_known", member(role="owner")),
    ("a_member_who_joined_is_a_user", member(joined_at=NOW)),
    ("a_member_who_joined_is_a_user", lambda world: member(user=world.user)(world)),
    ("email_is_lower_case", lambda world: User.objects.create(email="Kim@acme.example")),
    ("tenants_user_email_", lambda world: User.objects.create(email="kim@acme.example")),
    ("a_link_is_for_a_member_or_a_user", link(purpose="invitation")),
    ("a_link_is_for_a_member_or_a_user", link(purpose="invitation", user="yes")),
    ("a_link_is_for_a_member_or_a_user", link(purpose="invitation", user="yes", member="yes")),
    ("a_link_is_for_a_member_or_a_user", link(purpose="reset", member="yes")),
    ("a_link_is_for_a_member_or_a_user", link(purpose="other", user="yes")),
    ("tenants_onetimelink_hash_", twice(link(purpose="reset", user="yes"))),
    ("pin_names_are_unique", twice(pin())),
    ("pin_content_is_known", pin(content_kind="image")),
    ("key_end_is_readable", key(expires_at=FAR)),
    ("operator_token_end_is_readable", token(expires_at=FAR)),
    ("pin_end_is_readable", pin(expires_at=FAR)),
    ("an_operation_that_ended_says_when", operation(finished_at=NOW)),
    ("an_operation_that_ended_says_when", operation(state="done")),
    ("an_operation_that_ended_says_when", operation(state="lost", finished_at=NOW)),
    ("a_level_has_the_owner_of_its_kind", level("organisation", kind="fleet")),
    ("a_level_has_the_owner_of_its_kind", level(kind="organisation")),
    ("a_level_has_the_owner_of_its_kind", level("organisation", kind="namespace")),
    ("a_level_has_the_owner_of_its_kind", level("organisation", "namespace", kind="namespace")),
    ("a_level_has_the_owner_of_its_kind", level(kind="model")),
    ("there_is_one_fleet_level", level(kind="fleet")),
    ("tenants_policylevel_organisation_id_", second_level),
    ("revision_numbers_are_unique", twice(revision())),
    ("revision_numbers_begin_at_one", revision(number=0)),
    ("there_is_one_audit_head", head(id=2)),
    ("an_idempotency_key_is_used_once", twice(request())),
]  # fmt: skip


def test_the_database_refuses_it_by_name(world: World, subtests: pytest.Subtests) -> None:
    assert REFUSED
    for number, (constraint, make) in enumerate(REFUSED):
        with (
            subtests.test(msg=constraint, number=number),
            pytest.raises(IntegrityError, match=constraint),
            transaction.atomic(),
        ):
            make(world)


def test_every_constraint_of_ours_is_tried_above() -> None:
    models = apps.get_app_config("tenants").get_models()
    named = {one.name for model in models for one in model._meta.constraints}
    assert {type(one) for model in models for one in model._meta.constraints} <= {CheckConstraint, UniqueConstraint}
    assert named - {constraint for constraint, _ in REFUSED} == set()


def test_every_check_in_the_database_belongs_to_a_model() -> None:
    """What migrations made is what the models say."""
    models = apps.get_app_config("tenants").get_models()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT conname FROM pg_constraint WHERE contype = 'c' AND conrelid::regclass::text ~ '^tenants_'"
        )
        found = {name for (name,) in cursor.fetchall()}
    said = {one.name for model in models for one in model._meta.constraints if isinstance(one, CheckConstraint)}
    assert said <= found
    assert {name for name in found - said if not name.endswith("_check")} == set()


FITTING = (
    organisation(slug="acme", state="deleted", deleted_at=NOW),
    namespace(slug="default", deleted_at=NOW),
    namespace_key(sealed=None, retired_at=NOW),
    member(),
    link(purpose="reset", user="yes"),
    link(purpose="invitation", member="yes"),
    operation(state="failed", finished_at=NOW),
    revision(),
    pin(),
    key(scopes=["infer", "stats:read", "policy:read", "policy:write", "admin"]),
)


def test_what_fits_is_taken(world: World, subtests: pytest.Subtests) -> None:
    for number, make in enumerate(FITTING):
        with subtests.test(number=number), undone():
            make(world)


NEGATIVE = {
    "epoch": namespace(epoch=-1),
    "number": revision(number=-1),
    "revision": organisation(revision=-1),
    "content_bytes": pin(content_bytes=-1),
}


def test_counts_are_never_negative(world: World, subtests: pytest.Subtests) -> None:
    for name, make in NEGATIVE.items():
        with subtests.test(msg=name), pytest.raises((IntegrityError, DataError)), transaction.atomic():
            make(world)


def test_a_group_with_namespaces_cannot_be_deleted_by_sql(world: World) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        with pytest.raises(IntegrityError), transaction.atomic():
            cursor.execute("DELETE FROM tenants_agentgroup WHERE id = %s", [world.group.pk])
