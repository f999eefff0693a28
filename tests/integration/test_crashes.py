"""A deed that stops between any two of its statements has not begun: every table is as it was, the trail is sound."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from django.apps import apps
from django.db import OperationalError, connection, transaction
from django.utils import timezone

from tenants.actor import SYSTEM
from tenants.audit import audit_verify
from tenants.levels import FLEET, Place, level_of
from tenants.models import Organisation
from tenants.services import organisations
from tenants.services.groups import group_create
from tenants.services.idempotency import KeptAnswer, once
from tenants.services.keys import key_create
from tenants.services.members import invitation_accept, member_invite, member_link, member_remove
from tenants.services.namespaces import namespace_delete, namespace_update
from tenants.services.operations import purge
from tenants.services.organisations import organisation_create, organisation_delete, organisation_update
from tenants.services.policies import policy_rollback
from tests.database.factories import make_group, make_pin, publish
from tests.web.api import make_organisation

pytestmark = pytest.mark.django_db
Deed = Callable[[], Any]
Prepare = Callable[[Organisation], Deed]


class Crash(OperationalError):
    """As when the connection is lost: this statement and all that were to follow never happened."""


class CrashAt:
    def __init__(self, statement: int) -> None:
        self.statement, self.seen = statement, 0

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if not sql.startswith("ROLLBACK"):
            self.seen += 1
        if self.seen == self.statement and not sql.startswith("ROLLBACK"):
            raise Crash(sql)
        return execute(sql, params, many, context)


def everything() -> dict[str, list[Any]]:
    models = apps.get_app_config("tenants").get_models()
    return {model.__name__: sorted(map(repr, model._base_manager.values_list())) for model in models}


def crashed_everywhere(deed: Deed) -> int:
    """How many statements there were to crash at. Fails where one of the crashes left something behind."""
    before = everything()
    for statement in count(1):
        if not crashes(deed, statement):
            break
        assert everything() == before, f"after statement {statement}"
    assert everything() != before
    return statement - 1


def crashes(deed: Deed, statement: int) -> bool:
    try:
        with connection.execute_wrapper(CrashAt(statement)):
            deed()
    except Crash:
        return True
    return False


def publishing(made: Organisation) -> Deed:
    return lambda: publish(Place(made, made.namespaces.get(slug="chat")), ttl_seconds=90, reserved_share=0.1)


def rolling_back(made: Organisation) -> Deed:
    place = Place(made)
    publish(place, ttl_seconds=60)
    publish(place, ttl_seconds=90)
    return lambda: policy_rollback(actor=SYSTEM, place=place, to_revision=1, expected=None)


def purging(made: Organisation) -> Deed:
    return lambda: purge(actor=SYSTEM, organisation=made, include_pins=True)


def deleting(made: Organisation) -> Deed:
    return lambda: organisation_delete(actor=SYSTEM, organisation=made, expected=None)


def deleting_a_namespace(made: Organisation) -> Deed:
    return lambda: namespace_delete(actor=SYSTEM, namespace=made.namespaces.get(slug="chat"), expected=None)


def removing(made: Organisation) -> Deed:
    publish(Place(made), ttl_seconds=60)
    deleting(made)()
    pk = made.pk  # which Django takes from the object with its row
    return lambda: organisations._organisation_remove(Organisation.objects.get(pk=pk))


def moving(made: Organisation) -> Deed:
    group, chat = make_group(), made.namespaces.get(slug="chat")
    return lambda: namespace_update(actor=SYSTEM, namespace=chat, expected=None, group=group, name="Chat")


def accepting(made: Organisation) -> Deed:
    """In a transaction, for the one thing meant to stay when this fails: that somebody tried."""
    _, link = member_invite(actor=SYSTEM, organisation=made, email="kim@acme.example", role="viewer")

    def deed() -> None:
        with transaction.atomic():
            invitation_accept(
                secret=link.secret, password="a fine new password", address="192.0.2.1", now=timezone.now()
            )

    return deed


def inviting_again(made: Organisation) -> Deed:
    member, _ = member_invite(actor=SYSTEM, organisation=made, email="kim@acme.example", role="viewer")
    return lambda: member_link(actor=SYSTEM, member=member)


def removing_a_member(made: Organisation) -> Deed:
    member, _ = member_invite(actor=SYSTEM, organisation=made, email="kim@acme.example", role="viewer")
    return lambda: member_remove(actor=SYSTEM, member=member)


def once_with_a_key(made: Organisation) -> Deed:
    def perform() -> tuple[str, KeptAnswer]:
        _, secret = key_create(actor=SYSTEM, organisation=made, name="x", scopes=["infer"])
        return secret.secret, KeptAnswer(201, "{}")

    return lambda: once(actor=SYSTEM, key="k", fingerprint=b"f", now=timezone.now(), perform=perform)


DEEDS: dict[str, Prepare] = {
    "organisation_create": lambda made: lambda: organisation_create(actor=SYSTEM, slug="globex", name="Globex"),
    "organisation_update": lambda made: (
        lambda: organisation_update(actor=SYSTEM, organisation=made, expected=None, name="Renamed")
    ),
    "organisation_delete": deleting,
    "organisation_remove": removing,
    "namespace_delete": deleting_a_namespace,
    "namespace_update": moving,
    "group_create": lambda made: lambda: group_create(actor=SYSTEM, slug="gpu", name="GPU"),
    "policy_publish": publishing,
    "policy_publish for the fleet": lambda made: lambda: publish(FLEET, reserved_share=0.1),
    "policy_rollback": rolling_back,
    "purge": purging,
    "pin_create": lambda made: lambda: make_pin(made.namespaces.get(slug="chat"), "another"),
    "key_create": lambda made: lambda: key_create(actor=SYSTEM, organisation=made, name="x", scopes=["infer"]),
    "member_invite": lambda made: (
        lambda: member_invite(actor=SYSTEM, organisation=made, email="kim@acme.example", role="viewer")
    ),
    "invitation_accept": accepting,
    "member_link": inviting_again,
    "member_remove": removing_a_member,
    "once": once_with_a_key,
}


@pytest.mark.parametrize("name", DEEDS)
def test_a_crash_between_any_two_statements_leaves_nothing_half_done(name: str) -> None:
    made = make_organisation("acme", "chat")
    make_pin(made.namespaces.get(slug="chat"))
    level_of(FLEET)
    deed = DEEDS[name](made)
    assert crashed_everywhere(deed) >= 4
    assert audit_verify().is_sound
