"""The pages of rollouts: for operators alone, in words and numbers, with deeds that say what they do."""

import re
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from controlplane.fleet.models import OperationStep
from controlplane.rollouts.models import Rollout
from controlplane.rollouts.services import policy_publish
from controlplane.rollouts.spec import RolloutSpec
from tenants.actor import SYSTEM
from tenants.levels import Place, level_of
from tenants.models import AuditRecord, Organisation, PolicyLevel
from tenants.policy import Policy
from tests.database.factories import make_agent, publish
from tests.web.api import make_organisation
from tests.web.pages import words

pytestmark = pytest.mark.django_db
CANARY = RolloutSpec(strategy="canary", steps=[50, 100], bake_seconds=60)
FINDING = {
    "guard": "hit_ratio_drop",
    "changed": 0.6,
    "unchanged": 0.7,
    "bound": 0.05,
    "verdict": "breached",
    "words": "hit ratio 60.0% against 70.0% elsewhere; 5.0% less is the most",
}


@pytest.fixture
def acme() -> Organisation:
    return make_organisation("acme", "chat")


def begin(
    organisation: Organisation, *agents: str, spec: RolloutSpec = CANARY, note: str = "", ttl: int = 600
) -> Rollout:
    """Of the organisation's second revision, to these engines."""
    place = Place(organisation)
    publish(place, ttl_seconds=300)
    for one in agents:
        make_agent(one)
    policy = Policy.model_validate({"ttl_seconds": ttl})
    found = policy_publish(actor=SYSTEM, place=place, policy=policy, expected=None, note=note, rollout=spec).rollout
    assert found is not None
    return found


def acknowledge(rollout: Rollout, *agents: str) -> None:
    steps = OperationStep.objects.filter(operation=rollout.operation_id, agent__in=agents)
    steps.update(state=OperationStep.State.DONE, done_at=timezone.now(), receipt={"blocks": 0, "bytes": 0})


def look(client: Client, rollout: Rollout, part: str = "rollout", **query: str) -> str:
    return words(client.get(reverse(part, args=[rollout.pk]), query))


def send(client: Client, rollout: Rollout, deed: str, **more: str) -> HttpResponse:
    told = {"seen": f"{rollout.state}-{rollout.step}", **more}
    return client.post(reverse("rollout-deed", args=[rollout.pk, deed]), told)  # type: ignore[return-value]


def state(rollout: Rollout) -> str:
    return str(Rollout.objects.get(pk=rollout.pk).state)


# The list


def test_without_rollouts_the_list_says_what_would_stand_there(operator_client: Client) -> None:
    said = words(operator_client.get("/rollouts"))
    assert "No rollout is under way" in said
    assert "Publish a policy, and how it comes to the agents stands here." in said


def test_those_under_way_come_first_then_the_newest(operator_client: Client, acme: Organisation) -> None:
    running = begin(acme, "agent-1", "agent-2")
    old = timezone.now() - timedelta(hours=1)
    Rollout.objects.filter(pk=running.pk).update(created_at=old)
    level = level_of(Place(acme))
    for number in (7, 8):
        make_ended(level, revision=number, created_at=timezone.now() - timedelta(minutes=60 - number))
    said = words(operator_client.get("/rollouts"))
    assert "1 rollout is running" in said
    places = [said.index(f"acme, revision {number} ") for number in (2, 8, 7)]
    assert places == sorted(places)
    assert "0 of 2 agents" in said


def make_ended(level: PolicyLevel, **details: Any) -> Rollout:
    told = {
        "place": "acme",
        "base_revision": 1,
        "strategy": "all",
        "steps": [100],
        "bake_seconds": 60,
        "state": Rollout.State.DONE,
        "finished_at": timezone.now(),
        "why": "Every agent has acknowledged it.",
        "created_by": "kim",
    }
    return Rollout.objects.create(level=level, **{**told, **details})


def test_a_place_is_found_by_a_part_of_its_name_and_nonsense_finds_nothing(
    operator_client: Client, acme: Organisation
) -> None:
    begin(acme, "agent-1")
    assert "acme, revision 2" in words(operator_client.get("/rollouts", {"find": "ACM"}))
    answer = operator_client.get("/rollouts", {"find": "<script>x</script>", "page": "-1"})
    assert answer.status_code == 200
    assert "<script>x" not in answer.content.decode()
    assert "No rollout of a place" in words(answer)


def test_the_list_is_paged_and_a_thousand_cost_no_more_queries(
    operator_client: Client, acme: Organisation, django_assert_max_num_queries: Any
) -> None:
    level = level_of(Place(acme))
    for number in range(60):
        make_ended(level, revision=number + 1, operation_id=uuid4())
    with django_assert_max_num_queries(8):
        first = words(operator_client.get("/rollouts"))
    assert "1 to 50 of 60" in first
    assert "51 to 60 of 60" in words(operator_client.get("/rollouts", {"page": "2"}))


# One


def test_a_canary_is_shown_by_step_with_who_is_reached_and_what_comes_next(
    operator_client: Client, acme: Organisation
) -> None:
    rollout = begin(acme, "agent-1", "agent-2", note="Chats pause longer")
    said = look(operator_client, rollout)
    assert "acme, revision 2 waits for 1 of 1 agent at step 1 of 2" in said
    assert "When all of this step have acknowledged it, they are watched for 1 min, then it goes to everybody." in said
    assert "1. 50 % of the engines now 0 of 1 acknowledged" in said
    assert "2. everybody to come" in said
    assert "Revision 2 changes 1 value against revision 1 “Chats pause longer” TTL: was 5 min → becomes 10 min" in said
    (reached,) = rollout.reached
    other = "agent-2" if reached == "agent-1" else "agent-1"
    assert f"{reached} engine awaited" in said
    assert f"{other} engine not reached" in said
    acknowledge(rollout, reached)
    assert f"{reached} engine holds it" in look(operator_client, rollout)


def test_a_bake_counts_down_with_the_guards_numbers_on_both_sides(operator_client: Client, acme: Organisation) -> None:
    rollout = begin(acme, "agent-1", "agent-2")
    acknowledge(rollout, *rollout.reached)
    since = timezone.now() - timedelta(seconds=20)
    Rollout.objects.filter(pk=rollout.pk).update(baking_since=since, evidence={"findings": [FINDING]})
    said = look(operator_client, rollout)
    assert re.search(r"baking, 2\d of 60 s", said)
    assert re.search(r"In (39|40) s it goes to everybody, if its guards are kept by then", said)
    assert f"Hit rate 60.0 % 70.0 % − 5 points breached {FINDING['words']}" in said
    assert "Requests that fail – – + 2 points not compared yet" in said
    assert "1 of 1 guard is breached" in said
    assert "With fewer than 20 on either side nothing is decided." in said


def test_one_that_goes_to_all_at_once_has_neither_steps_nor_guards(operator_client: Client, acme: Organisation) -> None:
    said = look(operator_client, begin(acme, "agent-1", spec=RolloutSpec()))
    assert "It is done when 1 more agent has acknowledged it." in said
    assert "Guard " not in said
    assert "Promote" not in said


def test_what_is_written_by_people_and_agents_is_shown_escaped(operator_client: Client, acme: Organisation) -> None:
    evil = "<script>alert(1)</script>"
    rollout = begin(acme, "agent-1", "agent-2", note=evil)
    Rollout.objects.filter(pk=rollout.pk).update(details=evil, created_by=evil)
    page = operator_client.get(reverse("rollout", args=[rollout.pk])).content.decode()
    assert evil not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 3


def test_a_thousand_agents_cost_no_more_queries_than_one(
    operator_client: Client, acme: Organisation, django_assert_max_num_queries: Any
) -> None:
    rollout = begin(acme, *(f"agent-{number}" for number in range(20)))
    with django_assert_max_num_queries(10):
        look(operator_client, rollout)
    with django_assert_max_num_queries(8):
        look(operator_client, rollout, "rollout-now", seen="running-0")


# Deeds


def test_pausing_and_resuming_are_the_services_own_deeds(operator_client: Client, acme: Organisation) -> None:
    rollout = begin(acme, "agent-1", "agent-2")
    answer = send(operator_client, rollout, "pause")
    assert (answer.status_code, answer["Location"]) == (302, f"/rollouts/{rollout.pk}")
    said = look(operator_client, rollout)
    assert "acme, revision 2 is paused at step 1 of 2" in said
    assert "Nothing happens until somebody resumes, promotes or aborts it." in said
    assert "Paused, step 1 by operator@luminet.example" in said
    rollout.refresh_from_db()
    assert send(operator_client, rollout, "resume").status_code == 302
    assert state(rollout) == "running"


def test_promoting_goes_to_the_next_step_at_once(operator_client: Client, acme: Organisation) -> None:
    rollout = begin(acme, "agent-1", "agent-2")
    assert "It goes to everybody at once, whatever its guards say of this step." in look(operator_client, rollout)
    send(operator_client, rollout, "promote")
    rollout.refresh_from_db()
    assert (rollout.step, sorted(rollout.reached)) == (1, ["agent-1", "agent-2"])
    assert "1. 50 % of the engines passed – promoted before its bake was over" in look(operator_client, rollout)


def test_aborting_wants_the_places_name_and_publishes_what_there_was(
    operator_client: Client, acme: Organisation
) -> None:
    rollout = begin(acme, "agent-1", "agent-2")
    said = look(operator_client, rollout)
    assert "It publishes what revision 1 said as the next revision, for all 2 agents at once." in said
    refused = send(operator_client, rollout, "abort", confirm="<script>acme")
    assert refused.status_code == 422
    assert "“<script>acme” is not acme: nothing was done." in words(refused)
    assert "<script>acme" not in refused.content.decode()
    assert 'value="&lt;script&gt;acme"' in refused.content.decode(), "what was typed is still there"
    assert state(rollout) == "running"
    assert send(operator_client, rollout, "abort", confirm=" acme ").status_code == 302
    assert state(rollout) == "aborted"
    level = level_of(Place(acme))
    assert (level.revision, level.policy) == (3, {"ttl_seconds": 300})
    said = look(operator_client, rollout)
    assert "acme, revision 2 was aborted at step 1 of 2" in said
    assert "what revision 1 said was published again" in said
    assert "Nothing is left to decide" in said


@pytest.mark.parametrize("deed", ["pause", "promote", "abort"])
def test_a_page_that_has_not_seen_where_it_is_changes_nothing(
    deed: str, operator_client: Client, acme: Organisation
) -> None:
    rollout = begin(acme, "agent-1", "agent-2")
    before = AuditRecord.objects.count()
    for seen in ("paused-0", "running-1", "", "x" * 10_000):
        answer = send(operator_client, rollout, deed, seen=seen, confirm="acme")
        assert answer.status_code == 422
        assert "It has gone on since this page was shown." in words(answer)
    assert (state(rollout), AuditRecord.objects.count()) == ("running", before)


def test_what_there_is_nothing_to_promote_to_is_refused_with_the_reason(
    operator_client: Client, acme: Organisation
) -> None:
    rollout = begin(acme, "agent-1", spec=RolloutSpec())
    answer = send(operator_client, rollout, "promote")
    assert answer.status_code == 422
    assert "It has reached every agent: there is no step left to go to." in words(answer)


def test_a_deed_that_nobody_knows_is_no_page(operator_client: Client, acme: Organisation) -> None:
    rollout = begin(acme, "agent-1")
    assert send(operator_client, rollout, "delete").status_code == 404


def test_whoever_reloads_a_refused_deed_sees_the_rollout_and_does_nothing(
    operator_client: Client, acme: Organisation
) -> None:
    rollout = begin(acme, "agent-1")
    answer = operator_client.get(reverse("rollout-deed", args=[rollout.pk, "pause"]))
    assert (answer.status_code, answer["Location"]) == (302, reverse("rollout", args=[rollout.pk]))
    assert state(rollout) == "running"


def test_members_of_the_organisation_find_no_such_page_and_change_nothing(
    customer_client: Client, acme: Organisation
) -> None:
    rollout = begin(acme, "agent-1", "agent-2")
    assert customer_client.get(reverse("rollout", args=[rollout.pk])).status_code == 404
    assert send(customer_client, rollout, "pause").status_code == 404
    assert state(rollout) == "running"


# Movement


def test_the_part_brings_deeds_along_only_where_it_has_gone_on(operator_client: Client, acme: Organisation) -> None:
    rollout = begin(acme, "agent-1", "agent-2")
    address = reverse("rollout-now", args=[rollout.pk])
    same = operator_client.get(address, {"seen": "running-0"}).content.decode()
    assert 'id="rollout"' in same
    assert 'id="rollout-deeds"' not in same, "what is being typed there stays"
    moved = operator_client.get(address, {"seen": "paused-0"}).content.decode()
    assert re.search(r'id="rollout-deeds"[^>]*hx-swap-oob="true"', moved)
    assert re.search(r'id="rollout-events"[^>]*hx-swap-oob="true"', moved)


def test_nobody_asks_on_once_it_is_over_or_forgotten(operator_client: Client, acme: Organisation) -> None:
    rollout = begin(acme, "agent-1", "agent-2")
    address = reverse("rollout-now", args=[rollout.pk])
    assert operator_client.get(address).status_code == 200
    send(operator_client, rollout, "abort", confirm="acme")
    over = operator_client.get(address)
    assert over.status_code == 286
    assert "hx-get" not in over.content.decode()
    assert operator_client.get(reverse("rollout-now", args=[UUID(int=1)])).status_code == 286
