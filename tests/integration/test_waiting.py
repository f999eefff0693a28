"""Whose turn comes later: judged by what is true then, stopped by nobody who changes something else, and told when
it takes too long. That many at once end in no deadlock is test_concurrency.py."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from tenants.actor import SYSTEM, Actor
from tenants.bounds import Bounds
from tenants.config import apply
from tenants.config.apply import config_apply
from tenants.config.document import document_read
from tenants.config.ownership import ApplyOptions
from tenants.errors import StalePlan
from tenants.levels import Place, fleet_hold, level_of
from tenants.models import AuditRecord, Member, Namespace, Organisation, Pin
from tenants.services.keys import key_create
from tenants.services.members import member_invite, member_link, member_remove, member_update
from tenants.services.namespaces import namespace_create, namespace_delete, namespace_update
from tenants.services.operations import operation_begin, purge
from tenants.services.organisations import bounds_put, organisation_update
from tenants.services.pins import pin_create, pin_delete
from tests.database.factories import actor_of, make_pin, publish
from tests.support.threads import failures, while_held, while_uncommitted
from tests.web.api import Api, make_key, make_organisation, said

pytestmark = pytest.mark.django_db(transaction=True)
Write = Callable[[Actor, Organisation], Any]


def applied(actor: Actor, *slugs: str, ttl_seconds: int = 700, **more: Any) -> Any:
    """A document that publishes for each of these organisations, and makes a namespace in it."""
    parts = {slug: {"policy": {"ttl_seconds": ttl_seconds}, "namespaces": {"new": {}}} for slug in slugs}
    document = document_read({"version": 1, "organisations": parts, **more})
    return config_apply(
        actor=actor, document=document, options=ApplyOptions(prune="owner" in more, take_ownership="owner" in more)
    )


# Nobody is stopped by who changes something else


FIRST: dict[str, Write] = {
    "a key's apply": lambda actor, made: applied(actor, "acme"),
    "an operator's apply": lambda actor, made: applied(SYSTEM, "acme"),
    "an operator's apply that repeats the fleet's policy": lambda actor, made: applied(SYSTEM, "acme", policy={}),
    "an operator's apply that prunes": lambda actor, made: applied(SYSTEM, "acme", "globex", owner="team-a"),
}
SECOND: dict[str, Write] = {
    "publish": lambda actor, made: publish(Place(made), actor=actor, ttl_seconds=60),
    "create": lambda actor, made: namespace_create(actor=actor, organisation=made, slug="other"),
    "apply": lambda actor, made: applied(actor, "globex", ttl_seconds=60),
}


@pytest.mark.parametrize("second", SECOND)
@pytest.mark.parametrize("first", FIRST)
def test_an_apply_stops_nobody_in_another_organisation(first: str, second: str) -> None:
    acme, globex = make_organisation("acme"), make_organisation("globex")
    applied(SYSTEM, "globex", owner="team-a")
    mine, theirs = (actor_of(make_key(one)) for one in (acme, globex))
    outcomes = while_held(lambda: FIRST[first](mine, acme), lambda: SECOND[second](theirs, globex))
    assert failures(outcomes) == []


def test_an_apply_that_changes_the_fleet_lets_nobody_publish_meanwhile() -> None:
    acme = make_organisation("acme")
    deeds = [lambda: applied(SYSTEM, policy={"max_age_seconds": 600}), lambda: publish(Place(acme), ttl_seconds=900)]
    assert failures(while_uncommitted(*deeds)) == ["InvalidFields"]


@pytest.mark.parametrize("is_operator", [True, False])
def test_two_appliers_of_one_organisation_take_turns(is_operator: bool) -> None:
    made = make_organisation("acme")
    actor = SYSTEM if is_operator else actor_of(make_key(made))
    outcomes = while_uncommitted(lambda: applied(actor, "acme"), lambda: applied(actor, "acme"))
    assert [len(one.plan.changes) for one in outcomes] == [2, 0]
    assert made.namespaces.count() == 2


def test_an_apply_that_needs_more_than_it_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made after the plan and before the locks: nobody has agreed to its deletion, and nobody else is kept off it."""
    make_organisation("acme")

    def late() -> Any:
        Organisation.objects.filter(pk=make_organisation("late").pk).update(owner="team-a")
        return fleet_hold()

    monkeypatch.setattr(apply, "fleet_hold", late)
    with pytest.raises(StalePlan):
        applied(SYSTEM, "acme", owner="team-a")
    assert not Namespace.objects.filter(slug="new").exists()


def test_what_an_apply_finds_to_be_created_may_be_there_by_its_turn() -> None:
    deeds = [lambda: make_organisation("acme"), lambda: applied(SYSTEM, "acme")]
    assert failures(while_uncommitted(*deeds)) == []


# Judged by what is true when the turn has come


def operator_narrows(made: Organisation) -> Any:
    bounds = Bounds.model_validate({"ttl_seconds": {"max": 60}})
    return bounds_put(actor=SYSTEM, organisation=made, bounds=bounds, expected=None)


def suspend(made: Organisation) -> Any:
    return organisation_update(actor=SYSTEM, organisation=made, expected=None, state="suspended")


@pytest.mark.parametrize("level", ["organisation", "namespace"])
def test_bounds_that_were_narrowed_meanwhile_hold(level: str) -> None:
    made = make_organisation("acme")
    place = Place(made) if level == "organisation" else Place(made, made.namespaces.get())
    actor = actor_of(make_key(made))
    outcomes = while_uncommitted(lambda: operator_narrows(made), lambda: publish(place, actor=actor, ttl_seconds=3000))
    assert failures(outcomes) == ["OutOfBounds"]
    assert level_of(place).revision == 0


def test_bounds_that_were_narrowed_meanwhile_hold_for_a_file() -> None:
    made = make_organisation("acme")
    actor = actor_of(make_key(made))
    assert failures(while_uncommitted(lambda: operator_narrows(made), lambda: applied(actor, "acme"))) == [
        "OutOfBounds"
    ]


def namespace(made: Organisation) -> Namespace:
    found = made.namespaces.get(slug="chat")
    found.organisation = made
    return found


def member(made: Organisation) -> Member:
    found = made.members.get()
    found.organisation = made
    return found


def pin(made: Organisation) -> Pin:
    return Pin.objects.select_related("namespace__organisation").get(namespace=namespace(made))


WRITES: dict[str, Write] = {
    "policy, organisation": lambda actor, made: publish(Place(made), actor=actor, ttl_seconds=60),
    "policy, namespace": lambda actor, made: publish(Place(made, namespace(made)), actor=actor, ttl_seconds=60),
    "apply": lambda actor, made: applied(actor, "acme"),
    "rename": lambda actor, made: organisation_update(actor=actor, organisation=made, expected=None, name="New"),
    "namespace, new": lambda actor, made: namespace_create(actor=actor, organisation=made, slug="new"),
    "namespace, renamed": lambda actor, made: namespace_update(
        actor=actor, namespace=namespace(made), expected=None, name="New"
    ),
    "namespace, deleted": lambda actor, made: namespace_delete(actor=actor, namespace=namespace(made), expected=None),
    "key": lambda actor, made: key_create(actor=actor, organisation=made, name="new", scopes=["infer"]),
    "member, new": lambda actor, made: member_invite(
        actor=actor, organisation=made, email="new@acme.example", role="viewer"
    ),
    "member, link": lambda actor, made: member_link(actor=actor, member=member(made)),
    "member, role": lambda actor, made: member_update(actor=actor, member=member(made), role="editor"),
    "member, removed": lambda actor, made: member_remove(actor=actor, member=member(made)),
    "pin": lambda actor, made: make_pin_as(actor, namespace(made)),
    "pin, removed": lambda actor, made: pin_delete(actor=actor, pin=pin(made)),
    "purge": lambda actor, made: purge(actor=actor, organisation=made),
}


def make_pin_as(actor: Actor, where: Namespace) -> Pin:
    return pin_create(actor=actor, namespace=where, name="new", model="m", content_kind="prompt", content="x")


def inhabited() -> Organisation:
    made = make_organisation("acme", "chat")
    make_pin(namespace(made))
    member_invite(actor=SYSTEM, organisation=made, email="kim@acme.example", role="viewer")
    return made


@pytest.mark.parametrize("name", WRITES)
def test_an_organisation_suspended_meanwhile_is_not_changed_by_its_people(name: str) -> None:
    made = inhabited()
    actor = actor_of(make_key(made))
    outcomes = while_uncommitted(lambda: suspend(made), lambda: WRITES[name](actor, made))
    assert failures(outcomes) == ["OrganisationSuspended"]
    assert AuditRecord.objects.latest("seq").verb == "organisation.update"


@pytest.mark.parametrize("name", WRITES)
def test_operators_change_a_suspended_organisation(name: str) -> None:
    made = inhabited()
    suspend(made)
    WRITES[name](SYSTEM, made)
    assert AuditRecord.objects.latest("seq").actor_name == SYSTEM.name


# Told when it takes too long


def test_nobody_waits_for_others_longer_than_three_seconds() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("3s",)


def test_who_has_done_much_waits_longer_for_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    make_organisation("acme")
    seen: list[Any] = []

    def spied(*args: Any, **kwargs: Any) -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            seen.append(cursor.fetchone())
        return operation_begin(*args, **kwargs)

    monkeypatch.setattr(apply, "operation_begin", spied)
    applied(SYSTEM, "acme")
    assert seen == [("10s",)]
    test_nobody_waits_for_others_longer_than_three_seconds()


def test_who_waits_too_long_is_told_that_somebody_else_is_changing_it() -> None:
    made = make_organisation("acme")
    key = make_key(made)
    _, answer = while_held(
        lambda: organisation_update(actor=SYSTEM, organisation=made, expected=None, name="New"),
        lambda: Api(key, Client()).post("/orgs/acme/namespaces", {"slug": "chat"}),
    )
    assert (answer.status_code, answer["Retry-After"]) == (503, "1")
    assert said(answer)["type"].endswith("#problem-busy")
    assert said(answer)["detail"] == "Somebody else is changing this right now; try again. Nothing was changed."
    assert not Namespace.objects.filter(slug="chat").exists()
