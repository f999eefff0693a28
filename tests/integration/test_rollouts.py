"""Rollouts on the real database: published over REST, brought on by the sweep's part, judged by what agents count.

How commands come to agents is tests/integration/test_push.py's; here agents' words are written where the door does.
"""

from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.fleet.agents import agent_revoke
from controlplane.fleet.enrolment import FORGOTTEN
from controlplane.fleet.intake import Ended
from controlplane.fleet.models import Agent, OperationStep
from controlplane.fleet.operations import steps_end, steps_sweep
from controlplane.fleet.quality_results import quality_override
from controlplane.fleet.recording import batches_store
from controlplane.rollouts.advancing import rollouts_advance
from controlplane.rollouts.desired import rollouts_open as rollouts_planned
from controlplane.rollouts.models import Rollout
from controlplane.rollouts.planner import plan_carry_out
from controlplane.rollouts.reach import held_by
from controlplane.rollouts.services import rollouts_forget
from controlplane.rollouts.serving import snapshot_for
from controlplane.rollouts.watching import scopes_read
from engine_agent.contracts.protocol import snapshot_decode
from engine_agent.contracts.wire import Batch, Report
from tenants.actor import SYSTEM
from tenants.bounds import Bounds
from tenants.levels import FLEET, Place, level_of
from tenants.models import AuditRecord, Namespace, Operation, Organisation
from tenants.services.namespaces import namespace_delete
from tenants.services.organisations import bounds_put
from tests.database.factories import make_agent, make_group, publish
from tests.fleet.rollouts import acknowledge, beat, counters
from tests.support.threads import at_once, failures
from tests.web.api import Api, make_key, said

pytestmark = pytest.mark.django_db
PATH = "/orgs/acme/namespaces/default/policy"
CANARY = {"strategy": "canary", "steps": [50, 100], "bake_seconds": 60, "guards": {"integrity": False}}
GOOD, BAD = {"cached": 70}, {"cached": 10}


def put(api: Api, *, seen: int = 0, rollout: Any = CANARY, path: str = PATH, **fields: Any) -> Any:
    answer = api.put(path, {"policy": fields or {"ttl_seconds": 60}, "rollout": rollout}, seen=seen)
    assert answer.status_code == 200, answer.content
    return said(answer)


def the(rollout: Any) -> Rollout:
    return Rollout.objects.select_related("level").get(pk=rollout["rollout"] if isinstance(rollout, dict) else rollout)


def deed(api: Api, rollout: Rollout, name: str) -> Any:
    return api.post(f"/rollouts/{rollout.pk}/{name}")


def look(api: Api, rollout: Rollout) -> Any:
    return said(api.get(f"/rollouts/{rollout.pk}"))


def sweep(rollout: Rollout, *, seconds: float = 0, times: int = 1) -> Rollout:
    """So many seconds from now."""
    for _ in range(times):
        rollouts_advance(now=timezone.now() + timedelta(seconds=seconds))
    return the(rollout.pk)


def canary(api: Api, **more: Any) -> Rollout:
    """On one of two engines, one of them reached, which has applied it and bakes."""
    for name in ("agent-1", "agent-2"):
        if not Agent.objects.filter(pk=name).exists():
            make_agent(name)
    rollout = the(put(api, **more))
    acknowledge(*rollout.reached)
    return sweep(rollout)


def sides(rollout: Rollout) -> tuple[str, str]:
    (changed,) = rollout.reached
    return changed, "agent-2" if changed == "agent-1" else "agent-1"


def count(rollout: Rollout, changed: Any, unchanged: Any, requests: int = 50) -> None:
    """Both sides get so many requests more than when counting began."""
    new, old = sides(rollout)
    for agent in (new, old):
        beat(agent, rollout, counters(0))
    sweep(rollout)
    beat(new, rollout, counters(requests, **changed))
    beat(old, rollout, counters(requests, **unchanged))


def sweep_all() -> None:
    rollouts_advance(now=timezone.now())


def verbs() -> list[str]:
    return list(AuditRecord.objects.filter(verb__startswith="rollout.").order_by("seq").values_list("verb", flat=True))


# All at once


def test_without_agents_there_is_nothing_to_roll_out(acme: Api) -> None:
    assert put(acme, rollout=None)["rollout"] is None
    assert not Rollout.objects.exists()


def test_at_once_reaches_everybody_and_is_done_when_all_have_acknowledged(acme: Api) -> None:
    for name in ("agent-1", "agent-2"):
        make_agent(name)
    make_agent("elsewhere", group=make_group("other"))
    rollout = the(put(acme, rollout=None))
    acknowledge("agent-1")
    assert sweep(rollout).state == "running"
    shown = [(one["agent"], one["reached"], one["acknowledged"]) for one in look(acme, rollout)["agents"]]
    assert shown == [("agent-1", True, True), ("agent-2", True, False)]
    acknowledge("agent-2")
    done = sweep(rollout)
    assert (done.state, done.why) == ("done", "Every agent has acknowledged it.")
    assert Operation.objects.get(pk=str(done.operation_id)).state == "done"
    assert verbs() == ["rollout.begin", "rollout.done"]


def test_a_revoked_agent_is_waited_for_no_longer(acme: Api) -> None:
    make_agent("agent-1")
    rollout = the(put(acme, rollout=None))
    Agent.objects.update(revoked_at=timezone.now())
    steps_sweep(now=timezone.now())
    assert sweep(rollout).state == "done"


# A canary


def test_a_canary_by_share_reaches_some_bakes_and_goes_on(acme: Api) -> None:
    make_agent("agent-1")
    make_agent("agent-2")
    rollout = the(put(acme))
    assert len(rollout.reached) == 1
    assert sweep(rollout).why == f"Waiting for {rollout.reached[0]}."
    acknowledge(*rollout.reached)
    assert sweep(rollout).baking_since is not None
    count(rollout, GOOD, GOOD)
    assert sweep(rollout, seconds=30).step == 0
    onwards = sweep(rollout, seconds=61)
    assert (onwards.step, onwards.reached) == (1, ["agent-1", "agent-2"])
    acknowledge("agent-1", "agent-2")
    assert sweep(rollout).state == "done"
    assert verbs() == ["rollout.begin", "rollout.advance", "rollout.done"]
    shown = look(acme, rollout)
    assert [one["findings"][1]["verdict"] for one in shown["bakes"]] == ["kept"]


def test_who_is_not_reached_is_to_hold_what_there_was(acme: Api) -> None:
    put(acme, rollout=None, ttl_seconds=50)
    rollout = canary(acme, seen=1)
    new, old = sides(rollout)
    views = [one.view for one in rollouts_planned()]
    assert held_by(new, "engine", views) == frozenset()
    assert {revision for _, revision in held_by(old, "engine", views)} == {1}


def test_a_canary_by_label_reaches_those_that_have_it(acme: Api) -> None:
    for name in ("agent-1", "agent-2", "agent-3"):
        make_agent(name)
    Agent.objects.filter(pk="agent-2").update(labels={"tier": "canary"})
    rollout = the(put(acme, rollout={**CANARY, "steps": [{"labels": {"tier": "canary"}}, 100]}))
    assert rollout.reached == ["agent-2"]


def test_a_label_that_no_engine_has_is_refused_naming_the_step(acme: Api) -> None:
    make_agent("agent-1")
    body = {"policy": {}, "rollout": {**CANARY, "steps": [{"labels": {"tier": "canary"}}, 100]}}
    previewed = said(acme.post(f"{PATH}/preview", body))["problems"]
    answer = acme.put(PATH, body, seen=0)
    assert answer.status_code == 422
    assert said(answer)["errors"] == previewed
    assert said(answer)["errors"] == [{"field": "rollout.steps.0.labels", "message": "no engine has tier=canary"}]
    assert level_of(Place(*_default())).revision == 0


def _default() -> tuple[Organisation, Namespace]:
    namespace = Namespace.objects.select_related("organisation").get(slug="default", organisation__slug="acme")
    return namespace.organisation, namespace


def test_agents_are_asked_to_count_what_a_canary_is_under_way_for(acme: Api, operator: Api) -> None:
    rollout = canary(acme)
    put(operator, path="/policy")
    assert scopes_read() == (f"ns/{_default()[1].pk}", "fleet")
    deed(acme, rollout, "abort")
    assert scopes_read() == ("fleet",)


# Back


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"cached": 10}, "hit ratio 10.0% against 70.0% elsewhere; 5.0% less is the most"),
        ({"cached": 70, "errors": 10}, "20.0% of 50 requests failed, 0.0% of 50 elsewhere; 2.0% more is the most"),
        ({"cached": 70, "seconds": 2}, "first tokens took"),
    ],
)
def test_a_breach_rolls_back_at_once_with_the_numbers_in_why_note_and_trail(
    acme: Api, changed: dict[str, Any], words: str
) -> None:
    put(acme, rollout=None, ttl_seconds=50)
    rollout = canary(acme, seen=1)
    count(rollout, changed, GOOD)
    back = sweep(rollout, seconds=5)
    assert back.state == "rolled_back"
    assert words in back.why
    level = level_of(Place(*_default()))
    assert (level.revision, level.policy) == (3, {"ttl_seconds": 50})
    revision = level.revisions.get(number=3)
    assert revision.rolled_back_to == 1
    assert words in revision.note
    record = AuditRecord.objects.get(verb="rollout.roll-back")
    assert (record.actor_kind, words in record.after) == ("system", True)
    assert '"unchanged":' in record.after
    onward = Rollout.objects.get(revision=3)
    assert (onward.strategy, onward.state) == ("all", "running")


def test_an_agent_that_rejects_it_sends_it_back_and_operators_read_why(acme: Api, operator: Api) -> None:
    make_agent("agent-1")
    make_agent("agent-2")
    rollout = the(put(acme))
    bad = "f" * 64
    agent = Agent.objects.filter(pk=rollout.reached[0])
    agent.update(desired_hash=bad, rejected_hash=bad, rejected_reason="no format of that name\x07")
    back = sweep(rollout)
    assert (back.state, back.why) == ("rolled_back", f"Rejected by {rollout.reached[0]}.")
    assert look(acme, rollout)["why"] == back.why
    assert look(operator, rollout)["why"] == f"Rejected by {rollout.reached[0]} (no format of that name\x07)."
    note = level_of(Place(*_default())).revisions.get(number=2).note
    assert note == f"Back to revision 0. Rejected by {rollout.reached[0]}."


def test_a_restarted_engine_begins_to_count_anew_and_loses_nothing(acme: Api) -> None:
    rollout = canary(acme)
    count(rollout, {"cached": 0}, GOOD, requests=15)
    sweep(rollout)
    new, _ = sides(rollout)
    assert look(acme, rollout)["changed"]["requests"] == 15
    beat(new, rollout, counters(15, cached=0), boot="boot-2")
    back = sweep(rollout)
    assert look(acme, rollout)["changed"]["requests"] == 30
    assert back.state == "running"  # of the others there is too little
    beat(sides(rollout)[1], rollout, counters(40, cached=70))
    assert sweep(rollout).state == "rolled_back"


def test_misses_of_the_new_format_are_left_out_until_the_old_blocks_have_ended(acme: Api) -> None:
    put(acme, rollout=None, ttl_seconds=600)
    rollout = canary(acme, seen=1, ttl_seconds=120, kv_dtype="bf16")
    cold = {"cached": 14, "missed": {"dtype": 4_000}}
    count(rollout, cold, GOOD)
    assert sweep(rollout, seconds=5).state == "running"
    assert look(acme, rollout)["changed"]["hit_ratio"] == 0.7
    Rollout.objects.filter(pk=rollout.pk).update(bake_seconds=10_000)
    new, old = sides(rollout)
    beat(new, rollout, counters(100, cached=14, missed={"dtype": 8_000}))
    beat(old, rollout, counters(100, cached=70))
    assert sweep(rollout, seconds=599).state == "running"
    beat(new, rollout, counters(150, cached=14, missed={"dtype": 12_000}))
    assert sweep(rollout, seconds=601).state == "rolled_back"


def test_without_a_change_of_format_its_misses_count(acme: Api) -> None:
    rollout = canary(acme)
    count(rollout, {"cached": 14, "missed": {"dtype": 4_000}}, GOOD)
    assert sweep(rollout).state == "rolled_back"


def test_where_the_policy_from_before_is_refused_it_stops_and_says_so(acme: Api, operator: Api) -> None:
    put(operator, rollout=None, reserved_share=0.8)
    rollout = canary(operator, seen=1, reserved_share=0.1)
    publish(Place(_default()[0]), reserved_share=0.0)
    other = said(operator.post("/orgs/acme/namespaces", {"slug": "other"}))
    put(operator, rollout=None, path=f"/orgs/acme/namespaces/{other['slug']}/policy", reserved_share=0.7)
    count(rollout, BAD, GOOD)
    stopped = sweep(rollout)
    assert stopped.state == "paused"
    assert "It cannot go back: what was before is refused by now." in stopped.why
    assert "It cannot go back: policy.reserved_share" in look(operator, rollout)["why"]
    assert level_of(Place(*_default())).revision == 2


# Not on


def test_too_little_evidence_pauses_at_the_end_of_the_bake(acme: Api) -> None:
    rollout = canary(acme)
    count(rollout, GOOD, GOOD, requests=19)
    assert sweep(rollout, seconds=30).state == "running"
    paused = sweep(rollout, seconds=61)
    assert (paused.state, paused.step) == ("paused", 0)
    assert "19 requests on reached agents and 19 on the others, 20 are needed" in paused.why
    assert sweep(rollout, seconds=3600, times=3).step == 0


def test_without_any_agent_to_compare_with_it_pauses(acme: Api) -> None:
    make_agent("agent-1")
    rollout = the(put(acme))
    acknowledge("agent-1")
    sweep(rollout)
    beat("agent-1", rollout, counters(0))
    sweep(rollout)
    beat("agent-1", rollout, counters(500, cached=70))
    assert sweep(rollout, seconds=61).state == "paused"


def test_an_engine_that_fell_silent_pauses_it(acme: Api, operator: Api) -> None:
    rollout = canary(acme)
    count(rollout, GOOD, GOOD)
    silent = {"stale": {"since": timezone.now().isoformat(), "why": "nothing heard of it for 9 s"}}
    Agent.objects.filter(pk=rollout.reached[0]).update(conditions=silent)
    paused = sweep(rollout, seconds=61)
    assert (paused.state, paused.why) == ("paused", f"No fresh news of {rollout.reached[0]} at the end of the bake.")
    assert "nothing heard of it for 9 s" in look(operator, rollout)["why"]


def test_a_paused_one_is_watched_and_still_goes_back(acme: Api) -> None:
    rollout = canary(acme)
    assert deed(acme, rollout, "pause").status_code == 200
    count(rollout, GOOD, GOOD)
    assert sweep(rollout, seconds=61).step == 0
    beat(sides(rollout)[0], rollout, counters(500, cached=1))
    assert sweep(rollout, seconds=62).state == "rolled_back"


def test_resumed_it_bakes_anew_with_what_it_has_counted(acme: Api) -> None:
    rollout = canary(acme)
    count(rollout, GOOD, GOOD, requests=15)
    sweep(rollout, seconds=61)
    assert said(deed(acme, rollout, "resume"))["state"] == "running"
    new, old = sides(rollout)
    for agent in (new, old):
        beat(agent, rollout, counters(30, cached=70))
    assert sweep(rollout, seconds=50).step == 0
    assert sweep(rollout, seconds=62).step == 1


# Integrity


def integrity(rollout: Rollout, *problems: str, ok: bool = True) -> None:
    (step,) = OperationStep.objects.filter(deed="integrity", state="waiting")
    assert step.agent_id == rollout.reached[0]
    steps_end([Ended(step.pk, ok, result={"problems": [*problems]})], now=timezone.now())


def checked(api: Api) -> Rollout:
    rollout = canary(api, rollout={**CANARY, "guards": {"integrity": True}})
    count(rollout, GOOD, GOOD)
    assert sweep(rollout, seconds=61).why == "The reached engines check themselves."
    return rollout


def test_reached_engines_check_themselves_before_it_goes_on(acme: Api) -> None:
    rollout = checked(acme)
    assert sweep(rollout, seconds=63).step == 0
    integrity(rollout)
    assert sweep(rollout, seconds=65).step == 1


def test_an_engine_that_is_not_sound_sends_it_back_and_what_it_found_is_for_operators(acme: Api, operator: Api) -> None:
    rollout = checked(acme)
    integrity(rollout, "block 7 is held twice", "block 8 is held twice", ok=False)
    back = sweep(rollout, seconds=65)
    assert back.state == "rolled_back"
    assert f"{rollout.reached[0]}: block 7 is held twice and 1 more" in look(operator, rollout)["why"]
    assert look(acme, rollout)["why"] == f"An integrity check failed: {rollout.reached[0]} found 2 problems."
    assert "block 7" not in level_of(Place(*_default())).revisions.get(number=2).note
    assert not AuditRecord.objects.filter(after__contains="block 7").exists()


def test_problems_send_it_back_even_where_the_check_is_said_to_have_gone_well_and_all_are_counted(acme: Api) -> None:
    rollout = checked(acme)
    (step,) = OperationStep.objects.filter(deed="integrity", state="waiting")
    problems = [f"4711: run {number} of 12 blocks is held twice and noted once" for number in range(400)]
    told = {"operation": str(step.operation_id), "ok": True, "at": 0.0, "result": {"problems": problems}}
    batch = Batch(0, "spool", 1, [Report("receipt", told)], None)
    batches_store({step.agent_id: batch}, now=timezone.now())
    back = sweep(rollout, seconds=65)
    assert (back.state, "found 400 problems" in back.why) == ("rolled_back", True)
    assert "noted once and 399 more" in back.details


def test_a_check_that_does_not_say_what_it_found_pauses_it(acme: Api) -> None:
    rollout = checked(acme)
    (step,) = OperationStep.objects.filter(deed="integrity", state="waiting")
    steps_end([Ended(step.pk, True, result={"why": "lost"})], now=timezone.now())
    paused = sweep(rollout, seconds=65)
    assert (paused.state, "was not answered" in paused.why) == ("paused", True)


def test_a_check_that_nobody_answers_pauses_it(acme: Api) -> None:
    rollout = checked(acme)
    steps_sweep(now=timezone.now() + timedelta(seconds=200))
    paused = sweep(rollout, seconds=201)
    assert (paused.state, "was not answered" in paused.why) == ("paused", True)


def test_where_no_engine_is_left_to_check_itself_it_pauses(acme: Api) -> None:
    alone = {"integrity": True, "hit_ratio_drop": None, "ttft_p95_rise": None, "error_ratio": None}
    rollout = canary(acme, rollout={**CANARY, "guards": alone})
    agent_revoke(actor=SYSTEM, agent=Agent.objects.get(pk=rollout.reached[0]))
    paused = sweep(rollout, seconds=61)
    assert (paused.state, paused.why) == ("paused", "No engine that is reached is left to check itself.")


# By hand


def test_an_abort_publishes_what_was_before_for_everybody(acme: Api) -> None:
    put(acme, rollout=None, ttl_seconds=50)
    rollout = canary(acme, seen=1)
    shown = said(deed(acme, rollout, "abort"))
    assert (shown["state"], shown["why"]) == ("aborted", "Aborted by test.")
    level = level_of(Place(*_default()))
    assert (level.revision, level.policy) == (3, {"ttl_seconds": 50})
    assert AuditRecord.objects.get(verb="rollout.abort").actor_name == "test"


def test_an_abort_works_though_the_old_policy_is_out_of_bounds_by_now(acme: Api) -> None:
    put(acme, rollout=None, ttl_seconds=50)
    rollout = canary(acme, seen=1)
    bounds_put(actor=SYSTEM, organisation=_default()[0], bounds=Bounds(), expected=None)
    assert deed(acme, rollout, "abort").status_code == 200
    assert level_of(Place(*_default())).policy == {"ttl_seconds": 50}


def test_promoting_asks_for_no_evidence_and_ends_at_the_last_step(acme: Api) -> None:
    rollout = canary(acme)
    shown = said(deed(acme, rollout, "promote"))
    assert (shown["step"], shown["state"]) == (1, "running")
    assert [one["reached"] for one in shown["agents"]] == [True, True]
    refused = deed(acme, rollout, "promote")
    assert (refused.status_code, said(refused)["errors"][0]["field"]) == (409, "rollout")


def test_a_paused_one_that_is_promoted_runs(acme: Api) -> None:
    rollout = canary(acme)
    deed(acme, rollout, "pause")
    assert said(deed(acme, rollout, "promote"))["state"] == "running"


def test_pausing_and_resuming_twice_is_pausing_and_resuming_once(acme: Api) -> None:
    rollout = canary(acme)
    for name in ("pause", "pause", "resume", "resume"):
        assert deed(acme, rollout, name).status_code == 200
    assert verbs() == ["rollout.begin", "rollout.pause", "rollout.resume"]


@pytest.mark.parametrize("name", ["pause", "resume", "promote", "abort"])
def test_of_one_that_has_ended_nothing_can_be_asked(acme: Api, name: str) -> None:
    rollout = canary(acme)
    deed(acme, rollout, "abort")
    answer = deed(acme, rollout, name)
    assert answer.status_code == 409
    assert "it is aborted" in said(answer)["errors"][0]["message"]


@pytest.mark.parametrize("name", ["pause", "resume", "promote", "abort"])
def test_what_an_operator_began_only_operators_decide_about(acme: Api, operator: Api, name: str) -> None:
    rollout = canary(operator)
    assert deed(acme, rollout, name).status_code == 403
    assert the(rollout.pk).state == "running"
    assert deed(operator, rollout, name).status_code == 200


def test_a_way_back_is_not_taken_back(acme: Api, operator: Api) -> None:
    rollout = canary(acme)
    count(rollout, BAD, GOOD)
    sweep(rollout)
    way_back = Rollout.objects.get(revision=2)
    refused = deed(operator, way_back, "abort")
    assert (refused.status_code, said(refused)["errors"][0]["field"]) == (409, "rollout")
    assert level_of(Place(*_default())).policy == {}
    assert the(way_back.pk).state == "running"


# Superseded


def test_a_new_revision_supersedes_and_everybody_keeps_what_they_hold(acme: Api) -> None:
    put(acme, rollout=None, ttl_seconds=50)
    make_agent("agent-3")
    first = canary(acme, seen=1, rollout={**CANARY, "steps": [10, 100]}, ttl_seconds=60)
    (changed,) = first.reached
    second = the(put(acme, seen=2, rollout={**CANARY, "steps": [10, 100]}, ttl_seconds=70))
    assert (the(first.pk).state, the(first.pk).why) == ("superseded", "Revision 3 was published.")
    assert second.base_revision == 1
    views = [one.view for one in rollouts_planned()]
    held = {
        name: {number for _, number in held_by(name, "engine", views)} for name in ("agent-1", "agent-2", "agent-3")
    }
    expected = {name: {2} if name == changed else {1} for name in held} | {name: set() for name in second.reached}
    assert held == expected
    deed(acme, second, "abort")
    assert level_of(Place(*_default())).policy == {"ttl_seconds": 50}


def test_a_publish_that_knows_no_rollouts_supersedes_too(acme: Api) -> None:
    rollout = canary(acme)
    publish(Place(*_default()), ttl_seconds=99)
    assert the(rollout.pk).state == "superseded"
    assert "rollout.supersede" in verbs()


def test_another_level_is_left_alone(acme: Api, operator: Api) -> None:
    rollout = canary(acme)
    put(operator, path="/policy", rollout=None)
    assert the(rollout.pk).state == "running"


def test_a_rollback_over_rest_goes_to_everybody_at_once(acme: Api) -> None:
    rollout = canary(acme)
    answer = acme.post(f"{PATH}/rollback", {"revision": 0}, If_Match='"1"')
    onward = the(said(answer)["rollout"])
    assert (onward.strategy, the(rollout.pk).state) == ("all", "superseded")


def test_what_is_deleted_ends_its_rollout(acme: Api) -> None:
    acme.post("/orgs/acme/namespaces", {"slug": "chat"})
    rollout = canary(acme, path="/orgs/acme/namespaces/chat/policy")
    other = canary(acme)
    namespace_delete(
        actor=SYSTEM, namespace=Namespace.objects.select_related("organisation").get(slug="chat"), expected=None
    )
    ended = sweep(rollout)
    assert (ended.state, ended.why) == ("aborted", "What it was for has been deleted.")
    assert the(other.pk).state == "running"


@pytest.mark.parametrize("ends", ["abort", "supersede"])
def test_nobody_has_acknowledged_what_ended_before_it_came_to_them(acme: Api, ends: str) -> None:
    rollout = canary(acme)
    (changed, unchanged), spec = sides(rollout), {**CANARY, "steps": [50, 100]}
    deed(acme, rollout, "abort") if ends == "abort" else put(acme, seen=1, rollout=spec, ttl_seconds=70)
    for _ in range(2):
        planned()
        applied(changed, unchanged)
    operation = Operation.objects.get(pk=str(rollout.operation_id))
    assert (operation.state, operation.awaited_agents) == ("failed", [])
    notes = {one["agent"]: one.get("note") for one in operation.receipts}
    state = "aborted" if ends == "abort" else "superseded"
    assert notes == {changed: None, unchanged: f"the rollout is {state}"}
    assert {one["agent"]: one["acknowledged"] for one in look(acme, rollout)["agents"]} == {
        changed: True,
        unchanged: False,
    }


def test_what_went_to_all_at_once_is_still_acknowledged_after_the_next_revision(acme: Api) -> None:
    make_agent("agent-1")
    rollout = the(put(acme, rollout=None))
    put(acme, seen=1, rollout=None, ttl_seconds=70)
    planned()
    applied("agent-1")
    assert Operation.objects.get(pk=str(rollout.operation_id)).state == "done"


def test_a_revoked_agent_has_not_acknowledged(acme: Api) -> None:
    make_agent("agent-1")
    rollout = the(put(acme, rollout=None))
    agent_revoke(actor=SYSTEM, agent=Agent.objects.get())
    assert [one["acknowledged"] for one in look(acme, rollout)["agents"]] == [False]


# Agents that come later


def test_an_engine_that_enrolled_since_is_awaited_once_it_is_reached(acme: Api) -> None:
    rollout = canary(acme, rollout={**CANARY, "steps": [10, 99, 100]})
    make_agent("agent-3")
    deed(acme, rollout, "promote")
    reached = the(rollout.pk).reached
    assert len(reached) == 2
    deed(acme, rollout, "promote")
    acknowledge("agent-1", "agent-2")
    assert sweep(rollout).why == "Waiting for agent-3."
    assert Operation.objects.get(pk=str(rollout.operation_id)).awaited_agents == ["agent-3"]
    acknowledge("agent-3")
    assert sweep(rollout).state == "done"


def test_an_engine_that_was_taken_over_is_awaited_again(acme: Api) -> None:
    rollout = canary(acme)
    count(rollout, GOOD, GOOD)
    sweep(rollout)
    planned()
    Agent.objects.filter(pk=rollout.reached[0]).update(**FORGOTTEN)
    assert sweep(rollout, seconds=61).why == f"Waiting for {rollout.reached[0]}."
    acknowledge(*rollout.reached)
    assert sweep(rollout, seconds=61).step == 1


def test_a_rejection_at_the_last_step_sends_it_back(acme: Api) -> None:
    rollout = canary(acme)
    _, last = sides(rollout)
    deed(acme, rollout, "promote")
    Agent.objects.filter(pk=last).update(desired_hash="f" * 64, rejected_hash="f" * 64, rejected_reason="too large")
    back = sweep(rollout)
    assert (back.state, back.why, back.details) == (
        "rolled_back",
        f"Rejected by {last}.",
        f"Rejected by {last} (too large).",
    )


# How long a cold cache excuses


def test_a_canary_over_a_canary_excuses_misses_of_every_format_that_is_left(acme: Api) -> None:
    put(acme, rollout=None, kv_dtype="bf16", ttl_seconds=600)
    about = make_agent("agent-1").about
    of = {"model": about["models"][0]["name"], "revision": about["models"][0]["revision"], "backend": about["backend"]}
    quality_override(actor=SYSTEM, kv_dtype="fp8", note="for this test", **of)
    canary(acme, seen=1, kv_dtype="fp8", ttl_seconds=600)
    second = the(put(acme, seen=2, kv_dtype="fp8", ttl_seconds=601))
    assert second.evidence["grace_seconds"] == 601


def test_above_namespaces_the_longest_life_below_counts(acme: Api) -> None:
    make_agent("agent-1")
    put(acme, rollout=None, ttl_seconds=86_000)
    rollout = the(put(acme, path="/orgs/acme/policy", kv_dtype="bf16"))
    assert rollout.evidence["grace_seconds"] == 86_000


# One that is broken, and many


def test_a_rollout_that_cannot_be_read_keeps_none_of_the_others(acme: Api, operator: Api) -> None:
    broken = canary(acme)
    Rollout.objects.filter(pk=broken.pk).update(guards={"of": "another version"})
    other = the(put(operator, path="/policy", rollout=None))
    acknowledge("agent-1", "agent-2")
    sweep(other)
    assert (the(broken.pk).state, the(other.pk).state) == ("running", "done")


def test_counters_of_another_version_begin_anew(acme: Api) -> None:
    rollout = canary(acme)
    count(rollout, GOOD, GOOD)
    evidence = sweep(rollout).evidence
    shorter = {agent: [one[0], one[1][:-1], one[2][:-1], 0] for agent, one in evidence["changed"].items()}
    Rollout.objects.filter(pk=rollout.pk).update(evidence={**evidence, "changed": shorter})
    sweep(rollout)
    assert look(acme, rollout)["changed"]["requests"] == 0


def test_what_goes_to_all_at_once_costs_the_sweep_nothing_while_it_waits(acme: Api, operator: Api) -> None:
    make_agent("agent-1")
    rollouts = [the(put(acme, rollout=None)), the(put(operator, path="/policy", rollout=None))]
    assert {tuple(one.reached) for one in rollouts} == {()}
    assert rollouts_planned() == []
    with CaptureQueriesContext(connection) as asked:
        sweep_all()
    assert len(asked) == 1


def test_of_one_that_has_ended_the_sums_are_kept_for_90_days(acme: Api) -> None:
    rollout = canary(acme)
    count(rollout, BAD, GOOD)
    ended = sweep(rollout)
    assert not {"changed", "unchanged"} & {*ended.evidence}
    shown = look(acme, rollout)
    assert [(shown[side]["agents"], shown[side]["requests"]) for side in ("changed", "unchanged")] == [(1, 50), (1, 50)]
    rollouts_forget(now=timezone.now() + timedelta(days=89))
    assert the(rollout.pk) == rollout
    rollouts_forget(now=timezone.now() + timedelta(days=91))
    assert [one.revision for one in Rollout.objects.all()] == [2]


# Who sees what


def test_organisations_see_their_own_and_nothing_of_what_ails_an_agent(acme: Api, operator: Api) -> None:
    rollout = canary(acme)
    put(operator, path="/policy", rollout=None)
    ails = {"stale": {"since": timezone.now().isoformat(), "why": "nothing heard of it"}}
    Agent.objects.update(conditions=ails)
    assert [one["place"] for one in said(acme.get("/rollouts"))["items"]] == ["acme/default"]
    assert [one["place"] for one in said(operator.get("/rollouts"))["items"]] == ["fleet", "acme/default"]
    assert {one["why"] for one in look(acme, rollout)["agents"]} == {None}
    assert {one["why"] for one in look(operator, rollout)["agents"]} == {"nothing heard of it"}


def test_a_bound_key_sees_its_namespaces_rollouts_alone(acme: Api) -> None:
    canary(acme)
    canary(acme, path="/orgs/acme/policy")
    organisation, namespace = _default()
    bound = Api(make_key(organisation, "policy:write", namespaces=[namespace]), Client())
    assert [one["place"] for one in said(bound.get("/rollouts"))["items"]] == ["acme/default"]


def test_rollouts_are_filtered_by_state_and_place(operator: Api, acme: Api) -> None:
    first = canary(acme)
    canary(acme, path="/orgs/acme/policy")
    deed(acme, first, "pause")
    assert [one["place"] for one in said(operator.get("/rollouts?state=paused"))["items"]] == ["acme/default"]
    assert [one["state"] for one in said(operator.get("/rollouts?place=acme"))["items"]] == ["running"]
    assert operator.get("/rollouts?state=open").status_code == 422
    assert operator.get("/rollouts?place=Acme").status_code == 422


def test_operators_previews_name_agents_and_their_pools(operator: Api, acme: Api) -> None:
    make_agent("agent-1")
    make_agent("gateway-1", kind="gateway", backend="gateway", models=[])
    shown = said(operator.post(f"{PATH}/preview", {"policy": {"limit_share": 0.5}}))
    assert shown["affected"]["agents"] == ["agent-1"]
    limit = next(one for one in shown["shares"]["agents"] if one["field"] == "limit_share")
    assert (limit["agent"], limit["blocks"]) == ("agent-1", (1 << 27) // 2048)


def canary_warnings(api: Api) -> list[str]:
    shown = said(api.post(f"{PATH}/preview", {"policy": {"limit_share": 0.5}, "rollout": CANARY}))
    return [one["message"] for one in shown["warnings"] if one["code"] == "canary_alone"]


def test_the_preview_warns_of_a_canary_that_has_nothing_to_compare_with(acme: Api) -> None:
    assert canary_warnings(acme) == []
    make_agent("gateway-1", kind="gateway", backend="gateway", models=[])
    (gateways_only,) = canary_warnings(acme)
    assert "no engine serves this yet" in gateways_only
    make_agent("agent-1")
    (alone,) = canary_warnings(acme)
    assert "the first step reaches every engine" in alone
    make_agent("agent-2")
    assert canary_warnings(acme) == []


# With the real plan and the real acknowledgements


def applied(*agents: str) -> None:
    """Each reports over its spool that it holds what it is to hold."""
    for agent in Agent.objects.filter(pk__in=agents):
        told = {"generation": agent.desired_generation, "hash": agent.desired_hash, "at": 0.0, "engine_boot": "boot-1"}
        report = Report("applied", {**told, "seconds": 0.01})
        batch = Batch(0.0, "spool-1", agent.spool_number + 1, [report], None)
        batches_store({agent.pk: batch}, now=timezone.now())


def held(agent: str) -> tuple[int, int]:
    """Which revision of the namespace's policy an agent is to hold, and its TTL."""
    snapshot = snapshot_decode(snapshot_for(agent).body)
    entry = snapshot.entries[f"ns/{_default()[1].pk}"]
    return entry["revision"], snapshot.policies[entry["policy"]]["ttl_seconds"]


def planned() -> dict[str, int]:
    plan_carry_out(now=timezone.now())
    return dict(Agent.objects.values_list("pk", "desired_generation"))


def test_every_agent_holds_what_its_step_says_and_never_anything_older(acme: Api) -> None:
    for name in ("agent-1", "agent-2"):
        make_agent(name)
    first = the(put(acme, rollout=None, ttl_seconds=50))
    generations = [planned()]
    applied("agent-1", "agent-2")
    assert sweep(first).state == "done"

    rollout = the(put(acme, seen=1, ttl_seconds=60))
    generations.append(planned())
    new, old = sides(rollout)
    assert (held(new), held(old)) == ((2, 60), (1, 50))
    applied(old)
    assert sweep(rollout).baking_since is None
    applied(new)
    assert sweep(rollout).baking_since is not None

    count(rollout, BAD, GOOD)
    assert sweep(rollout).state == "rolled_back"
    generations.append(planned())
    assert held(new) == held(old) == (3, 50)
    applied(new, old)
    onward = Rollout.objects.get(revision=3)
    assert sweep(onward).state == "done"
    for before, after in pairwise(generations):
        assert all(after[agent] >= before[agent] for agent in after)
    assert generations[-1][new] > generations[-2][new]


def test_a_canary_that_goes_well_ends_with_everybody_on_the_newest(acme: Api) -> None:
    for name in ("agent-1", "agent-2", "agent-3"):
        make_agent(name)
    rollout = the(put(acme, rollout={**CANARY, "steps": [30, 60, 100]}, ttl_seconds=60))
    for step, reached in enumerate((1, 2, 3)):
        planned()
        now_on = [name for name in ("agent-1", "agent-2", "agent-3") if held(name) == (1, 60)]
        assert now_on == the(rollout.pk).reached
        assert len(now_on) == reached
        applied(*now_on)
        if step < 2:
            baking = sweep(rollout)
            for requests in (0, 50):
                for agent in ("agent-1", "agent-2", "agent-3"):
                    beat(agent, baking, counters(requests + 100 * step, cached=70))
                sweep(rollout)
            sweep(rollout, seconds=61 + step)
    assert sweep(rollout).state == "done"
    assert Operation.objects.get(pk=str(rollout.operation_id)).state == "done"


# At once


@pytest.mark.django_db(transaction=True)
def test_two_sweeps_at_once_do_each_deed_once(acme: Api) -> None:
    rollout = canary(acme)
    count(rollout, BAD, GOOD)
    now: datetime = timezone.now()
    done = at_once(*[lambda: rollouts_advance(now=now)] * 2)
    assert failures(done) == []
    assert (the(rollout.pk).state, verbs().count("rollout.roll-back")) == ("rolled_back", 1)
    assert level_of(Place(*_default())).revision == 2


@pytest.mark.django_db(transaction=True)
def test_a_publish_and_a_way_back_at_once_leave_one_open_rollout(acme: Api) -> None:
    rollout = canary(acme)
    count(rollout, BAD, GOOD)
    place = Place(*_default())
    done = at_once(lambda: rollouts_advance(now=timezone.now()), lambda: publish(place, ttl_seconds=88))
    assert failures(done) == []
    assert the(rollout.pk).state in ("rolled_back", "superseded")
    assert Rollout.objects.filter(state__in=Rollout.OPEN).count() <= 1


def test_fleet_wide_it_works_the_same(operator: Api, acme: Api) -> None:
    rollout = canary(operator, path="/policy")
    count(rollout, BAD, GOOD)
    assert sweep(rollout).state == "rolled_back"
    assert level_of(FLEET).policy == {}
