import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tenants.actor import REST_SCOPES, Actor, ActorKind
from tenants.config.document import ConfigDocument, config_schema, document_read
from tenants.config.overlay import Blame, Overlay
from tenants.config.ownership import NO_SCOPE, ApplyOptions
from tenants.config.plan import Plan, changes_planned, summary
from tenants.config.state import NamespaceState, OrganisationState, State
from tenants.errors import InvalidFields
from tests.support.case_names import case_name

OPERATOR = Actor(ActorKind.OPERATOR_TOKEN, "1", "op", REST_SCOPES)
KEY = Actor(ActorKind.KEY, "1", "key", REST_SCOPES, organisation_id=7)
CHAT = NamespaceState("chat", 2, "Chat", "default", 1, 3, {"ttl_seconds": 60})
ACME = OrganisationState(
    "acme", 7, "Acme", revision=1, namespaces={"chat": CHAT, "default": NamespaceState("default", 1, revision=1)}
)
STATE = State(2, {"ttl_seconds": 400}, {"acme": ACME}, {"default": 1, "h200": 2})

GOOD: list[dict[str, Any]] = [
    {"version": 1},
    {"version": 1, "policy": {}, "organisations": {}},
    {"version": 1, "organisations": {"acme": None, "0": {"namespaces": {"default": None, "a-b": {"policy": {}}}}}},
    {"version": 1, "organisations": {"acme": {"limits": {"tokens_per_minute": None}, "bounds": {}, "state": "active"}}},
    {"version": 1, "policy": {"max_age_seconds": None, "models": {"org/m:1": {"weight": 2}}}},
]
BAD: list[tuple[Any, set[str]]] = [
    ([], {"document"}),
    ({}, {"version"}),
    ({"version": 2}, {"version"}),
    ({"version": True}, {"version"}),
    ({"version": "1"}, {"version"}),
    ({"version": 1, "organizations": {}}, {"organizations"}),
    ({"version": 1, "policy": None}, {"policy"}),
    ({"version": 1, "organisations": {"acme": {"namespaces": None, "limits": None}}}, {
        "organisations.acme.namespaces", "organisations.acme.limits",
    }),
    ({"version": 1, "organisations": {"A": {}}}, {"organisations.A"}),
    ({"version": 1, "organisations": {"acme": {"name": ""}}}, {"organisations.acme.name"}),
    ({"version": 1, "organisations": {"acme": {"state": "deleted"}}}, {"organisations.acme.state"}),
    ({"version": 1, "organisations": {"acme": {"namespaces": {"-": {}, "b": {"policy": {"ttl_seconds": "9"}}}}}}, {
        "organisations.acme.namespaces.-", "organisations.acme.namespaces.b.policy.ttl_seconds",
    }),
    ({"version": 1, "policy": {"models": {"a b": {}, "m": {"models": {}}}}}, {
        "policy.models.a b", "policy.models.m.models",
    }),
]  # fmt: skip


def read(**parts: Any) -> ConfigDocument:
    return document_read({"version": 1, **parts})


def planned(actor: Actor, document: ConfigDocument, *, state: State = STATE, **options: Any) -> tuple[Plan, Overlay]:
    overlay = Overlay(actor, ApplyOptions(**options), state)
    return Plan(tuple(changes_planned(state, overlay.after(document))), ()), overlay


@pytest.mark.parametrize("document", GOOD, ids=json.dumps)
def test_what_may_stand_in_a_file_fits_the_model_and_the_schema(document: dict[str, Any]) -> None:
    document_read(document)
    Draft202012Validator(config_schema()).validate(document)


def test_what_may_not_is_refused_by_both_and_every_place_is_named(subtests: pytest.Subtests) -> None:
    for document, places in BAD:
        with subtests.test(msg=case_name(document, places)):
            with pytest.raises(InvalidFields) as caught:
                document_read(document)
            assert {one.field for one in caught.value.problems} == places
            if document != {
                "version": True
            }:  # to JSON Schema, as to Python, true is no 1; the validator is not so sure
                assert not Draft202012Validator(config_schema()).is_valid(document)


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.dictionaries(st.text(), inner))
)
def test_anything_at_all_is_a_document_or_refused_as_none(value: Any) -> None:
    for candidate in (value, {"version": 1, "organisations": value}, {"version": 1, "policy": value}):
        with contextlib.suppress(InvalidFields):
            document_read(candidate)


def test_the_schema_is_sound_and_describes_every_part() -> None:
    schema = config_schema()
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"].endswith("2020-12/schema")
    for definition in (schema, *schema["$defs"].values()):
        assert definition["title"]
        assert definition["description"]
        assert definition["additionalProperties"] is False
    for name in ("NamespaceConfig", "OrganisationConfig"):
        parts = schema["$defs"][name]["properties"].values()
        assert all(part["description"] and "default" not in part for part in parts)
    Draft202012Validator(schema).validate(schema["examples"][0])


def test_a_part_left_out_is_not_touched() -> None:
    for document in (read(), read(organisations={}), read(organisations={"acme": {"namespaces": {"chat": None}}})):
        assert planned(OPERATOR, document)[0].changes == ()


def test_what_is_not_there_is_created_and_called_like_its_slug() -> None:
    plan, _ = planned(OPERATOR, read(organisations={"globex": {"namespaces": {"x": {"name": "X"}}}}))
    assert [(one.verb, one.place, one.after) for one in plan.changes] == [
        ("organisation.create", "globex", {"name": "globex", "state": "active"}),
        ("namespace.create", "globex/x", {"name": "X", "group": "default"}),
    ]


def test_what_differs_is_changed_with_before_and_after() -> None:
    document = read(organisations={"acme": {"namespaces": {"chat": {"name": "", "group": "h200", "policy": {}}}}})
    update, publish = planned(OPERATOR, document)[0].changes
    assert (update.verb, update.revision) == ("namespace.update", 1)
    assert [(one.field, one.before, one.after) for one in update.differences] == [
        ("group", "default", "h200"),
        ("name", "Chat", ""),
    ]
    assert (publish.verb, publish.revision, publish.inherited) == ("policy.publish", 3, (2, 0))
    assert [(one.field, one.before, one.after) for one in publish.differences] == [("ttl_seconds", 60, 400)]


ORG: Any = {"prune": True, "prune_organisations": frozenset({"acme"})}
MINE, THEIRS = "team-a", "team-b"


def owned(**namespaces: str) -> State:
    """acme, which team-a owns, with its namespaces and their owners."""
    found = {slug: NamespaceState(slug, 9, revision=1, owner=owner) for slug, owner in namespaces.items()}
    return replace(STATE, organisations={"acme": replace(ACME, owner=MINE, namespaces=found)})


def deeds(plan: Plan) -> list[tuple[str, str]]:
    return [(one.verb, one.place) for one in plan.changes]


@pytest.mark.parametrize(
    ("options", "owner", "field"),
    [
        ({"prune": True}, None, "prune"),
        ({"prune_organisations": frozenset({"acme"})}, "team-a", "prune_organisations"),
        ({"take_ownership": True}, None, "take_ownership"),
    ],
)
def test_options_without_effect_are_refused(options: dict[str, Any], owner: str | None, field: str) -> None:
    document = read(owner=owner) if owner else read()
    with pytest.raises(InvalidFields) as caught:
        ApplyOptions(**options).check(document)
    assert [one.field for one in caught.value.problems] == [field]
    assert field != "prune" or caught.value.problems[0].message == NO_SCOPE
    ApplyOptions(prune=True).check(read(owner=MINE))
    ApplyOptions(prune=True, prune_organisations=frozenset({"acme"})).check(read())


def test_pruning_an_organisation_deletes_unnamed_namespaces() -> None:
    plan, _ = planned(OPERATOR, read(organisations={"acme": {"namespaces": {}}}), **ORG)
    assert deeds(plan) == [("namespace.delete", "acme/chat")]
    for unmanaged in (read(), read(organisations={"acme": {}})):
        assert planned(OPERATOR, unmanaged, **ORG)[0].changes == ()


def test_pruning_an_organisation_keeps_owned_namespaces() -> None:
    state = owned(default="", mine=MINE, free="")
    document = read(organisations={"acme": {"namespaces": {}}})
    assert deeds(planned(OPERATOR, document, state=state, **ORG)[0]) == [("namespace.delete", "acme/free")]


def test_pruning_never_deletes_unowned_organisations() -> None:
    for actor in (OPERATOR, KEY):
        for scope in ({}, {"owner": THEIRS}):
            plan, overlay = planned(actor, read(organisations={}, **scope), **ORG)
            assert plan.changes == ()
            assert [one.field for one in overlay.problems] == ["organisations.acme"]
    plan, overlay = planned(OPERATOR, read(owner=THEIRS, organisations={}), state=owned(default=""), prune=True)
    assert (plan.changes, overlay.problems) == ((), [])


def test_pruning_by_owner_deletes_what_it_owns() -> None:
    state = owned(default="", mine=MINE, theirs=THEIRS, free="")
    document = read(owner=MINE, organisations={"acme": {"namespaces": {"default": None}}})
    assert deeds(planned(OPERATOR, document, state=state, prune=True)[0]) == [("namespace.delete", "acme/mine")]
    plan, _ = planned(OPERATOR, read(owner=MINE, organisations={}), state=owned(default="", mine=MINE), prune=True)
    assert [(one.verb, one.place, one.deletes) for one in plan.changes] == [("organisation.delete", "acme", 3)]


@pytest.mark.parametrize(("actor", "pruned"), [(OPERATOR, "acme/operators"), (KEY, "acme/customers")])
def test_pruning_deletes_nothing_of_equal_owners(actor: Actor, pruned: str) -> None:
    """An operator's and a customer's file of the same owner, also in organisations that they do not name."""
    state = owned(default="", mine=MINE, operators=THEIRS, customers=f"acme/{THEIRS}")
    for document in (
        read(owner=THEIRS, organisations={}),
        read(owner=THEIRS, organisations={"acme": {"namespaces": {}}}),
    ):
        plan, overlay = planned(actor, document, state=state, prune=True)
        assert (deeds(plan), overlay.problems) == ([("namespace.delete", pruned)], [])


@pytest.mark.parametrize(
    ("actor", "now", "label", "words"),
    [
        (OPERATOR, f"acme/{MINE}", MINE, "belongs to acme/team-a, not to team-a:"),
        (KEY, MINE, f"acme/{MINE}", "belongs to team-a (operators), not to acme/team-a:"),
        (KEY, f"acme/{THEIRS}", f"acme/{MINE}", "belongs to acme/team-b, not to acme/team-a:"),
    ],
)
def test_equal_owners_must_take_over_explicitly(actor: Actor, now: str, label: str, words: str) -> None:
    document = read(owner=MINE, organisations={"acme": {"namespaces": {"chat": {"name": "Chat"}}}})
    plan, overlay = planned(actor, document, state=owned(default="", chat=now))
    assert [(one.blame, one.field) for one in overlay.problems] == [
        (Blame.CONFLICT, "organisations.acme.namespaces.chat")
    ]
    assert words in overlay.problems[0].message
    assert [one.after["owner"] for one in plan.changes] == [now]
    plan, overlay = planned(actor, document, state=owned(default="", chat=now), take_ownership=True)
    assert ([one.after["owner"] for one in plan.changes], overlay.problems) == ([label], [])


def test_organisation_of_owner_keeps_customers_namespaces() -> None:
    state = owned(default="", theirs=f"acme/{MINE}")
    _, overlay = planned(OPERATOR, read(owner=MINE, organisations={}), state=state, prune=True)
    assert [one.field for one in overlay.problems] == ["organisations.acme"]
    assert "(theirs)" in overlay.problems[0].message


@pytest.mark.parametrize("strange", [{"free": ""}, {"theirs": THEIRS}, {"default": THEIRS}])
def test_organisations_with_others_namespaces_stay(strange: dict[str, str]) -> None:
    state = owned(**{"default": "", "mine": MINE, **strange})
    _, overlay = planned(OPERATOR, read(owner=MINE, organisations={}), state=state, prune=True)
    assert [(one.blame, one.field) for one in overlay.problems] == [(Blame.CONFLICT, "organisations.acme")]
    assert next(iter(strange)) in overlay.problems[0].message


def test_scope_narrows_what_an_owner_prunes() -> None:
    state = owned(default="", mine=MINE)
    scope: Any = {"prune": True, "prune_organisations": frozenset({"globex"})}
    plan, _ = planned(OPERATOR, read(owner=MINE, organisations={"globex": {}}), state=state, **scope)
    assert deeds(plan) == [("organisation.create", "globex")]


def test_unowned_objects_are_taken_only_when_asked() -> None:
    namespaces = {"chat": {"policy": {"ttl_seconds": 60}}, "new": None}
    document = read(owner=MINE, organisations={"acme": {"policy": {"ttl_seconds": 9}, "namespaces": namespaces}})
    plan, overlay = planned(OPERATOR, document)
    assert [(one.blame, one.field) for one in overlay.problems] == [
        (Blame.CONFLICT, "organisations.acme"),
        (Blame.CONFLICT, "organisations.acme.namespaces.chat"),
    ]
    assert all("no file owns it: --take-ownership" in one.message for one in overlay.problems)
    plan, overlay = planned(OPERATOR, document, take_ownership=True)
    assert overlay.problems == []
    assert [(one.verb, one.place, one.after["owner"]) for one in plan.changes if one.verb != "policy.publish"] == [
        ("organisation.update", "acme", MINE),
        ("namespace.update", "acme/chat", MINE),
        ("namespace.create", "acme/new", MINE),
    ]
    assert [(one.field, one.before, one.after) for one in plan.changes[0].differences] == [("owner", None, MINE)]


@pytest.mark.parametrize(("actor", "label"), [(OPERATOR, MINE), (KEY, f"acme/{MINE}")])
def test_new_and_default_namespaces_need_no_consent(actor: Actor, label: str) -> None:
    document = read(owner=MINE, organisations={"acme": {"namespaces": {"new": None, "default": {"name": "All"}}}})
    plan, overlay = planned(actor, document)
    assert overlay.problems == []
    assert [(one.verb, one.place, one.after["owner"]) for one in plan.changes] == [
        ("namespace.update", "acme/default", label),
        ("namespace.create", "acme/new", label),
    ]


@pytest.mark.parametrize(
    ("actor", "config"),
    [(OPERATOR, {"namespaces": {"default": None}}), (KEY, {"name": "Acme", "namespaces": {"default": None}})],
)
def test_naming_namespaces_claims_no_organisation(actor: Actor, config: dict[str, Any]) -> None:
    assert planned(actor, read(owner=MINE, organisations={"acme": config}))[0].changes == ()


def test_others_objects_are_taken_only_when_asked() -> None:
    document = read(owner=THEIRS, organisations={"acme": {"name": "Acme", "namespaces": {"mine": {"name": "M"}}}})
    plan, overlay = planned(OPERATOR, document, state=owned(default="", mine=MINE))
    assert [(one.blame, one.field) for one in overlay.problems] == [
        (Blame.CONFLICT, "organisations.acme"),
        (Blame.CONFLICT, "organisations.acme.namespaces.mine"),
    ]
    assert all(MINE in one.message for one in overlay.problems)
    plan, overlay = planned(OPERATOR, document, state=owned(default="", mine=MINE), take_ownership=True)
    assert overlay.problems == []
    assert [(one.place, one.after["owner"]) for one in plan.changes] == [("acme", THEIRS), ("acme/mine", THEIRS)]


def test_files_without_owner_leave_owners_alone() -> None:
    document = read(organisations={"acme": {"name": "A", "namespaces": {"mine": {"name": "M"}}}})
    plan, overlay = planned(OPERATOR, document, state=owned(default="", mine=MINE))
    assert overlay.problems == []
    assert [one.after["owner"] for one in plan.changes] == [MINE, MINE]


def test_deletions_are_tied_to_their_contents() -> None:
    document = read(owner=MINE, organisations={})
    hashes = {
        planned(OPERATOR, document, state=state, prune=True)[0].hash
        for state in (
            owned(default="", a=MINE),
            owned(default="", b=MINE),
            replace(
                owned(default=""), organisations={"acme": replace(ACME, owner=MINE, namespaces={}, limits_revision=1)}
            ),
            replace(owned(default=""), organisations={"acme": replace(ACME, owner=MINE, namespaces={})}),
        )
    }
    assert len(hashes) == 4


def test_new_levels_warn_of_no_cold_cache() -> None:
    policy = {"policy": {"kv_dtype": "int8", "limit_share": 0}}
    document = read(organisations={"globex": {**policy, "namespaces": {"x": {"policy": {"kv_dtype": "fp8"}}}}})
    warnings = [one.warnings for one in planned(OPERATOR, document)[0].changes if one.verb == "policy.publish"]
    assert [["limit_share" in one for one in each] for each in warnings] == [[True], [True]]
    (change,) = planned(OPERATOR, read(organisations={"acme": {"namespaces": {"chat": policy}}}))[0].changes
    assert any("cold cache" in one for one in change.warnings)


def test_what_only_operators_may_is_named_for_everybody_else() -> None:
    document = read(policy={}, organisations={"acme": {"state": "suspended", "limits": {"max_pins": 1}}, "globex": {}})
    plan, overlay = planned(KEY, document)
    assert plan.changes == ()
    assert {(one.blame, one.field) for one in overlay.problems} == {
        (Blame.FORBIDDEN, "policy"),
        (Blame.FORBIDDEN, "organisations.acme.state"),
        (Blame.FORBIDDEN, "organisations.acme.limits"),
        (Blame.INVALID, "organisations.globex"),
    }
    assert (
        planned(KEY, read(policy={"ttl_seconds": 400}, organisations={"acme": {"state": "active"}}))[1].problems == []
    )


def test_an_unknown_group_is_named() -> None:
    document = read(organisations={"acme": {"namespaces": {"chat": {"group": "nowhere"}}}})
    assert [one.field for one in planned(OPERATOR, document)[1].problems] == [
        "organisations.acme.namespaces.chat.group"
    ]


def test_the_hash_is_of_the_changes_and_of_what_they_are_based_on() -> None:
    document = read(organisations={"acme": {"policy": {"ttl_seconds": 9}}})
    plan, _ = planned(OPERATOR, document)
    assert plan.hash == planned(OPERATOR, document)[0].hash
    assert plan.hash != planned(OPERATOR, read(organisations={"acme": {"policy": {"ttl_seconds": 8}}}))[0].hash
    moved = State(3, STATE.policy, STATE.organisations, STATE.groups)
    after = Overlay(OPERATOR, ApplyOptions(), moved).after(document)
    assert plan.hash != Plan(tuple(changes_planned(moved, after)), ()).hash


def test_changes_are_counted_by_what_they_do() -> None:
    document = read(organisations={"acme": {"name": "A", "namespaces": {"new": {}}}})
    plan, _ = planned(OPERATOR, document, prune=True, prune_organisations=frozenset({"acme"}))
    assert summary(plan.changes) == {"create": 1, "change": 1, "delete": 1}
