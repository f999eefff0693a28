"""The pages of one agent and of join tokens: for operators alone; what each deed does is said before it is done."""

import re
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from controlplane.analytics.models import PoolMinute
from controlplane.fleet.agents import agent_drain
from controlplane.fleet.enrolment import enrol
from controlplane.fleet.health_update import conditions_update
from controlplane.fleet.models import Agent, CanaryMinute, CanaryStanding, JoinToken, OperationStep
from tenants.actor import SYSTEM
from tenants.models import AuditRecord, Operation
from tests.database.factories import about_agent, make_group, make_join_token
from tests.fleet.rollouts import make_shipped_results
from tests.fleet.seen_agents import HASH, OTHER, count_minute, hold, make_agent, make_vllm_agent
from tests.web.api import make_organisation
from tests.web.pages import words

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("still_clock")]
TOKENS = "/fleet/join-tokens"


def look(client: Client, agent: str = "agent-1", more: str = "") -> str:
    return words(client.get(f"/fleet/agents/{agent}{more}"))


def send(client: Client, deed: str, agent: str = "agent-1", seen: str = "serving", **more: str) -> HttpResponse:
    return client.post(f"/fleet/agents/{agent}/{deed}", {"seen": seen, **more})  # type: ignore[return-value]


# One agent


def test_an_agent_is_shown_with_what_it_holds_is_to_hold_and_can_do(operator_client: Client) -> None:
    make_agent(labels={"tier": "canary"}, desired_generation=7, desired_at=timezone.now(), applied_at=timezone.now())
    said = look(operator_client)
    assert "agent-1 is ready and holds what is published" in said
    assert "It holds generation 7, as it is to" in said
    assert said.count(HASH) == 2
    assert "Answering 2 requests now" in said
    assert "Waiting in it 1 requests now" in said
    assert "Model luminet-demo · 8,192 tokens of context · revision r" in said
    assert "Labels tier=canary" in said
    assert "Accelerator none: CPU" in said


def test_one_with_vllm_says_so_and_what_its_formats_are_computed_as(operator_client: Client) -> None:
    make_vllm_agent()
    acme = make_organisation("acme")
    hold("agent-1", acme, "default", fp8=20)
    said = look(operator_client)
    assert "Kind engine · vllm 0.32.0" in said
    assert "Formats fp8_e4m3, fp8 (computed as fp8_e4m3)" in said
    assert "acme/default 20 B 10.0 % fp8 (computed as fp8_e4m3)" in said
    listed = words(operator_client.get("/fleet"))
    assert "vllm 0.32.0 · CPU" in listed
    assert "luminet-demo · fp8_e4m3, fp8 (computed as fp8_e4m3)" in listed


def test_one_none_of_whose_formats_is_proven_says_that_it_gets_no_requests(operator_client: Client) -> None:
    make_vllm_agent(desired_generation=7)
    make_shipped_results()
    conditions_update(now=timezone.now())
    why = "it gets no requests: fp8_e4m3 was not measured on luminet-demo at r on vllm-cpu; bf16 needs no result"
    said = look(operator_client)
    assert f"Its formats are unproven {why}" in said
    assert why in words(operator_client.get("/fleet"))


def test_one_that_is_behind_says_why_and_since_when(operator_client: Client) -> None:
    since = "2026-01-02T03:04:05Z"
    behind = {"behind": {"since": since, "why": "it holds bbbb and is to hold aaaa"}}
    make_agent(applied_hash=OTHER, desired_generation=9, conditions=behind)
    said = look(operator_client)
    assert "agent-1 is ready and does not hold what is published yet It holds bbbb and is to hold aaaa." in said
    assert "It holds generation 7 of 9" in said
    assert "Behind it holds bbbb and is to hold aaaa since 2 Jan 2026, 03:04:05 UTC" in said


def test_the_canarys_numbers_stand_there_with_what_they_mean(operator_client: Client) -> None:
    make_agent()
    assert "Nobody has probed it within an hour" in look(operator_client)
    now = timezone.now()
    CanaryMinute.objects.create(agent="agent-1", minute=now.replace(second=0, microsecond=0), isolated=12, leaked=1)
    CanaryStanding.objects.create(
        gateway="gateway-1", agent="agent-1", at=now, failure="b found 128 tokens", failed_at=now,
        pairs=40, auc=0.5, low=0.4, high=0.6,
    )  # fmt: skip
    said = look(operator_client)
    assert "Isolation is broken here" in said
    assert "leaked 1 a tenant found cached what it had not sent" in said
    assert "AUC 0.500, 99.9 % interval 0.400 to 0.600, of 40 pairs: nothing proves that time tells." in said
    assert "Last not as it should be: b found 128 tokens" in said


def test_its_pool_is_shown_by_namespace_and_format_as_it_told_them(operator_client: Client) -> None:
    acme = make_organisation("acme", "chat")
    make_agent()
    hold("agent-1", acme, "default", int8=50, int4=10)
    hold("agent-1", acme, "chat", 30)
    count_minute("agent-1", acme, "default", "bf16", prompt=100, cached=50)
    said = look(operator_client)
    assert "100 B of 200 B are used, 50 %" in said
    assert "acme/default 50 B 25.0 % int8" in said
    assert "acme/default 10 B 5.0 % int4" in said
    assert "acme/chat 30 B 15.0 % not told" in said
    assert "Hit rate 50.0 % 1 h · 1 request · 100 prompt tokens" in said


def test_what_is_stored_is_drawn_over_an_hour_or_a_day_and_nothing_else(operator_client: Client) -> None:
    acme, now = make_organisation("acme"), timezone.now()
    make_agent()
    assert "Nothing is stored of the last 1 h" in look(operator_client)
    count_minute("agent-1", acme, "default", "fp8", prompt=100, cached=50)
    count_minute("agent-1", acme, "default", "fp8", prompt=100, cached=0, at=now - timedelta(hours=3))
    PoolMinute.objects.create(
        agent="agent-1", minute=now.replace(second=0, microsecond=0), boot="b", capacity_bytes=200, used_bytes=90
    )
    hour, day = look(operator_client), look(operator_client, more="?window=24h")
    assert "Hit rate 50.0 % over 1 h, by steps of 2 min" in hour
    assert "1 request answered over 1 h" in hour
    assert "The pool was at most 45 % full over 1 h" in hour
    assert "Hit rate 25.0 % over 24 h, by steps of 30 min" in day
    assert "over 1 h, by steps" in look(operator_client, more="?window=<script>"), "nonsense is as if nothing was said"


def test_operations_are_listed_with_their_receipts(operator_client: Client) -> None:
    agent = make_agent()
    drained = agent_drain(actor=SYSTEM, agent=agent)
    assert "Drain agent agent-1 awaited no receipt yet" in look(operator_client)
    receipt = {"blocks": 3, "bytes": 2048, "note": "<b>late</b>"}
    OperationStep.objects.update(state="failed", done_at=timezone.now(), receipt=receipt)
    page = operator_client.get("/fleet/agents/agent-1").content.decode()
    assert f'href="/operations/{drained.pk}"' in page
    assert "3 blocks, 2.0 KiB, &lt;b&gt;late&lt;/b&gt;" in page


def test_what_an_agent_says_of_itself_is_shown_escaped(operator_client: Client) -> None:
    evil = "<script>alert(1)</script>"
    about = {"backend": evil, "version": evil, "models": [], "kv_dtypes": [], "pool": {}}
    make_agent(about=about, enrolled_by=evil, conditions={"behind": {"since": "2026-01-02T03:04:05Z", "why": evil}})
    assert evil not in operator_client.get("/fleet/agents/agent-1").content.decode()


def test_an_agent_that_is_not_there_is_no_page(operator_client: Client) -> None:
    for one in ("nobody", "A_b", "x" * 200):
        assert operator_client.get(f"/fleet/agents/{one}").status_code == 404


def test_however_much_it_holds_the_page_costs_the_same_queries(
    operator_client: Client, django_assert_max_num_queries: Any
) -> None:
    acme = make_organisation("acme", *(f"n{number}" for number in range(60)))
    make_agent()
    for number in range(60):
        hold("agent-1", acme, f"n{number}", 1)
    with django_assert_max_num_queries(18):
        said = look(operator_client)
    assert "10 other namespaces 10 B" in said
    with django_assert_max_num_queries(14):
        look(operator_client, more="/now")


# Its deeds


def test_draining_says_what_will_happen_and_leads_to_the_receipt(operator_client: Client) -> None:
    make_agent()
    said = look(operator_client)
    assert "it finishes 3 requests first. No other engine of the group default takes requests" in said
    make_agent("agent-2")
    assert "1 other engine of the group default takes its share." in look(operator_client)
    answer = send(operator_client, "drain")
    operation = Operation.objects.get(kind="drain")
    assert (answer.status_code, answer["Location"]) == (302, f"/operations/{operation.pk}")
    assert Agent.objects.get(pk="agent-1").is_draining
    assert "Resume agent-1" in look(operator_client)
    assert send(operator_client, "resume", seen="draining").status_code == 302
    assert not Agent.objects.get(pk="agent-1").is_draining


@pytest.mark.parametrize("deed", ["integrity", "rotate-token"])
def test_other_deeds_begin_an_operation_each(deed: str, operator_client: Client) -> None:
    make_agent()
    assert send(operator_client, deed).status_code == 302
    assert Operation.objects.get().kind == deed.replace("-", "_")


@pytest.mark.parametrize("deed", ["drain", "resume", "integrity", "rotate-token", "revoke"])
def test_a_page_that_shows_it_otherwise_than_it_is_changes_nothing(deed: str, operator_client: Client) -> None:
    make_agent()
    for seen in ("draining", "revoked", "", "x" * 10_000):
        answer = send(operator_client, deed, seen=seen, confirm="agent-1")
        assert answer.status_code == 422
        assert "The agent is not as this page showed it any more." in words(answer)
    agent = Agent.objects.get()
    assert (agent.is_draining, agent.revoked_at, Operation.objects.count()) == (False, None, 0)


def test_whoever_reloads_a_refused_deed_sees_the_agent_and_does_nothing(operator_client: Client) -> None:
    make_agent()
    answer = operator_client.get("/fleet/agents/agent-1/drain")
    assert (answer.status_code, answer["Location"]) == (302, "/fleet/agents/agent-1")
    assert not Agent.objects.get().is_draining


def test_revoking_wants_the_agents_id(operator_client: Client) -> None:
    make_agent()
    refused = send(operator_client, "revoke", confirm="<script>agent-2")
    assert refused.status_code == 422
    assert "is not agent-1: nothing was done." in words(refused)
    assert "<script>agent-2" not in refused.content.decode()
    assert Agent.objects.get().revoked_at is None
    assert send(operator_client, "revoke", confirm="agent-1").status_code == 302
    said = look(operator_client)
    assert "agent-1 is out of the fleet" in said
    assert "Only a join token brings it back" in said
    assert "Drain agent-1" not in said
    assert send(operator_client, "drain", seen="revoked").status_code == 422, "there is nothing left to do with it"


def test_customers_find_no_agent_and_change_nothing(customer_client: Client) -> None:
    make_agent()
    assert customer_client.get("/fleet/agents/agent-1").status_code == 404
    assert send(customer_client, "drain").status_code == 404
    assert not Agent.objects.get().is_draining


# Join tokens


def form(**more: Any) -> dict[str, Any]:
    told = {"name": "first machines", "kind": "engine", "group": "default", "agent": "", "uses": "1", "lasts": "3600"}
    return {**told, "once": str(uuid4()), **more}


def test_a_token_is_shown_once_in_a_command_that_lets_an_agent_join(operator_client: Client) -> None:
    answer = operator_client.post(TOKENS, form(kind="engine", uses="2"))
    assert answer.status_code == 201
    assert "no-store" in answer["Cache-Control"]
    found = re.search(r"luminet agent --join http://testserver --token (\S+) --model PATH", words(answer))
    assert found is not None
    assert "luminet gateway" not in words(answer)
    enrol(token=found[1], kind="engine", name="new", about=about_agent(), now=timezone.now(), address="192.0.2.7")
    said = words(operator_client.get(TOKENS))
    assert found[1] not in said
    assert "first machines" in said
    assert "open 1 joined, 1 more may" in said
    record = AuditRecord.objects.get(verb="join-token.create")
    assert record.actor_name == "operator@luminet.example"


def test_a_form_that_is_sent_again_makes_no_second_token(operator_client: Client) -> None:
    sent = form()
    first, again = operator_client.post(TOKENS, sent), operator_client.post(TOKENS, sent)
    token = JoinToken.objects.get()
    assert (first.status_code, again.status_code) == (201, 422)
    assert f"The join token first machines ({token.prefix}…) was made with this form already" in words(again)
    assert re.findall(r"ljt_\w{49}", first.content.decode())
    assert not re.findall(r"ljt_\w{49}", again.content.decode())
    other = operator_client.post(TOKENS, {**sent, "name": "other"})
    assert other.status_code == 422
    assert "A token was made with this form already." in words(other)


def test_a_token_may_be_bound_to_a_name_a_group_and_a_kind(operator_client: Client) -> None:
    make_group("gpu")
    answer = operator_client.post(TOKENS, form(kind="gateway", group="gpu", agent="gateway-9", lasts="604800"))
    assert "luminet gateway --join http://testserver --token" in words(answer)
    assert "--name gateway-9" in words(answer)
    token = JoinToken.objects.get()
    assert (token.kind, token.group.slug, token.agent, token.uses_left) == ("gateway", "gpu", "gateway-9", 1)
    assert token.expires_at is not None
    assert token.expires_at - token.created_at == timedelta(days=7)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": ""}, "This field is required."),
        ({"name": "x" * 10_000}, "at most 200 characters"),
        ({"name": "<script>\x00"}, "Null characters are not allowed."),
        ({"kind": "printer"}, "printer is not one of the available choices"),
        ({"group": "nowhere"}, "nowhere is not one of the available choices"),
        ({"agent": "Not A Slug"}, "Agent"),
        ({"agent": "agent-1", "uses": "2"}, "it can be used once"),
        ({"uses": "0"}, "greater than or equal to 1"),
        ({"uses": "1e9"}, "Enter a whole number."),
        ({"lasts": "5"}, "5 is not one of the available choices"),
        ({"once": "x"}, "This form is not whole"),
    ],
)
def test_what_is_wrong_is_named_and_what_was_typed_stays(
    wrong: dict[str, str], said: str, operator_client: Client
) -> None:
    answer = operator_client.post(TOKENS, form(name="<script>kept</script>") | wrong)
    assert answer.status_code == 422
    assert said in words(answer)
    assert "<script>kept" not in answer.content.decode()
    if "name" not in wrong:
        assert 'value="&lt;script&gt;kept&lt;/script&gt;"' in answer.content.decode()
    assert not JoinToken.objects.exists()


def test_a_token_is_revoked_by_its_name_and_nobody_joins_with_it(operator_client: Client) -> None:
    token, _ = make_join_token("old machines")
    said = words(operator_client.get(TOKENS, {"revoke": str(token.pk)}))
    assert "Revoke old machines" in said
    assert "From then on nobody joins with it." in said
    told = {"do": "revoke", "token": str(token.pk)}
    refused = operator_client.post(TOKENS, {**told, "end-typed": "<script>new"})
    assert refused.status_code == 422
    assert "<script>new" not in refused.content.decode()
    assert JoinToken.objects.get().revoked_at is None
    assert operator_client.post(TOKENS, {**told, "end-typed": "old machines"}).status_code == 302
    assert JoinToken.objects.get().revoked_at is not None
    assert "Nobody can join: there is no token" in words(operator_client.get(TOKENS))
    assert operator_client.post(TOKENS, {**told, "end-typed": "old machines"}).status_code == 404


def test_customers_neither_see_nor_make_tokens(customer_client: Client) -> None:
    assert customer_client.get(TOKENS).status_code == 404
    assert customer_client.post(TOKENS, form()).status_code == 404
    assert not JoinToken.objects.exists()


def test_a_thousand_tokens_cost_no_more_queries_than_one(
    operator_client: Client, django_assert_max_num_queries: Any
) -> None:
    for number in range(60):
        make_join_token(f"token {number}")
    with django_assert_max_num_queries(7):
        said = words(operator_client.get(TOKENS))
    assert "1 to 50 of 60" in said
