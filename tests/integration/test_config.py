"""GitOps over REST: one document, planned, applied in one transaction, exported."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from cProfile import Profile
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenants.actor import SYSTEM
from tenants.audit import audit_verify
from tenants.config.apply import config_apply
from tenants.config.document import ConfigDocument, document_read
from tenants.config.ownership import MAX_DELETES, ApplyOptions
from tenants.config.plan import config_plan
from tenants.errors import TooManyDeletes
from tenants.levels import FLEET, Place, level_of
from tenants.locks import organisations_lock
from tenants.models import (
    AuditRecord,
    IdempotentRequest,
    Namespace,
    NamespaceKey,
    Operation,
    Organisation,
    PolicyLevel,
    PolicyRevision,
)
from tenants.services import policies
from tenants.services.groups import group_create
from tenants.services.namespaces import namespace_create
from tenants.services.operations import purge
from tenants.services.organisations import organisation_update
from tests.database.factories import actor_of, make_user, publish
from tests.integration.test_crashes import crashed_everywhere
from tests.support.threads import at_once
from tests.web.api import Api, make_key, make_operator_token, make_organisation, said

pytestmark = pytest.mark.django_db

TABLES = (AuditRecord, Namespace, NamespaceKey, Operation, Organisation, PolicyLevel, PolicyRevision)


def document(**organisations: Any) -> dict[str, Any]:
    return {"version": 1, "organisations": organisations}


def owned(**organisations: Any) -> dict[str, Any]:
    return {**document(**organisations), "owner": "team-a"}


def whole() -> dict[str, Any]:
    """One of everything."""
    return {
        "version": 1,
        "policy": {"ttl_seconds": 400},
        "organisations": {
            "acme": {
                "name": "Acme Inc.",
                "state": "suspended",
                "policy": {"ttl_seconds": 600, "models": {"qwen3-8b": {"kv_dtype": "bf16"}}},
                "bounds": {"ttl_seconds": {"min": 60, "max": 3600}},
                "limits": {"max_namespaces": 5, "requests_per_minute": None},
                "namespaces": {
                    "default": {"name": "Everything else"},
                    "chat": {"name": "Support chat", "group": "h200", "policy": {"kv_dtype": "int8"}},
                },
            },
            "globex": None,
        },
    }


def rows() -> list[int]:
    return [table.objects.count() for table in TABLES]


@contextmanager
def nothing_changes() -> Iterator[None]:
    before = rows()
    yield
    assert rows() == before


def plan(api: Api, body: dict[str, Any], **more: Any) -> dict[str, Any]:
    response = api.post("/config/plan", {"document": body, **more})
    assert response.status_code == 200, response.content
    found: dict[str, Any] = said(response)
    return found


def applied(api: Api, body: dict[str, Any], **more: Any) -> dict[str, Any]:
    response = api.post("/config/apply", {"document": body, **more})
    assert response.status_code == 200, response.content
    found: dict[str, Any] = said(response)
    return found


def refused(api: Api, body: dict[str, Any], status: int, *, path: str = "apply", **more: Any) -> dict[str, str]:
    """What was wrong where; and nothing has been written."""
    with nothing_changes():
        response = api.post(f"/config/{path}", {"document": body, **more})
    assert response.status_code == status, response.content
    return {one["field"]: one["message"] for one in said(response)["errors"]}


def exported(api: Api, query: str = "") -> dict[str, Any]:
    response = api.get(f"/config{query}")
    assert response.status_code == 200, response.content
    found: dict[str, Any] = said(response)
    return found


@pytest.fixture
def h200() -> None:
    group_create(actor=SYSTEM, slug="h200", name="H200")


def deeds(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["verb"], one["place"]) for one in found["changes"]]


def test_a_plan_says_what_would_be_done_and_does_nothing(operator: Api, h200: None) -> None:
    with nothing_changes():
        found = plan(operator, whole())
    assert deeds(found) == [
        ("policy.publish", "fleet"),
        ("organisation.create", "acme"),
        ("limits.set", "acme"),
        ("bounds.set", "acme"),
        ("policy.publish", "acme"),
        ("namespace.create", "acme/chat"),
        ("policy.publish", "acme/chat"),
        ("namespace.update", "acme/default"),
        ("organisation.create", "globex"),
    ]
    assert found["problems"] == []
    assert found["summary"] == {"create": 3, "change": 6, "delete": 0, "objects_deleted": 0}
    chat = found["changes"][6]
    assert chat["field"] == "organisations.acme.namespaces.chat.policy"
    assert chat["differences"] == [{"field": "kv_dtype", "model": None, "before": "fp8", "after": "int8"}]
    assert chat["warnings"] == []  # there is no cache yet


def test_what_was_planned_is_what_is_done(operator: Api, h200: None) -> None:
    planned = plan(operator, whole())
    done = applied(operator, whole(), expected_plan=planned["hash"])
    assert deeds(done) == deeds(planned)
    acme = Organisation.objects.get(slug="acme")
    assert (acme.name, acme.state, acme.limits["max_namespaces"]) == ("Acme Inc.", "suspended", 5)
    chat = Namespace.objects.select_related("group", "policy_level").get(organisation=acme, slug="chat")
    assert (chat.name, chat.group.slug, chat.policy_level.policy) == ("Support chat", "h200", {"kv_dtype": "int8"})
    assert Organisation.objects.get(slug="globex").namespaces.get().slug == "default"
    operation = said(operator.get(f"/operations/{done['operation']}"))
    assert (operation["kind"], operation["state"], operation["scope"]) == ("apply", "done", "fleet")


def test_applied_again_it_writes_nothing(operator: Api, h200: None) -> None:
    applied(operator, whole())
    with nothing_changes(), CaptureQueriesContext(connection) as queries:
        again = applied(operator, whole())
    assert (again["changes"], again["operation"]) == ([], None)
    writes = [one["sql"] for one in queries if one["sql"].startswith(("INSERT", "UPDATE", "DELETE"))]
    assert [sql for sql in writes if "tenants_operatortoken" not in sql] == []


def test_an_export_planned_is_empty(operator: Api, h200: None) -> None:
    applied(operator, whole())
    assert plan(operator, exported(operator), prune=True, prune_organisations=["acme", "globex"])["changes"] == []
    assert exported(operator)["organisations"]["acme"] == whole()["organisations"]["acme"]
    assert exported(operator)["organisations"]["globex"] == {"name": "globex", "namespaces": {"default": {}}}


def test_an_export_names_only_what_was_set(operator: Api) -> None:
    make_organisation("acme", "chat")
    assert exported(operator) == document(acme={"name": "Acme", "namespaces": {"chat": {}, "default": {}}})


def test_an_export_can_be_of_one_organisation(operator: Api) -> None:
    make_organisation("acme"), make_organisation("globex")
    applied(operator, {"version": 1, "policy": {"ttl_seconds": 1}})
    assert exported(operator, "?organisation=globex") == document(
        globex={"name": "Globex", "namespaces": {"default": {}}}
    )
    assert operator.get("/config?organisation=initech").status_code == 404


def test_a_part_left_out_stays_as_it_is(operator: Api, h200: None) -> None:
    applied(operator, whole())
    left = document(acme={"namespaces": {"default": {}}})
    assert plan(operator, left)["changes"] == []
    both = {"prune": True, "prune_organisations": ["acme", "globex"]}
    assert plan(operator, document(acme={}, globex={}), **both)["changes"] == []
    assert plan(operator, document(acme={}, globex={"namespaces": {}}), **both)["changes"] == []
    assert deeds(plan(operator, document(acme={"namespaces": {}}, globex={}), **both)) == [
        ("namespace.delete", "acme/chat")
    ]


def test_an_empty_policy_takes_back_what_was_said(operator: Api, h200: None) -> None:
    applied(operator, whole())
    found = plan(operator, document(acme={"namespaces": {"chat": {"policy": {}}}}))
    assert [(one["verb"], one["revision"], one["after"]) for one in found["changes"]] == [("policy.publish", 1, {})]
    applied(operator, document(acme={"namespaces": {"chat": {"policy": {}}}}))
    assert said(operator.get("/orgs/acme/namespaces/chat/policy"))["revision"] == 2


def test_prune_deletes_what_is_not_named_and_never_default(operator: Api) -> None:
    make_organisation("acme", "chat", "old")
    make_organisation("globex", "chat")
    both = {"acme": {"namespaces": {"chat": {}, "old": {}}}, "globex": {"name": "Globex", "namespaces": {"chat": {}}}}
    applied(operator, owned(**both), take_ownership=True)
    body = owned(acme={"namespaces": {"chat": {}}})
    assert plan(operator, body)["changes"] == []
    found = plan(operator, body, prune=True)
    assert deeds(found) == [("namespace.delete", "acme/old"), ("organisation.delete", "globex")]
    before = {"name": "Globex", "state": "active", "owner": "team-a", "namespaces": 2}
    assert found["changes"][1]["before"] == before
    assert (found["summary"]["delete"], found["summary"]["objects_deleted"]) == (2, 4)
    applied(operator, body, prune=True, expected_plan=found["hash"])
    assert operator.get("/orgs/globex").status_code == 404
    assert [one["slug"] for one in said(operator.get("/orgs/acme/namespaces"))["items"]] == ["chat", "default"]
    with nothing_changes():
        assert applied(operator, body, prune=True)["changes"] == []


def test_pruning_without_scope_is_refused(operator: Api) -> None:
    make_organisation("globex")
    for path in ("plan", "apply"):
        (message,) = refused(operator, document(acme={}), 422, path=path, prune=True).values()
        assert "--org" in message
        assert "`owner: NAME`" in message


def test_a_partial_file_deletes_nothing_of_others(operator: Api) -> None:
    make_organisation("globex", "chat")
    applied(operator, {**document(initech={"namespaces": {"mail": {}}}), "owner": "team-b"})
    applied(operator, owned(acme={"namespaces": {"chat": {}, "old": {}}}))
    done = applied(operator, owned(acme={"namespaces": {"chat": {}}}), prune=True)
    assert deeds(done) == [("namespace.delete", "acme/old")]
    assert {one["slug"] for one in said(operator.get("/orgs"))["items"]} == {"acme", "globex", "initech"}


def test_owners_are_shown(operator: Api) -> None:
    applied(operator, owned(acme={"namespaces": {"chat": {}}}))
    assert said(operator.get("/orgs/acme"))["owner"] == "team-a"
    owners = {one["slug"]: one["owner"] for one in said(operator.get("/orgs/acme/namespaces"))["items"]}
    assert owners == {"chat": "team-a", "default": ""}
    record = AuditRecord.objects.get(verb="namespace.create", target="acme/chat")
    assert json.loads(record.after)["owner"] == "team-a"


def test_more_deletions_than_allowed_are_refused_whole(operator: Api) -> None:
    """An organisation counts with its namespaces, of which default is one."""
    namespaces: dict[str, Any] = {f"n{number}": {} for number in range(MAX_DELETES - 1)}
    applied(operator, owned(acme={"namespaces": namespaces}))
    body = {**owned(globex={}), "policy": {"ttl_seconds": 60}}
    assert plan(operator, body, prune=True)["summary"]["objects_deleted"] == MAX_DELETES + 1
    assert list(refused(operator, body, 409, prune=True)) == ["max_deletes"]
    assert list(refused(operator, body, 409, prune=True, max_deletes=0)) == ["max_deletes"]
    assert applied(operator, body, prune=True, max_deletes=MAX_DELETES + 1)["summary"]["objects_deleted"] == 11


def test_deletions_are_limited_within_the_transaction(operator: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came up after the first look at the plan counts, too."""
    applied(operator, owned(acme={"namespaces": {"old": {}}}))

    def late(*args: Any, **more: Any) -> Any:
        namespace_create(actor=SYSTEM, organisation=Organisation.objects.get(), slug="late")
        Namespace.objects.update(owner="team-a")
        return organisations_lock(*args, **more)

    monkeypatch.setattr("tenants.config.apply.organisations_lock", late)
    with pytest.raises(TooManyDeletes):
        config_apply(actor=SYSTEM, document=document_read(owned()), options=ApplyOptions(prune=True), max_deletes=3)
    assert Organisation.objects.get().state == "active"


def test_what_is_pruned_makes_room_for_what_comes(operator: Api) -> None:
    make_organisation("acme", "old")
    applied(operator, document(acme={"limits": {"max_namespaces": 2}}))
    applied(operator, document(acme={"namespaces": {"new": {}}}), prune=True, prune_organisations=["acme"])
    problems = refused(operator, document(acme={"namespaces": {"third": {}}}), 409)
    assert problems == {"organisations.acme.namespaces": "there would be 3, max_namespaces in its limits is 2"}


def test_levels_are_judged_as_they_stand_together(operator: Api) -> None:
    """In no order could these be published one by one."""
    make_organisation("acme", "a", "b")
    first = document(acme={"policy": {"max_age_seconds": 1000}, "namespaces": {"a": {"policy": {"ttl_seconds": 900}}}})
    applied(operator, first)
    second = document(
        acme={
            "policy": {"max_age_seconds": 100},
            "namespaces": {"a": {"policy": {"ttl_seconds": 90}}, "b": {"policy": {"ttl_seconds": 80}}},
        }
    )
    refusal = refused(operator, document(acme={"policy": {"max_age_seconds": 100}}), 422)
    assert refusal == {"organisations.acme.policy.ttl_seconds": "300 s is longer than max_age_seconds, which is 100 s"}
    second["organisations"]["acme"]["policy"]["ttl_seconds"] = 70
    applied(operator, second)
    third = document(
        acme={
            "policy": {"max_age_seconds": 5000, "ttl_seconds": 70},
            "namespaces": {"a": {"policy": {"ttl_seconds": 4000}}, "b": {"policy": {"ttl_seconds": 3000}}},
        }
    )
    applied(operator, third)


def test_a_level_is_judged_in_namespaces_the_document_does_not_name(operator: Api) -> None:
    make_organisation("acme", "a")
    applied(operator, document(acme={"namespaces": {"a": {"policy": {"ttl_seconds": 900}}}}))
    body = document(acme={"policy": {"max_age_seconds": 500}})
    message = "in acme/a: 900 s is longer than max_age_seconds, which is 500 s"
    assert refused(operator, body, 422) == {"organisations.acme.policy.ttl_seconds": message}
    assert [one["message"] for one in plan(operator, body)["problems"]] == [message]


def test_every_problem_is_named_at_once_with_its_place(operator: Api) -> None:
    make_organisation("acme", "chat")
    body = document(
        acme={
            "name": "A\u200bcme",
            "namespaces": {
                "chat": {"policy": {"ttl_seconds": 600, "max_age_seconds": 60}},
                "new": {"group": "nowhere", "policy": {"models": {"m": {"pin_share": 0.5, "limit_share": 0.1}}}},
            },
        }
    )
    found = refused(operator, body, 422)
    assert set(found) == {
        "organisations.acme.name",
        "organisations.acme.namespaces.chat.policy.ttl_seconds",
        "organisations.acme.namespaces.new.group",
        "organisations.acme.namespaces.new.policy.models.m.pin_share",
    }
    assert {one["field"] for one in plan(operator, body)["problems"]} == set(found)


@pytest.mark.parametrize("path", ["plan", "apply"])
def test_what_is_no_document_is_refused_with_its_places(operator: Api, path: str) -> None:
    body = {
        "version": 2,
        "organisations": {"Acme": {}, "acme": {"namespaces": {"chat": {"policy": {"ttl_seconds": 0, "tll": 1}}}}},
    }
    assert refused(operator, body, 422, path=path) == {
        "version": "must be 1: no other version of this format is known here",
        "organisations.Acme": "must be 1 to 63 of a-z, 0-9 and inner hyphens",
        "organisations.acme.namespaces.chat.policy.ttl_seconds": "Input should be greater than or equal to 1",
        "organisations.acme.namespaces.chat.policy.tll": "is no field here",
    }


def test_shares_are_judged_once_and_together(operator: Api) -> None:
    namespaces = {f"n{number}": {"policy": {"reserved_share": 0.3}} for number in range(4)}
    found = refused(operator, document(acme={"namespaces": namespaces}), 409)
    ((where, message),) = found.items()
    assert where == "organisations.acme.namespaces.n0.policy.reserved_share"
    assert "120.0% of each pool" in message
    del namespaces["n3"]
    applied(operator, document(acme={"namespaces": namespaces}))
    swapped = {"n0": {"policy": {}}, "n3": {"policy": {"reserved_share": 0.3}}}
    applied(operator, document(acme={"namespaces": swapped}))


def test_shares_of_organisations_not_named_count(operator: Api, h200: None) -> None:
    applied(operator, document(globex={"namespaces": {"default": {"policy": {"reserved_share": 0.8}}}}))
    body = document(acme={"policy": {"reserved_share": 0.2}})
    assert list(refused(operator, body, 409)) == ["organisations.acme.policy.reserved_share"]
    body["organisations"]["acme"]["namespaces"] = {"default": {"group": "h200"}}
    applied(operator, body)
    moved = document(acme={"namespaces": {"default": {"group": "default"}}})
    assert list(refused(operator, moved, 409)) == ["policy.reserved_share"]


def test_a_failure_in_the_middle_leaves_nothing_behind(
    operator: Api, h200: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was written before, in every table."""

    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(policies, "groups_check", fail)
    with nothing_changes():
        response = operator.post("/config/apply", {"document": whole()}, Idempotency_Key="once")
    assert response.status_code == 500
    assert not IdempotentRequest.objects.exists()


def test_a_crash_between_any_two_statements_leaves_nothing_half_done(h200: None) -> None:
    actor = replace(SYSTEM, name="operator")
    first = owned(acme={"name": "Acme", "namespaces": {"old": {}}}, initech={})
    config_apply(actor=actor, document=document_read(first))
    level_of(FLEET)
    wanted, options = document_read({**whole(), "owner": "team-a"}), ApplyOptions(prune=True)
    assert crashed_everywhere(lambda: config_apply(actor=actor, document=wanted, options=options)) > 40


def outcome(result: Any) -> str:
    return type(result).__name__


@pytest.mark.django_db(transaction=True)
def test_appliers_publishers_and_creators_at_once_never_wait_in_a_circle() -> None:
    """Whoever loses is told so; nobody is left with half."""
    made = {slug: make_organisation(slug, "a", "b") for slug in ("acme", "globex", "initech")}
    places = [Place(one, one.namespaces.get(slug="a")) for one in made.values()]

    def body(turn: int) -> ConfigDocument:
        parts = {"policy": {"ttl_seconds": 60 + turn}, "limits": {"max_pins": turn + 1}}
        namespaces = {"a": {"policy": {"reserved_share": 0.01 * (turn + 1)}}, f"n{turn}": {}}
        return document_read(document(**{slug: {**parts, "namespaces": namespaces} for slug in made}))

    def apply(turn: int) -> Any:
        return lambda: config_apply(actor=SYSTEM, document=body(turn))

    for turn in range(3):
        deeds = [apply(turn), apply(turn + 10), apply(turn + 20)]
        deeds += [lambda place=place: publish(place, reserved_share=0.02) for place in places]
        deeds += [
            lambda one=one, turn=turn: namespace_create(actor=SYSTEM, organisation=one, slug=f"c{turn}")
            for one in made.values()
        ]
        deeds += [lambda one=one: purge(actor=SYSTEM, organisation=one) for one in made.values()]
        found = at_once(*deeds)
        assert {outcome(one) for one in found} <= {"Applied", "Published", "Namespace", "Operation"}, found
    assert audit_verify().is_sound
    assert Namespace.objects.count() == 3 * (3 + 9 + 3)


def test_a_plan_that_is_no_longer_true_is_refused(operator: Api) -> None:
    make_organisation("acme", "chat")
    body = document(acme={"namespaces": {"chat": {"policy": {"ttl_seconds": 60}}}})
    seen = plan(operator, body)["hash"]
    assert seen == plan(operator, body)["hash"]
    operator.put("/orgs/acme/policy", {"policy": {"ttl_seconds": 100}}, seen=0)
    assert plan(operator, body)["hash"] != seen
    assert list(refused(operator, body, 412, expected_plan=seen)) == ["expected_plan"]


def test_a_repeated_request_is_one_deed(operator: Api) -> None:
    body = {"document": document(acme={"policy": {"ttl_seconds": 60}})}
    first = operator.post("/config/apply", body, Idempotency_Key="a")
    with nothing_changes():
        second = operator.post("/config/apply", body, Idempotency_Key="a")
    assert (said(first), second["Idempotency-Replayed"]) == (said(second), "true")


def test_names_that_read_the_same_are_the_same(operator: Api) -> None:
    applied(operator, document(acme={"name": "  Cafe\u0301 ", "namespaces": {"chat": {"name": " Cafe\u0301"}}}))
    assert Organisation.objects.get().name == "Caf\u00e9"
    assert applied(operator, document(acme={"name": "Cafe\u0301"}))["changes"] == []


def test_the_audit_trail_has_the_verbs_of_the_plan(operator: Api, h200: None) -> None:
    before = AuditRecord.objects.count()
    planned = plan(operator, whole())
    applied(operator, whole())
    records = AuditRecord.objects.order_by("seq").values_list("verb", "target")[before:]
    assert set(deeds(planned)) <= {(verb, target) for verb, target in records}


# States nobody thought of.

SLUGS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,3}[a-z0-9])?", fullmatch=True)
NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=9)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "prefix_caching": st.booleans(),
        "ttl_seconds": st.integers(1, 100),
        "max_age_seconds": st.none() | st.integers(300, 31_536_000),
        "kv_dtype": st.sampled_from(["fp8", "int8", "k8v4"]),
        "request_kv_dtypes": st.lists(st.sampled_from(["int4", "bf16"]), unique=True),
        "reserved_share": st.sampled_from([0, -0.0, 1e-9, 0.003]),
        "limit_share": st.floats(0.5, 1),
        "weight": st.integers(1, 1000) | st.floats(0.001, 1000),
    },
)
POLICIES = st.builds(
    lambda fields, models: {**fields, **({"models": models} if models else {})},
    FIELDS,
    st.dictionaries(st.sampled_from(["qwen3-8b", "org/model:1"]), FIELDS, max_size=2),
)
NAMESPACES = st.none() | st.fixed_dictionaries({}, optional={"name": NAMES, "policy": POLICIES})
ORGANISATIONS = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "name": NAMES,
        "state": st.sampled_from(["active", "suspended"]),
        "policy": POLICIES,
        "bounds": st.sampled_from(
            [{}, {"ttl_seconds": {"max": 7}}, {"weight": {"min": 0.5}, "offload": {"allowed": []}}]
        ),
        "limits": st.sampled_from([{}, {"max_pins": 3}, {"requests_per_minute": None}]),
        "namespaces": st.dictionaries(SLUGS, NAMESPACES, max_size=4),
    },
)
DOCUMENTS = st.fixed_dictionaries(
    {"version": st.just(1), "organisations": st.dictionaries(SLUGS, ORGANISATIONS, max_size=3)},
    optional={"policy": POLICIES},
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(DOCUMENTS, DOCUMENTS)
def test_whatever_was_applied_is_planned_empty_and_exported_unchanged(
    operator: Api, first: dict[str, Any], second: dict[str, Any]
) -> None:
    with transaction.atomic():
        for body in (first, second):
            body = {**body, "owner": "team-a"}
            applied(operator, body, prune=True, max_deletes=1000)
            assert plan(operator, body, prune=True)["changes"] == []
            assert plan(operator, exported(operator))["changes"] == []
            mine = exported(operator, "?owner=team-a")
            assert set(mine["organisations"]) == set(exported(operator)["organisations"]) == set(body["organisations"])
            assert plan(operator, mine, prune=True)["changes"] == []
        transaction.set_rollback(True)


# An organisation's own keys.


def test_a_key_applies_its_own_organisation(acme: Api) -> None:
    done = applied(
        acme,
        document(
            acme={"name": "Acme!", "policy": {"ttl_seconds": 60}, "namespaces": {"x": {"policy": {"kv_dtype": "int4"}}}}
        ),
    )
    assert len(done["changes"]) == 4
    assert said(acme.get(f"/operations/{done['operation']}"))["scope"] == "acme"
    assert plan(acme, exported(acme), prune=True, prune_organisations=["acme"])["changes"] == []


def test_not_yours_and_not_there_look_the_same(acme: Api) -> None:
    make_organisation("globex")
    scope: dict[str, Any]
    for slug in ("globex", "initech"):
        for scope in ({}, {"prune": True}, {"prune": True, "prune_organisations": [slug]}, {"take_ownership": True}):
            assert refused(acme, owned(**{slug: {}}), 422, **scope) == {
                f"organisations.{slug}": "there is no such organisation"
            }
        scope = {"prune": True, "prune_organisations": [slug]}
        assert refused(acme, document(acme={}), 409, **scope) == {
            f"organisations.{slug}": "--org (`prune_organisations`) names it, the file does not"
        }
    assert acme.get("/config?organisation=globex").status_code == 404
    assert acme.get("/config?organisation=initech").status_code == 404


def test_what_is_the_operators_is_refused_by_name(acme: Api, h200: None) -> None:
    body = whole()
    del body["organisations"]["globex"]
    assert {
        field: message for field, message in refused(acme, body, 403).items() if "operators" in message
    } == dict.fromkeys(
        (
            "policy",
            "organisations.acme.state",
            "organisations.acme.bounds",
            "organisations.acme.limits",
            "organisations.acme.namespaces.chat.group",
        ),
        "only operators of this fleet may change this",
    )


def test_repeating_what_the_operator_set_is_no_offence(operator: Api, acme: Api, h200: None) -> None:
    body = whole()
    del body["policy"], body["organisations"]["globex"], body["organisations"]["acme"]["state"]
    applied(operator, body)
    assert plan(acme, body) == {**plan(acme, body), "changes": [], "problems": []}
    assert set(exported(acme)["organisations"]["acme"]) == {"name", "policy", "namespaces"}


def test_bounds_hold_for_a_key(operator: Api, acme: Api) -> None:
    applied(operator, document(acme={"bounds": {"ttl_seconds": {"max": 100}}}))
    body = document(acme={"namespaces": {"default": {"policy": {"ttl_seconds": 101, "weight": 2}}}})
    assert refused(acme, body, 403) == {
        "organisations.acme.namespaces.default.policy.ttl_seconds": "101 is more than 100, the most you may choose",
        "organisations.acme.namespaces.default.policy.weight": "only an operator may change this",
    }
    applied(operator, body)


def test_a_key_that_prunes_deletes_namespaces_of_its_own_only(acme: Api) -> None:
    make_organisation("globex")
    applied(acme, document(acme={"namespaces": {"a": {}, "b": {}}}))
    found = plan(acme, document(acme={"namespaces": {"a": {}}}), prune=True, prune_organisations=["acme"])
    assert deeds(found) == [("namespace.delete", "acme/b")]
    applied(acme, owned(acme={"namespaces": {"b": {}}}), take_ownership=True)
    found = plan(acme, owned(), prune=True)
    assert deeds(found) == [("namespace.delete", "acme/b")]


def test_each_change_needs_the_scope_it_needs_alone() -> None:
    organisation = make_organisation("acme")
    editor = Api(make_key(organisation, "policy:write"), Client())
    reader = Api(make_key(organisation, "policy:read"), Client())
    body = document(acme={"policy": {"ttl_seconds": 60}, "namespaces": {"new": {}}})
    assert refused(editor, body, 403) == {
        "organisations.acme.namespaces.new": "namespace.create needs the scope admin, which your token lacks"
    }
    assert refused(reader, body, 403) == {"scope": "policy:write is needed"}
    assert plan(reader, body)["problems"] == []
    applied(editor, document(acme={"policy": {"ttl_seconds": 60}}))


def test_an_operators_token_needs_scopes_too() -> None:
    user = make_user(email="op@luminet.example", is_operator=True)
    editor = Api(make_operator_token(user, "policy:write"), Client())
    assert list(refused(editor, document(acme={}), 403)) == ["organisations.acme"]
    applied(editor, {"version": 1, "policy": {"ttl_seconds": 60}})


def test_a_key_bound_to_namespaces_plans_and_applies_nothing() -> None:
    organisation = make_organisation("acme", "chat")
    bound = Api(make_key(organisation, "policy:write", namespaces=[organisation.namespaces.get(slug="chat")]), Client())
    for path in ("plan", "apply"):
        refused(bound, document(acme={}), 403, path=path)
    assert bound.get("/config").status_code == 403


def test_a_suspended_organisation_reads_and_changes_nothing(acme: Api) -> None:
    organisation_update(actor=SYSTEM, organisation=Organisation.objects.get(), expected=None, state="suspended")
    assert exported(acme)["organisations"]["acme"]["name"] == "Acme"
    assert len(plan(acme, document(acme={"policy": {"ttl_seconds": 9}}))["changes"]) == 1
    refused(acme, document(acme={"policy": {"ttl_seconds": 9}}), 403)
    refused(acme, document(acme={}), 403)


# Size.


def test_the_schema_is_served_to_every_token(acme: Api) -> None:
    assert said(acme.get("/config/schema"))["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_more_namespaces_than_there_is_room_for_are_judged_no_further(acme: Api) -> None:
    namespaces = {f"n{number}": {"policy": {"ttl_seconds": 60}} for number in range(5_000)}
    found = plan(acme, document(acme={"namespaces": namespaces}))
    message = "there would be 5001, max_namespaces in its limits is 5000"
    assert found["problems"] == [{"field": "organisations.acme.namespaces", "message": message}]
    assert (found["changes"], found["summary"]) == ([], {"create": 0, "change": 0, "delete": 0, "objects_deleted": 0})


@pytest.mark.parametrize("path", ["plan", "apply"])
def test_a_document_names_so_many_organisations_and_namespaces_and_no_more(acme: Api, path: str) -> None:
    too_many = [
        document(acme={"namespaces": {f"n{number}": None for number in range(20_000)}}),
        document(**{f"o{number}": {"namespaces": {"a": {}, "b": {}}} for number in range(7_000)}),
        document(**{f"o{number}": None for number in range(20_001)}),
    ]
    for body, count in zip(too_many, (20_001, 21_000, 20_001), strict=True):
        assert refused(acme, body, 422, path=path) == {
            "organisations": f"{count} organisations and namespaces, 20000 is the most in one document"
        }


def test_of_many_problems_a_plan_tells_as_many_as_a_refusal(acme: Api) -> None:
    assert len(plan(acme, document(**{f"o{number}": None for number in range(300)}))["problems"]) == 100
    namespaces = {f"n{number}": {"policy": {"ttl_seconds": 90_000}} for number in range(300)}
    assert len(plan(acme, document(acme={"namespaces": namespaces}))["problems"]) == 100


def test_of_many_differences_a_plan_tells_some_and_how_many_more(
    operator: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that takes a policy back may be about five hundred fields."""
    models = {f"m{number}": {"ttl_seconds": 60, "weight": 2, "offload": "host"} for number in range(50)}
    applied(operator, document(acme={"namespaces": {"a": {"policy": {"models": models}}}}))
    body = document(acme={"namespaces": {"a": {"policy": {}}, "b": {"policy": {"ttl_seconds": 60}}}})

    def told() -> list[tuple[int, int]]:
        found = plan(operator, body)["changes"]
        return [(len(one["differences"]), one["more_differences"]) for one in found if one["verb"] == "policy.publish"]

    assert told() == [(100, 50), (1, 0)]
    monkeypatch.setattr("tenants.config.plan.DIFFERENCES_AT_MOST", 20)
    assert told() == [(20, 130), (0, 1)]
    monkeypatch.undo()
    before = plan(operator, body)["hash"]
    monkeypatch.setattr("tenants.config.plan.DIFFERENCES_AT_MOST", 0)
    assert plan(operator, body)["hash"] == before


def test_what_namespaces_inherit_costs_a_plan_next_to_nothing_for_each() -> None:
    """Fifty models at the organisation were once worked through anew for every namespace below."""
    actor = actor_of(make_key(make_organisation("acme"), "policy:read"))

    def calls(models: int) -> int:
        policy = {"models": {f"m{number}": {"weight": 1.0, "kv_dtype": "int8"} for number in range(models)}}
        namespaces = {f"n{number}": {"policy": {"ttl_seconds": 60 + number}} for number in range(200)}
        body = document_read(document(acme={"policy": policy, "namespaces": namespaces}))
        counted = Profile()
        counted.runcall(config_plan, actor=actor, document=body)
        return sum(one.callcount for one in counted.getstats())

    calls(1)
    assert calls(50) < 2 * calls(1)


def test_a_plan_costs_the_same_number_of_queries_whatever_its_size(operator: Api) -> None:
    def queries(organisations: int, namespaces: int) -> int:
        body = document(
            **{
                f"o{one}": {
                    "namespaces": {f"n{two}": {"policy": {"reserved_share": 0.001}} for two in range(namespaces)}
                }
                for one in range(organisations)
            }
        )
        with CaptureQueriesContext(connection) as captured:
            plan(operator, {**body, "owner": "team-a", "policy": {"ttl_seconds": 400}}, prune=True)
        return len(captured)

    queries(1, 1)
    assert queries(1, 1) == queries(7, 9)


def test_a_thousand_namespaces_are_applied_with_few_queries(operator: Api) -> None:
    namespaces = {f"n{one}": {"policy": {"ttl_seconds": 60 + one}} for one in range(1000)}
    with CaptureQueriesContext(connection) as captured:
        done = applied(operator, document(acme={"namespaces": namespaces}))
    assert len(done["changes"]) == 2001
    assert len(captured) < 150
    with nothing_changes():
        applied(operator, document(acme={"namespaces": namespaces}))
