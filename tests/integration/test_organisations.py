"""Organisations, namespaces and agent groups: made, changed, and deleted in two steps."""

from collections.abc import Callable
from typing import Any

import pytest
from django.apps import apps
from django.utils import timezone

from tenants.access import READ, organisation_for
from tenants.actor import SYSTEM
from tenants.audit import audit_verify
from tenants.bounds import Bounds
from tenants.errors import Conflict, InvalidToken, LimitReached, NotFound, StaleRevision, Taken
from tenants.levels import Place, level_of
from tenants.limits import Limits
from tenants.models import AuditRecord, Namespace, NamespaceKey, Operation, Organisation, Pin, PolicyRevision
from tenants.services.groups import group_create, group_delete
from tenants.services.keys import key_create
from tenants.services.members import member_invite, member_link, member_remove, member_update
from tenants.services.namespaces import namespace_delete, namespace_update, namespaces_create
from tenants.services.operations import purge
from tenants.services.organisations import (
    bounds_put,
    limits_put,
    organisation_create,
    organisation_delete,
    organisation_update,
    remains_remove,
)
from tests.database.factories import actor_of, make_group, make_namespace, make_pin, publish
from tests.support.threads import at_once, failures, while_uncommitted
from tests.web.api import Api, make_key, make_organisation, said

pytestmark = pytest.mark.django_db
at_once_on_the_database = pytest.mark.django_db(transaction=True)


def delete(organisation: Organisation) -> Operation:
    return organisation_delete(actor=SYSTEM, organisation=organisation, expected=None)


def verbs() -> list[str]:
    return list(AuditRecord.objects.order_by("seq").values_list("verb", flat=True))


def limit(organisation: Organisation, **limits: int) -> Organisation:
    return limits_put(actor=SYSTEM, organisation=organisation, limits=Limits(**limits), expected=None)


def rows_of_organisations() -> dict[str, int]:
    """Everything that belongs to some organisation, by table."""
    kept = {"AuditRecord", "AuditHead", "AgentGroup", "Operation", "User"}
    models = [model for model in apps.get_app_config("tenants").get_models() if model.__name__ not in kept]
    return {model.__name__: model.objects.count() for model in models}  # type: ignore[attr-defined]


# Made and changed


def test_an_organisation_begins_with_a_default_namespace_a_key_and_an_empty_policy() -> None:
    made = make_organisation("acme")
    namespace = made.namespaces.get()
    key = namespace.keys.get()
    assert (made.state, made.revision, namespace.slug, namespace.epoch) == ("active", 1, "default", 1)
    assert (key.epoch, key.sealed is not None, key.retired_at) == (1, True, None)
    for place in (Place(made), Place(made, namespace)):
        assert (level_of(place).revision, level_of(place).policy) == (0, {})
    assert verbs() == ["organisation.create", "namespace.create"]


def test_a_slug_in_use_is_refused_and_changes_nothing() -> None:
    make_organisation("acme")
    before = (verbs(), rows_of_organisations())
    with pytest.raises(Taken, match="'acme' is the slug of another organisation"):
        make_organisation("acme")
    assert (verbs(), rows_of_organisations()) == before


def test_a_change_advances_the_revision_and_no_change_does_not() -> None:
    made = make_organisation("acme")
    renamed = organisation_update(actor=SYSTEM, organisation=made, expected=frozenset({1}), name="Acme Inc.")
    assert (renamed.name, renamed.revision) == ("Acme Inc.", 2)
    again = organisation_update(actor=SYSTEM, organisation=made, expected=frozenset({2}), name="Acme Inc.")
    assert (again.revision, verbs().count("organisation.update")) == (2, 1)


def test_a_stale_change_changes_nothing() -> None:
    made = make_organisation("acme")
    with pytest.raises(StaleRevision, match="expected revision 7, found 1"):
        organisation_update(actor=SYSTEM, organisation=made, expected=frozenset({7}), name="Other")
    assert Organisation.objects.get().name == "Acme"


def test_an_organisations_own_admin_may_rename_it_and_not_suspend_it(acme: Api) -> None:
    assert acme.patch("/orgs/acme", {"name": "New"}, seen=1).status_code == 200
    for state in ("suspended", "active"):
        assert acme.patch("/orgs/acme", {"state": state, "name": "Newer"}, seen=2).status_code == 403
    assert Organisation.objects.get().name == "New"


def test_a_suspended_organisation_is_read_by_its_people_and_changed_by_operators(acme: Api, operator: Api) -> None:
    assert operator.patch("/orgs/acme", {"state": "suspended"}, seen=1).status_code == 200
    assert acme.get("/orgs/acme").status_code == 200
    refused = acme.put("/orgs/acme/policy", {"policy": {}}, seen=0)
    assert (refused.status_code, said(refused)["detail"]) == (
        403,
        "This organisation is suspended: it can be read, not changed. Ask your operator.",
    )
    assert operator.put("/orgs/acme/policy", {"policy": {}}, seen=0).status_code == 200


def test_several_namespaces_are_made_together_or_not_at_all() -> None:
    made = make_organisation("acme")
    with pytest.raises(Taken, match="'default' is the slug of another namespace"):
        namespaces_create(actor=SYSTEM, organisation=made, wanted=[("a", "", None), ("default", "", None)])
    assert Namespace.objects.get().slug == "default"
    wanted = [(f"n{n}", "", None) for n in range(3)]
    assert [one.slug for one in namespaces_create(actor=SYSTEM, organisation=made, wanted=wanted)] == ["n0", "n1", "n2"]


def test_a_namespace_is_renamed_and_moved_under_its_revision() -> None:
    made, group = make_namespace(make_organisation()), make_group()
    changed = namespace_update(actor=SYSTEM, namespace=made, expected=frozenset({1}), name="Chat", group=group)
    assert (changed.name, changed.group, changed.revision) == ("Chat", group, 2)
    with pytest.raises(StaleRevision):
        namespace_update(actor=SYSTEM, namespace=made, expected=frozenset({1}), name="Late")
    assert AuditRecord.objects.get(verb="namespace.update").after == '{"group":"gpu","name":"Chat","slug":"chat"}'


def test_an_organisation_has_as_many_namespaces_as_its_limit() -> None:
    made = limit(make_organisation(), max_namespaces=2)
    make_namespace(made, "second")
    with pytest.raises(LimitReached, match="max_namespaces: the limit is 2"):
        make_namespace(made, "third")


# Agent groups


def test_a_group_with_namespaces_stays() -> None:
    group = make_group()
    namespace = make_namespace(make_organisation(), group=group)
    with pytest.raises(Conflict, match="namespaces or agents belong to it"):
        group_delete(actor=SYSTEM, group=group)
    namespace_delete(actor=SYSTEM, namespace=namespace, expected=None)
    remains_remove()
    group_delete(actor=SYSTEM, group=group)
    with pytest.raises(NotFound):
        group_delete(actor=SYSTEM, group=group)


def test_the_default_group_stays() -> None:
    group = make_organisation().namespaces.get().group
    with pytest.raises(Conflict, match="it stays"):
        group_delete(actor=SYSTEM, group=group)


def test_a_group_is_named_once() -> None:
    make_group()
    with pytest.raises(Taken):
        group_create(actor=SYSTEM, slug="gpu", name="Again")


def test_a_namespace_cannot_join_a_group_that_is_gone() -> None:
    made, group = make_organisation(), make_group()
    group_delete(actor=SYSTEM, group=group)
    with pytest.raises(NotFound, match="agent group"):
        make_namespace(made, group=group.__class__(pk=10**9, slug="gpu"))


# Deleted, in two steps


def test_keys_of_a_deleted_organisation_stop_at_once() -> None:
    made = make_organisation()
    secret = make_key(made)
    assert actor_of(secret).organisation_id == made.pk
    delete(made)
    with pytest.raises(InvalidToken):
        actor_of(secret)


def test_a_deleted_organisation_looks_like_one_that_never_was(operator: Api) -> None:
    make_organisation()
    assert operator.delete("/orgs/acme", seen=1).status_code == 202
    gone, never = said(operator.get("/orgs/acme")), said(operator.get("/orgs/never"))
    assert {**gone, "request_id": None} == {**never, "request_id": None}
    assert said(operator.get("/orgs"))["items"] == []


def test_nothing_of_a_deleted_organisation_can_be_read_any_more() -> None:
    made = make_organisation("acme", "chat")
    make_pin(made.namespaces.get(slug="chat"))
    delete(made)
    assert list(NamespaceKey.objects.values_list("sealed", flat=True)) == [None, None]
    assert not Pin.objects.exists()
    with pytest.raises(NotFound):
        organisation_for(SYSTEM, "acme", READ)


def test_the_slug_of_a_deleted_organisation_can_be_used_again() -> None:
    delete(make_organisation("acme"))
    second = make_organisation("acme")
    assert organisation_for(SYSTEM, "acme", READ) == second
    assert Organisation.objects.filter(slug="acme").count() == 2


def stale_deeds(made: Organisation) -> dict[str, Callable[[], Any]]:
    """What a request may still be about to do that has looked its organisation up before it was deleted."""
    namespace, member = (
        make_namespace(made),
        member_invite(actor=SYSTEM, organisation=made, email="k@a.example", role="viewer")[0],
    )
    return {
        "organisation_update": lambda: organisation_update(actor=SYSTEM, organisation=made, expected=None, name="X"),
        "organisation_delete": lambda: delete(made),
        "bounds_put": lambda: bounds_put(actor=SYSTEM, organisation=made, bounds=Bounds(), expected=None),
        "limits_put": lambda: limit(made),
        "namespace_create": lambda: make_namespace(made, "late"),
        "namespace_update": lambda: namespace_update(actor=SYSTEM, namespace=namespace, expected=None, name="X"),
        "namespace_delete": lambda: namespace_delete(actor=SYSTEM, namespace=namespace, expected=None),
        "purge": lambda: purge(actor=SYSTEM, organisation=made),
        "purge one": lambda: purge(actor=SYSTEM, organisation=made, namespace=namespace),
        "pin_create": lambda: make_pin(namespace),
        "key_create": lambda: key_create(actor=SYSTEM, organisation=made, name="x", scopes=["infer"]),
        "member_invite": lambda: member_invite(actor=SYSTEM, organisation=made, email="l@a.example", role="viewer"),
        "member_update": lambda: member_update(actor=SYSTEM, member=member, role="admin"),
        "member_remove": lambda: member_remove(actor=SYSTEM, member=member),
        "member_link": lambda: member_link(actor=SYSTEM, member=member),
        "publish": lambda: publish(Place(made), ttl_seconds=60),
        "publish below": lambda: publish(Place(made, namespace), ttl_seconds=60),
    }


def refused_as_absent(deeds: dict[str, Callable[[], Any]]) -> None:
    before = (verbs(), rows_of_organisations())
    for name, deed in deeds.items():
        with pytest.raises(NotFound, match=r"no such (organisation|namespace|member)"):
            deed()
        assert (verbs(), rows_of_organisations()) == before, name


@pytest.mark.parametrize("is_removed", [False, True])
def test_whoever_comes_late_finds_the_organisation_gone_and_changes_nothing(is_removed: bool) -> None:
    made = make_organisation()
    deeds = stale_deeds(made)
    delete(made)
    if is_removed:
        remains_remove()
    refused_as_absent(deeds)
    assert not NamespaceKey.objects.filter(sealed__isnull=False).exists()


@pytest.mark.parametrize("is_removed", [False, True])
def test_whoever_comes_late_finds_the_namespace_gone_and_changes_nothing(is_removed: bool) -> None:
    made = make_organisation()
    deeds = stale_deeds(made)
    namespace_delete(actor=SYSTEM, namespace=made.namespaces.get(slug="chat"), expected=None)
    if is_removed:
        remains_remove()
    names = ("namespace_update", "namespace_delete", "purge one", "pin_create", "publish below")
    refused_as_absent({name: deeds[name] for name in names})


def test_a_deleted_namespace_leaves_nothing_to_read_and_its_slug_free() -> None:
    made = make_organisation()
    namespace = make_namespace(made)
    make_pin(namespace)
    namespace_delete(actor=SYSTEM, namespace=namespace, expected=frozenset({1}))
    assert namespace.keys.get().sealed is None
    assert not Pin.objects.exists()
    assert Operation.objects.get().scope == "acme/chat"
    assert make_namespace(made).pk != namespace.pk


def test_the_default_namespace_stays(operator: Api) -> None:
    make_organisation()
    answer = operator.delete("/orgs/acme/namespaces/default", seen=1)
    assert (answer.status_code, "purge it instead" in said(answer)["detail"]) == (409, True)


def test_rows_go_when_no_purge_runs_any_more_and_the_trail_stays() -> None:
    kept = make_organisation("kept")
    before = rows_of_organisations()
    gone = make_organisation("gone", "chat")
    publish(Place(gone), ttl_seconds=60)
    publish(Place(gone, gone.namespaces.get(slug="chat")), ttl_seconds=60)
    make_key(gone)
    member_invite(actor=SYSTEM, organisation=gone, email="kim@gone.example", role="viewer")
    operation = delete(gone)
    Operation.objects.filter(pk=operation.pk).update(state="running", finished_at=None)
    assert remains_remove() == 0
    Operation.objects.filter(pk=operation.pk).update(state="done", finished_at=timezone.now())
    assert remains_remove() == 1
    assert rows_of_organisations() == before | {"PolicyLevel": before["PolicyLevel"], "PolicyRevision": 0}
    assert (verbs()[-1], audit_verify().is_sound, Organisation.objects.get()) == ("organisation.remove", True, kept)
    assert remains_remove() == 0


def test_rows_of_a_namespace_go_when_its_purge_is_proven() -> None:
    made = make_organisation()
    before = rows_of_organisations()
    namespace = make_namespace(made)
    publish(Place(made, namespace), ttl_seconds=60)
    namespace_delete(actor=SYSTEM, namespace=namespace, expected=None)
    Operation.objects.update(state="running", finished_at=None)
    assert (remains_remove(), PolicyRevision.objects.count()) == (0, 1)
    Operation.objects.update(state="done", finished_at=timezone.now())
    assert (remains_remove(), rows_of_organisations()) == (1, before)
    assert (verbs()[-1], audit_verify().is_sound) == ("namespace.remove", True)


def test_operations_outlive_what_they_were_about() -> None:
    operation = delete(make_organisation())
    remains_remove()
    operation.refresh_from_db()
    assert (operation.scope, operation.organisation) == ("acme", None)


# At the same moment


@at_once_on_the_database
def test_of_two_organisations_with_one_slug_made_at_once_one_is() -> None:
    outcomes = at_once(*[lambda: organisation_create(actor=SYSTEM, slug="acme", name="Acme")] * 4)
    assert failures(outcomes) == ["Taken"] * 3
    assert Namespace.objects.count() == 1


@at_once_on_the_database
def test_a_limit_holds_for_namespaces_made_at_once() -> None:
    made = limit(make_organisation(), max_namespaces=3)
    outcomes = at_once(*[lambda n=n: make_namespace(made, f"n{n}") for n in range(6)])
    assert failures(outcomes) == ["LimitReached"] * 4
    assert Namespace.objects.count() == 3


@at_once_on_the_database
def test_a_purge_that_comes_while_the_organisation_is_deleted_makes_no_new_key() -> None:
    made = make_organisation()
    outcomes = while_uncommitted(lambda: delete(made), lambda: purge(actor=SYSTEM, organisation=made))
    assert failures(outcomes) == ["NotFound"]
    assert not NamespaceKey.objects.filter(sealed__isnull=False).exists()


@at_once_on_the_database
def test_a_group_cannot_go_while_something_joins_it() -> None:
    made, group = make_organisation(), make_group()
    outcomes = while_uncommitted(
        lambda: make_namespace(made, group=group), lambda: group_delete(actor=SYSTEM, group=group)
    )
    assert failures(outcomes) == ["Conflict"]
    assert Namespace.objects.filter(group=group).count() == 1


@at_once_on_the_database
def test_of_two_workers_that_tidy_up_at_once_each_thing_is_removed_and_recorded_once() -> None:
    made = make_organisation()
    namespace_delete(actor=SYSTEM, namespace=make_namespace(made), expected=None)
    delete(make_organisation("globex"))
    outcomes = at_once(*[remains_remove] * 3)
    assert (failures(outcomes), sum(outcomes)) == ([], 2)
    assert sorted(verbs()[-2:]) == ["namespace.remove", "organisation.remove"]
    assert audit_verify().is_sound
