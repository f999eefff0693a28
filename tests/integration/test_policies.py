"""Publishing at the three levels: judged, numbered and recorded, or nothing. What policies mean is tests/unit."""

from typing import Any

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine_agent.contracts.protocol import canonical_json
from tenants.actor import SYSTEM, Actor
from tenants.bounds import Bounds
from tenants.errors import (
    FieldProblem,
    InvalidFields,
    OutOfBounds,
    SharesExceeded,
    StaleRevision,
    TenantsError,
)
from tenants.levels import FLEET, Place, level_of
from tenants.models import AgentGroup, AuditRecord, Organisation, PolicyRevision
from tenants.policy import Policy
from tenants.selectors import Preview, policy_in_force, policy_preview
from tenants.services.namespaces import namespace_delete, namespace_update
from tenants.services.organisations import bounds_put
from tenants.services.policies import policy_rollback
from tests.database.factories import actor_of, make_agent, make_group, make_namespace, publish
from tests.support.threads import at_once, failures, while_uncommitted
from tests.web.api import Api, make_key, make_organisation, said

pytestmark = pytest.mark.django_db
at_once_on_the_database = pytest.mark.django_db(transaction=True)


def make_place(slug: str = "acme", namespace: str = "chat", group: AgentGroup | None = None) -> Place:
    organisation = make_organisation(slug)
    return Place(organisation, make_namespace(organisation, namespace, group=group))


def above(place: Place) -> Place:
    return Place(place.organisation)


def key_actor(place: Place, *scopes: str, is_bound: bool = False) -> Actor:
    assert place.organisation is not None
    bound = [place.namespace] if is_bound and place.namespace is not None else None
    return actor_of(make_key(place.organisation, *scopes, namespaces=bound))


def bound(place: Place, **bounds: Any) -> Place:
    assert place.organisation is not None
    given = Bounds.model_validate(bounds)
    return Place(
        bounds_put(actor=SYSTEM, organisation=place.organisation, bounds=given, expected=None), place.namespace
    )


def preview(place: Place, *, actor: Actor = SYSTEM, **fields: Any) -> Preview:
    return policy_preview(actor=actor, place=place, policy=Policy.model_validate(fields))


def refusal(place: Place, *, actor: Actor = SYSTEM, **fields: Any) -> dict[str, str]:
    """The problems with which a publish is refused. It changes nothing, and its preview told of them."""
    before = (level_of(place).revision, AuditRecord.objects.count())
    problems: set[FieldProblem] = set()
    try:
        publish(place, actor=actor, **fields)
    except (OutOfBounds, InvalidFields, SharesExceeded) as error:
        problems.update(error.problems)
    assert (level_of(place).revision, AuditRecord.objects.count()) == before
    assert problems
    assert problems <= set(preview(place, actor=actor, **fields).problems)
    return {one.field: one.message for one in problems}


# Revisions


def test_a_publish_is_the_next_revision_with_author_note_and_record(operator: Api) -> None:
    place = make_place()
    answer = operator.put("/orgs/acme/namespaces/chat/policy", {"policy": {"ttl_seconds": 60}, "note": " why "}, seen=0)
    assert (answer.status_code, answer["ETag"], said(answer)["revision"]) == (200, '"1"', 1)
    revision = PolicyRevision.objects.get()
    assert (revision.number, revision.policy, revision.note) == (1, {"ttl_seconds": 60}, "why")
    assert (revision.author, revision.author_is_operator) == ("operator@luminet.example (test)", True)
    record = AuditRecord.objects.latest("seq")
    assert (record.verb, record.target) == ("policy.publish", "acme/chat")
    assert record.before == '{"policy":{},"revision":0}'
    assert record.after == '{"note":"why","policy":{"ttl_seconds":60},"revision":1}'
    assert level_of(place).policy == {"ttl_seconds": 60}


def test_a_publish_replaces_what_the_level_said() -> None:
    place = make_place()
    publish(place, ttl_seconds=60, weight=2)
    publish(place, weight=3)
    assert level_of(place).policy == {"weight": 3.0}


def test_a_stale_publish_changes_nothing() -> None:
    place = make_place()
    publish(place, expected=0, ttl_seconds=60)
    with pytest.raises(StaleRevision, match="expected revision 0, found 1"):
        publish(place, expected=0, ttl_seconds=90)
    assert (level_of(place).revision, PolicyRevision.objects.count()) == (1, 1)


def test_whoever_expects_whatever_is_there_publishes_the_next() -> None:
    place = make_place()
    assert [publish(place, expected=None).level.revision for _ in range(3)] == [1, 2, 3]


def test_a_rollback_publishes_what_an_earlier_revision_said() -> None:
    place = make_place()
    publish(place, ttl_seconds=60)
    publish(place, ttl_seconds=90)
    back = policy_rollback(actor=SYSTEM, place=place, to_revision=1, expected=frozenset({2}))
    assert (back.level.revision, back.level.policy) == (3, {"ttl_seconds": 60})
    newest = PolicyRevision.objects.latest("number")
    assert (newest.rolled_back_to, newest.note) == (1, "Back to revision 1")
    assert AuditRecord.objects.latest("seq").verb == "policy.rollback"


def test_a_rollback_to_revision_zero_is_the_beginning_and_to_the_future_nothing() -> None:
    place = make_place()
    publish(place, ttl_seconds=60)
    policy_rollback(actor=SYSTEM, place=place, to_revision=0, expected=None)
    assert level_of(place).policy == {}
    with pytest.raises(InvalidFields, match="there is no revision 3"):
        policy_rollback(actor=SYSTEM, place=place, to_revision=3, expected=None)


def test_a_rollback_never_reaches_another_levels_revisions() -> None:
    place, other = make_place(), make_place("globex")
    publish(other, ttl_seconds=60)
    with pytest.raises(InvalidFields, match="there is no revision 1"):
        policy_rollback(actor=SYSTEM, place=place, to_revision=1, expected=None)


def test_a_rollback_is_judged_by_todays_bounds() -> None:
    place = make_place()
    actor = key_actor(place)
    publish(place, actor=actor, ttl_seconds=900)
    publish(place, actor=actor, ttl_seconds=60)
    place = bound(place, ttl_seconds={"max": 600})
    with pytest.raises(OutOfBounds, match="900 is more than 600"):
        policy_rollback(actor=actor, place=place, to_revision=1, expected=None)
    policy_rollback(actor=SYSTEM, place=place, to_revision=1, expected=None)


def test_a_rollback_is_judged_by_todays_levels_above_and_todays_shares() -> None:
    place, other = make_place(), make_place("globex")
    publish(place, ttl_seconds=900, reserved_share=0.6)
    publish(place)
    publish(above(place), max_age_seconds=600)
    with pytest.raises(InvalidFields, match="900 s is longer than max_age_seconds, which is 600 s"):
        policy_rollback(actor=SYSTEM, place=place, to_revision=1, expected=None)
    publish(above(place))
    publish(other, reserved_share=0.6)
    with pytest.raises(SharesExceeded):
        policy_rollback(actor=SYSTEM, place=place, to_revision=1, expected=None)
    assert level_of(place).revision == 2


NUMBERS = st.floats(0, 1) | st.sampled_from([0.1 + 0.2, 1e-7, 5e-324, 1.0, 0.0, -0.0, 1 / 3])


@given(NUMBERS, st.floats(0.001, 1000), st.integers(1, 604_800))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_numbers_come_back_from_the_database_as_they_were_hashed(
    db: None, share: float, weight: float, ttl: int
) -> None:
    place = Place(Organisation.objects.filter(slug="acme").first() or make_organisation())
    fields: dict[str, Any] = {
        "pin_share": 0.0,
        "limit_share": share,
        "weight": weight,
        "ttl_seconds": ttl,
        "max_age_seconds": None,
    }
    before = Policy.model_validate({**fields, "models": {"m": fields}}).said()
    published = publish(place, **fields, models={"m": fields})
    assert canonical_json(level_of(place).policy) == canonical_json(before) == canonical_json(published.chain[-1])


# In force


def test_what_is_in_force_comes_from_three_levels() -> None:
    place = make_place()
    publish(FLEET, ttl_seconds=10, weight=2, offload="host")
    publish(above(place), ttl_seconds=20, weight=3)
    publish(place, ttl_seconds=30, models={"m": {"ttl_seconds": 5}})
    force = policy_in_force(place)
    assert [force.effective.values[one] for one in ("ttl_seconds", "weight", "offload")] == [30, 3.0, "host"]
    assert [force.effective.origin[one] for one in ("ttl_seconds", "weight", "offload", "kv_dtype")] == [
        *("namespace", "organisation", "fleet", "fleet"),
    ]
    assert policy_in_force(place, "m").effective.values["ttl_seconds"] == 5
    assert [level.kind for level in force.levels] == ["fleet", "organisation", "namespace"]


def test_what_others_say_is_in_force_nowhere_else() -> None:
    place, other = make_place(), make_place("globex")
    publish(other, ttl_seconds=60)
    publish(above(other), ttl_seconds=50)
    assert policy_in_force(place).effective.values["ttl_seconds"] == 300


def test_a_published_hash_is_the_one_in_force() -> None:
    place = make_place()
    before = policy_in_force(place).hash
    assert preview(place, ttl_seconds=60).effective_hash != before
    told = preview(place, ttl_seconds=60).effective_hash
    publish(place, ttl_seconds=60)
    assert policy_in_force(place).hash == told


# Contradictions, here and below


def test_a_contradiction_with_what_is_inherited_is_refused() -> None:
    place = make_place()
    publish(above(place), ttl_seconds=50, max_age_seconds=100)
    assert refusal(place, ttl_seconds=200) == {
        "policy.ttl_seconds": "200 s is longer than max_age_seconds, which is 100 s"
    }


def test_a_publish_above_that_breaks_a_namespace_below_names_it() -> None:
    place = make_place()
    publish(place, ttl_seconds=900)
    expected = {"policy.ttl_seconds": "in acme/chat: 900 s is longer than max_age_seconds, which is 600 s"}
    assert refusal(above(place), max_age_seconds=600) == expected
    assert refusal(FLEET, max_age_seconds=600) == expected


def test_of_many_broken_namespaces_five_are_named() -> None:
    place = make_place()
    assert place.organisation is not None
    for n in range(7):
        publish(Place(place.organisation, make_namespace(place.organisation, f"n{n}")), ttl_seconds=900)
    (message,) = refusal(FLEET, max_age_seconds=600).values()
    assert message.startswith("in acme/n0, acme/n1, acme/n2, acme/n3, acme/n4 and 2 more: 900 s")


def test_a_model_that_breaks_below_is_named() -> None:
    place = make_place()
    publish(place, models={"m": {"reserved_share": 0.5}})
    assert refusal(above(place), limit_share=0.4) == {
        "policy.models.m.reserved_share": "in acme/chat: 0.5 is more than limit_share, which is 0.4"
    }


def test_what_a_level_below_says_itself_is_not_broken_from_above() -> None:
    place = make_place()
    publish(place, ttl_seconds=60, max_age_seconds=60)
    publish(FLEET, ttl_seconds=300, max_age_seconds=300)
    assert policy_in_force(place).effective.values["ttl_seconds"] == 60


def test_deleted_namespaces_are_not_asked() -> None:
    place = make_place()
    assert place.namespace is not None
    publish(place, ttl_seconds=900, reserved_share=0.8)
    namespace_delete(actor=SYSTEM, namespace=place.namespace, expected=None)
    publish(FLEET, ttl_seconds=60, max_age_seconds=600)
    publish(make_place("globex"), reserved_share=0.8)


def test_a_key_bound_to_one_namespace_reads_no_other_name_in_a_preview() -> None:
    place = make_place()
    assert place.organisation is not None
    publish(Place(place.organisation, make_namespace(place.organisation, "secret")), ttl_seconds=900)
    actor = key_actor(place, "policy:read", is_bound=True)
    found = preview(above(place), actor=actor, max_age_seconds=600)
    assert [one.message.partition(":")[0] for one in found.problems] == ["in another namespace"]
    assert found.namespaces_named == ("acme/chat",)
    assert "secret" not in repr(found)


# Bounds


def test_operators_are_not_bound_and_keys_of_the_organisation_are() -> None:
    place = make_place()
    actor = key_actor(place)
    only_operators = "only an operator may change this"
    assert refusal(place, actor=actor, reserved_share=0.1, weight=2, ttl_seconds=60) == {
        "policy.reserved_share": only_operators,
        "policy.weight": only_operators,
    }
    publish(place, reserved_share=0.1, weight=2, ttl_seconds=60)
    publish(place, actor=actor, reserved_share=0.1, weight=2, ttl_seconds=90, models={"m": {"kv_dtype": "int4"}})


def test_bounds_hold_at_both_levels_an_organisation_has() -> None:
    place = bound(make_place(), ttl_seconds={"min": 60, "max": 600})
    actor = key_actor(place)
    for where in (place, above(place)):
        assert list(refusal(where, actor=actor, ttl_seconds=601)) == ["policy.ttl_seconds"]
        assert list(refusal(where, actor=actor, models={"m": {"ttl_seconds": 59}})) == ["policy.models.m.ttl_seconds"]
        publish(where, actor=actor, ttl_seconds=600)


def test_what_an_operator_set_may_stay_and_not_be_taken_away() -> None:
    place = bound(make_place(), ttl_seconds={"max": 600})
    actor = key_actor(place)
    publish(place, ttl_seconds=900, reserved_share=0.2)
    publish(place, actor=actor, ttl_seconds=900, reserved_share=0.2)
    assert list(refusal(place, actor=actor, ttl_seconds=60)) == ["policy.reserved_share"]
    publish(place, actor=actor, reserved_share=0.2)
    assert list(refusal(place, actor=actor, ttl_seconds=900, reserved_share=0.2)) == ["policy.ttl_seconds"]


def test_a_refused_key_is_told_every_field(acme: Api) -> None:
    answer = acme.put("/orgs/acme/policy", {"policy": {"weight": 2, "offload": "disk", "ttl_seconds": 60}}, seen=0)
    assert (answer.status_code, [one["field"] for one in said(answer)["errors"]]) == (
        403,
        ["policy.weight", "policy.offload"],
    )


# Shares


def test_too_much_promised_names_the_holders_to_operators(operator: Api) -> None:
    publish(make_place("globex", "a"), reserved_share=0.5)
    publish(make_place("globex-two", "b"), pin_share=0.3)
    make_place("acme")
    answer = operator.put("/orgs/acme/namespaces/chat/policy", {"policy": {"reserved_share": 0.2}}, seen=0)
    assert answer.status_code == 409
    (error,) = said(answer)["errors"]
    assert error["message"] == (
        "reservations and pins would add up to 100.0% of each pool, 90% is the most: "
        "globex/a 50.0%, globex-two/b 30.0%, acme/chat 20.0%"
    )


def test_an_organisation_reads_of_its_own_holdings_only() -> None:
    publish(make_place("globex", "a"), reserved_share=0.55)
    place = bound(make_place("acme"), reserved_share={})
    (message,) = refusal(place, actor=key_actor(place), reserved_share=0.4).values()
    assert (
        message == "there is not that much left to promise; you would hold acme/chat 40.0%: ask your operator for more"
    )


def test_refusals_do_not_tell_members_what_others_hold() -> None:
    """Whoever tries share after share learns the band of tenths that others are in."""
    tries = [n / 100 for n in range(40, 61)]
    for slug, others in (("one", 0.31), ("two", 0.39)):
        group = make_group(slug)
        publish(make_place(f"globex-{slug}", "a", group=group), reserved_share=others)
        place = bound(make_place(f"acme-{slug}", "chat", group=group), reserved_share={})
        actor = key_actor(place)
        assert [bool(preview(place, actor=actor, reserved_share=one).problems) for one in tries] == [
            one > 0.5 for one in tries
        ]
        assert refusal(place, actor=actor, reserved_share=0.51)
        publish(place, actor=actor, reserved_share=0.5)


def test_members_may_always_promise_less() -> None:
    publish(make_place("globex", "a"), reserved_share=0.31)
    place = bound(make_place("acme"), reserved_share={}, ttl_seconds={})
    publish(place, reserved_share=0.59)
    actor = key_actor(place)
    publish(place, actor=actor, reserved_share=0.59, ttl_seconds=60)
    assert policy_in_force(place).effective.values["ttl_seconds"] == 60
    publish(place, actor=actor, reserved_share=0.55)
    assert policy_in_force(place).effective.values["reserved_share"] == 0.55
    assert refusal(place, actor=actor, reserved_share=0.59), "what was given up is not theirs to promise again"


def test_previews_for_members_name_no_agent(acme: Api, operator: Api) -> None:
    make_agent("agent-1")
    refused = said(acme.post("/orgs/acme/policy/preview", {"policy": {"kv_dtype": "nvfp4"}}))
    assert "some agents can do" in str(refused["problems"])
    assert "agent-1" not in str(refused)
    path, body = "/orgs/acme/policy/preview", {"policy": {"ttl_seconds": 60}}
    theirs, ours = said(acme.post(path, body)), said(operator.post(path, body))
    assert (theirs["affected"]["agents"], theirs["shares"]["agents"], theirs["shares"]["group"]) == ([], [], None)
    assert {one["field"] for one in theirs["shares"]["bands"]} == {"limit_share", "pin_share", "reserved_share"}
    assert (ours["affected"]["agents"], ours["shares"]["bands"]) == (["agent-1"], [])
    assert {one["agent"] for one in ours["shares"]["agents"]} == {"agent-1"}


def test_a_bound_key_reads_of_its_own_namespaces_only() -> None:
    place = bound(make_place("acme"), reserved_share={})
    assert place.organisation is not None
    publish(Place(place.organisation, make_namespace(place.organisation, "secret")), reserved_share=0.55)
    (message,) = refusal(place, actor=key_actor(place, "policy:write", is_bound=True), reserved_share=0.4).values()
    assert "acme/chat 40.0%" in message
    assert "secret" not in message


def test_a_preview_tells_the_sum_to_operators_alone() -> None:
    publish(make_place("globex", "a"), reserved_share=0.5)
    place = make_place("acme")
    seen = preview(place, reserved_share=0.25).group_share
    assert seen is not None
    assert (seen.promised, seen.at_most, seen.is_too_much) == (0.75, 0.9, False)
    assert preview(place, actor=key_actor(place), reserved_share=0.25).group_share is None


def test_nine_tenths_exactly_may_be_promised() -> None:
    for n in range(9):
        publish(make_place(f"o{n}"), reserved_share=0.1)
    assert refusal(make_place("one-more"), reserved_share=0.001)


def test_groups_of_agents_are_apart() -> None:
    publish(make_place("globex"), reserved_share=0.9)
    publish(make_place("acme", group=make_group()), reserved_share=0.9)


def test_the_sum_for_one_model_is_judged_too() -> None:
    publish(make_place("globex"), models={"m": {"reserved_share": 0.6}})
    assert "for the model m" in refusal(make_place("acme"), reserved_share=0.4)["policy.reserved_share"]


def test_what_an_organisation_reserves_counts_for_each_of_its_namespaces() -> None:
    organisation = make_organisation("acme", "a", "b")  # and default
    publish(Place(organisation), reserved_share=0.3)
    assert refusal(Place(organisation), reserved_share=0.31)
    assert "acme/a 30.0%" in refusal(make_place("x"), pin_share=0.01)["policy.reserved_share"]


def test_a_new_namespace_that_would_inherit_too_much_is_refused() -> None:
    organisation = make_organisation("acme", "a")
    publish(Place(organisation), reserved_share=0.4)
    with pytest.raises(SharesExceeded, match=r"120\.0%"):
        make_namespace(organisation, "b")
    assert sorted(organisation.namespaces.values_list("slug", flat=True)) == ["a", "default"]
    make_namespace(organisation, "b", group=make_group())


def test_a_namespace_cannot_move_to_where_it_does_not_fit() -> None:
    group = make_group()
    place = make_place("acme", group=group)
    publish(make_place("globex"), reserved_share=0.5)
    publish(place, reserved_share=0.5)
    assert place.namespace is not None
    default = AgentGroup.objects.get(slug="default")
    with pytest.raises(SharesExceeded):
        namespace_update(actor=SYSTEM, namespace=place.namespace, expected=None, group=default)
    place.namespace.refresh_from_db()
    assert place.namespace.group == group


def test_taking_a_models_share_away_above_may_give_more_below() -> None:
    place, other = make_place("acme"), make_place("globex")
    publish(above(place), models={"m": {"reserved_share": 0.1}})
    publish(place, reserved_share=0.6)
    publish(other, models={"m": {"reserved_share": 0.7}})
    assert "for the model m" in refusal(above(place))["policy.reserved_share"]


def test_less_may_be_promised_at_any_time() -> None:
    place = make_place()
    publish(place, reserved_share=0.9)
    publish(place, reserved_share=0.8)
    publish(place)


# At the same moment


@at_once_on_the_database
def test_of_publishes_that_have_seen_the_same_revision_exactly_one_wins() -> None:
    place = make_place()
    outcomes = at_once(*[lambda n=n: publish(place, expected=0, ttl_seconds=n + 1) for n in range(6)])
    assert failures(outcomes) == ["StaleRevision"] * 5
    assert list(PolicyRevision.objects.values_list("number", flat=True)) == [1]
    assert level_of(place).policy == PolicyRevision.objects.get().policy


@at_once_on_the_database
def test_no_revision_is_lost_or_numbered_twice() -> None:
    place = make_place()
    outcomes = at_once(*[lambda n=n: [publish(place, ttl_seconds=n + 1) for _ in range(3)] for n in range(4)])
    assert failures(outcomes) == []
    assert sorted(PolicyRevision.objects.values_list("number", flat=True)) == list(range(1, 13))


@at_once_on_the_database
def test_of_two_publishes_that_fit_alone_but_not_together_exactly_one_wins() -> None:
    places = [make_place("acme"), make_place("globex")]
    outcomes = at_once(*[lambda place=place: publish(place, reserved_share=0.5) for place in places])
    assert failures(outcomes) == ["SharesExceeded"]
    assert sorted(level_of(place).revision for place in places) == [0, 1]


@at_once_on_the_database
@pytest.mark.parametrize("is_fleets", [True, False])
@pytest.mark.parametrize("is_created_first", [True, False])
def test_a_new_namespace_and_a_reservation_it_inherits_see_each_other(is_created_first: bool, is_fleets: bool) -> None:
    organisation = make_organisation("acme")
    raised = FLEET if is_fleets else Place(organisation)
    deeds: list[Any] = [lambda: make_namespace(organisation, "b"), lambda: publish(raised, reserved_share=0.5)]
    outcomes = while_uncommitted(*(deeds if is_created_first else reversed(deeds)))
    assert failures(outcomes) == ["SharesExceeded"]


@at_once_on_the_database
@pytest.mark.parametrize("level", ["fleet", "organisation", "namespace"])
@pytest.mark.parametrize("is_moved_first", [True, False])
def test_a_move_and_a_reservation_it_brings_along_see_each_other(is_moved_first: bool, level: str) -> None:
    group, place = make_group(), make_place("acme")
    namespace, share = place.namespace, 0.42  # acme's two fit into one group, one of them and globex do not
    assert namespace is not None
    publish(make_place("globex", group=group), reserved_share=0.5)
    publish(Place(Organisation.objects.get(slug="globex")), reserved_share=0.0)
    raised = {"fleet": FLEET, "organisation": above(place), "namespace": place}[level]
    deeds: list[Any] = [
        lambda: namespace_update(actor=SYSTEM, namespace=namespace, expected=None, group=group),
        lambda: publish(raised, reserved_share=share),
    ]
    outcomes = while_uncommitted(*(deeds if is_moved_first else reversed(deeds)))
    assert failures(outcomes) == ["SharesExceeded"]


@at_once_on_the_database
def test_a_fleet_publish_and_one_below_see_each_other() -> None:
    place = make_place()
    deeds = [lambda: publish(FLEET, max_age_seconds=600), lambda: publish(place, ttl_seconds=900)]
    outcomes: list[TenantsError] = while_uncommitted(*deeds)
    assert failures(outcomes) == ["InvalidFields"]


def test_a_share_said_for_a_model_counts_though_a_namespace_says_less_in_general() -> None:
    place, other = make_place(), make_place("globex")
    publish(above(place), pin_share=0.3)  # for chat and for default
    publish(place, pin_share=0.0)
    publish(other, reserved_share=0.5)
    assert "policy.reserved_share" in refusal(above(place), models={"m": {"pin_share": 0.3}})


def test_a_preview_changes_nothing() -> None:
    place = make_place()
    level_of(FLEET)
    with connection.execute_wrapper(_refuse_writes):
        preview(place, ttl_seconds=60, reserved_share=0.95)


def _refuse_writes(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
    assert sql.lstrip().startswith("SELECT"), sql
    return execute(sql, params, many, context)


SECRET_MODEL: dict[str, Any] = {"models": {"secret-model": {"reserved_share": 0.8}}}


def test_who_may_not_reserve_does_not_learn_what_others_left() -> None:
    """Publishing refuses it for its bounds; a preview that also counted would be a measuring device."""
    publish(make_place("globex"), **SECRET_MODEL)
    place = make_place("acme")
    found = policy_preview(actor=key_actor(place), place=place, policy=Policy.model_validate({"reserved_share": 0.5}))
    assert [one.message for one in found.problems] == ["only an operator may change this"]


def test_a_model_of_somebody_else_is_not_named_in_a_refusal() -> None:
    publish(make_place("globex"), **SECRET_MODEL)
    place = make_place("acme")
    assert place.organisation is not None
    free = Bounds.model_validate({"reserved_share": {}})
    changed = bounds_put(actor=SYSTEM, organisation=place.organisation, bounds=free, expected=None)
    with pytest.raises(SharesExceeded) as refused:
        publish(Place(changed, place.namespace), reserved_share=0.5, actor=key_actor(place))
    assert "secret-model" not in str(refused.value)
