"""A policy field that no serving agent enforces is refused at publish, and shown wherever it is in force."""

from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from controlplane.fleet.models import Agent
from engine_agent.backends.paged.declarations import paged_enforcement
from engine_agent.contracts.enforcement import enforcement_encode
from tenants.actor import SYSTEM
from tenants.bounds import Bounds, Offloads
from tenants.levels import FLEET, Place, level_of
from tenants.models import Member, Namespace, Organisation, User
from tenants.services.organisations import bounds_put
from tests.database.factories import make_agent, make_group, make_namespace, publish
from tests.fleet.seen_agents import make_agent as make_seen_agent
from tests.web.api import Api, make_key, make_organisation, said

pytestmark = pytest.mark.django_db
WITH_POOL = enforcement_encode(paged_enforcement(host_pool_bytes=1, host_formats=["fp8"], kv_formats=["fp8"]))
WITHOUT_POOL = enforcement_encode(paged_enforcement(host_pool_bytes=0, host_formats=[], kv_formats=["fp8"]))
NAMESPACE = "/orgs/acme/namespaces/chat"
LEVELS = ["/policy", "/orgs/acme/policy", f"{NAMESPACE}/policy"]


@pytest.fixture
def acme() -> Organisation:
    return make_organisation("acme", "chat")


def chat(organisation: Organisation) -> Place:
    return Place(organisation, Namespace.objects.select_related("organisation").get(slug="chat"))


def engine(name: str, enforcement: dict[str, Any] = WITHOUT_POOL, **more: Any) -> Agent:
    return make_agent(name, backend="paged", enforcement=enforcement, **more)


def refused(answer: HttpResponse) -> dict[str, str]:
    assert answer.status_code == 422, answer.content
    return {one["field"]: one["message"] for one in said(answer)["errors"]}


def put(api: Api, path: str, **policy: Any) -> HttpResponse:
    seen = said(api.get(path))["revision"]
    return api.put(path, {"policy": policy}, seen=seen)


# Publishing


@pytest.mark.parametrize("path", LEVELS)
def test_disk_is_refused_naming_field_and_agents(operator: Api, acme: Organisation, path: str) -> None:
    engine("agent-1")
    engine("agent-2", WITH_POOL)
    told = refused(put(operator, path, offload="disk"))
    assert told == {
        "policy.offload": "'disk' is not enforced: none of the 2 agents that serve this enforces it "
        "(agent-1, agent-2: no disk tier). Use one of: none, host"
    }
    preview = said(operator.post(f"{path}/preview", {"policy": {"offload": "disk"}}))
    assert {one["field"]: one["message"] for one in preview["problems"]} == told
    assert said(operator.get(path))["revision"] == 0


def test_host_needs_an_agent_with_a_host_pool(operator: Api, acme: Organisation) -> None:
    engine("agent-1")
    assert "agent-1: no host pool" in refused(put(operator, LEVELS[2], offload="host"))["policy.offload"]
    engine("agent-2", WITH_POOL)
    preview = said(operator.post(f"{LEVELS[2]}/preview", {"policy": {"offload": "host"}}))
    (warning,) = [one for one in preview["warnings"] if one["code"] == "not_enforced"]
    assert warning["message"].startswith("1 of 2 agents enforces offload host; agent-1: no host pool")
    assert preview["problems"] == []
    assert put(operator, LEVELS[2], offload="host").status_code == 200


def test_value_of_one_model_is_refused_by_its_path(operator: Api, acme: Organisation) -> None:
    engine("agent-1")
    assert [*refused(put(operator, LEVELS[1], models={"m": {"offload": "disk"}}))] == ["policy.models.m.offload"]
    assert put(operator, LEVELS[1], models={"other": {"offload": "disk"}}).status_code == 200


def test_kept_value_passes_and_is_shown(operator: Api, acme: Organisation) -> None:
    engine("agent-1")
    publish(chat(acme), offload="disk")
    assert put(operator, LEVELS[2], offload="disk", ttl_seconds=60).status_code == 200
    found = said(operator.get(f"{LEVELS[2]}/effective"))["enforcement"]
    assert found["offload"] == {"grade": "refused", "enforcing": 0, "agents": 1, "why": "agent-1: no disk tier"}
    assert found["ttl_seconds"] == {"grade": "enforced", "enforcing": 1, "agents": 1, "why": None}


def test_inherited_value_passes_and_is_shown(operator: Api, acme: Organisation) -> None:
    engine("agent-1")
    publish(FLEET, offload="disk")
    assert put(operator, LEVELS[2], ttl_seconds=60).status_code == 200
    assert said(operator.get(f"{LEVELS[2]}/effective"))["enforcement"]["offload"]["grade"] == "refused"


def test_rollback_counts_as_setting_it(operator: Api, acme: Organisation) -> None:
    engine("agent-1")
    publish(chat(acme), offload="disk")
    publish(chat(acme), offload="none")
    answer = operator.post(f"{LEVELS[2]}/rollback", {"revision": 1}, If_Match='"2"')
    assert [*refused(answer)] == ["policy.offload"]
    assert operator.post(f"{LEVELS[2]}/rollback", {"revision": 0}, If_Match='"2"').status_code == 200


def test_configuration_is_refused_where_it_says_so(operator: Api, acme: Organisation) -> None:
    engine("agent-1")
    document = {
        "version": 1,
        "organisations": {"acme": {"namespaces": {"default": {}, "chat": {"policy": {"offload": "disk"}}}}},
    }
    told = refused(operator.post("/config/apply", {"document": document}))
    assert [*told] == ["organisations.acme.namespaces.chat.policy.offload"]
    assert level_of(chat(acme)).revision == 0


def test_members_read_the_count_and_no_names(acme: Organisation) -> None:
    bounds = Bounds(offload=Offloads(allowed=["none", "host", "disk"]))
    bounds_put(actor=SYSTEM, organisation=acme, bounds=bounds, expected=None)
    engine("agent-1")
    engine("agent-2")
    api = Api(make_key(acme), Client())
    (told,) = refused(put(api, LEVELS[2], offload="disk")).values()
    assert (
        told
        == "'disk' is not enforced: none of the 2 agents that serve this enforces it (no disk tier). Use one of: none"
    )
    publish(chat(acme), offload="disk")
    shown = said(api.get(f"{LEVELS[2]}/effective"))["enforcement"]["offload"]
    assert (shown["grade"], shown["agents"], shown["why"]) == ("refused", 2, "no disk tier")


def test_other_groups_agents_do_not_count(operator: Api, acme: Organisation) -> None:
    group = make_group()
    make_namespace(acme, "gpu", group=group)
    engine("agent-1")
    engine("agent-2", WITH_POOL, group=group)
    assert refused(put(operator, LEVELS[2], offload="host"))
    assert put(operator, "/orgs/acme/namespaces/gpu/policy", offload="host").status_code == 200
    assert put(operator, LEVELS[1], offload="host").status_code == 200  # somewhere below it is enforced


def test_drained_and_revoked_agents_do_not_count(operator: Api, acme: Organisation) -> None:
    engine("agent-1")
    engine("agent-2", WITH_POOL)
    engine("agent-3", WITH_POOL)
    Agent.objects.filter(pk="agent-2").update(is_draining=True)
    Agent.objects.filter(pk="agent-3").update(revoked_at=timezone.now())
    assert refused(put(operator, LEVELS[2], offload="host"))
    Agent.objects.filter(pk="agent-1").update(is_draining=True)
    assert put(operator, LEVELS[2], offload="host").status_code == 200


def test_older_agents_do_not_stop_a_publish(operator: Api, acme: Organisation) -> None:
    engine("agent-1")
    older = engine("agent-2")
    del older.about["enforcement"]  # as an older control plane stored it
    older.save(update_fields=["about"])
    preview = said(operator.post(f"{LEVELS[2]}/preview", {"policy": {"offload": "disk", "weight": 2}}))
    assert [one["field"] for one in preview["warnings"] if one["code"] == "not_enforced"] == ["offload"]
    assert put(operator, LEVELS[2], offload="disk", weight=2).status_code == 200
    found = said(operator.get(f"{LEVELS[2]}/effective"))["enforcement"]
    assert (found["offload"]["grade"], found["weight"]["grade"]) == ("untested", "untested")
    shown = said(operator.get("/fleet/agents/agent-2"))
    assert (shown["enforcement"]["weight"]["grade"], shown["not_enforced"]) == ("untested", [])


def test_empty_fleet_can_be_configured(operator: Api, acme: Organisation) -> None:
    preview = said(operator.post(f"{LEVELS[2]}/preview", {"policy": {"offload": "disk"}}))
    assert [one["code"] for one in preview["warnings"]] == ["not_enforced"]
    assert preview["problems"] == []
    assert put(operator, LEVELS[2], offload="disk").status_code == 200


# What is shown


def test_agent_reports_each_field(operator: Api, acme: Organisation) -> None:
    engine("agent-1")
    shown = said(operator.get("/fleet/agents/agent-1"))
    assert shown["enforcement"]["ttl_seconds"]["grade"] == "enforced"
    assert {name: one["grade"] for name, one in shown["enforcement"]["offload"]["values"].items()} == {
        "none": "enforced",
        "host": "refused",
        "disk": "refused",
    }
    assert shown["not_enforced"] == []
    publish(chat(acme), offload="disk")
    shown = said(operator.get("/fleet/agents/agent-1"))
    assert shown["not_enforced"] == [{"field": "offload", "value": "disk", "why": "no disk tier"}]


def test_no_page_calls_an_unenforced_field_in_sync(operator_client: Client, acme: Organisation) -> None:
    about = {**_about(), "enforcement": WITHOUT_POOL}
    make_seen_agent("agent-1", about=about)
    make_seen_agent("agent-2", about={**about, "enforcement": WITH_POOL})
    publish(chat(acme), offload="disk")
    fact = "1 field is not enforced: Offload tier"
    page = _page(operator_client, "/orgs/acme/namespaces/chat/policy")
    assert f"2 of 2 agents in sync; {fact} (agent-1, agent-2: no disk tier)" in page
    assert "Not enforced: agent-1, agent-2: no disk tier." in page
    assert f"All 2 agents are in sync; {fact}" in _page(operator_client, "/fleet")
    assert f"2 of 2 agents are in sync; {fact}" in _page(operator_client, "/")
    agent = _page(operator_client, "/fleet/agents/agent-1")
    assert "agent-1 is ready and holds what is published, but does not enforce: Offload tier" in agent
    assert "in sync, not enforced: Offload tier" in agent
    for page in (agent, _page(operator_client, "/fleet"), _page(operator_client, "/")):
        assert ">in sync<" not in page


def test_pages_tell_who_alone_does_not_enforce_it(operator_client: Client, acme: Organisation) -> None:
    make_seen_agent("agent-1", about={**_about(), "enforcement": WITHOUT_POOL})
    make_seen_agent("agent-2", about={**_about(), "enforcement": WITH_POOL})
    publish(chat(acme), offload="host")
    page = _page(operator_client, "/orgs/acme/namespaces/chat/policy")
    assert "2 of 2 agents in sync; 1 field is not enforced on every agent: Offload tier (agent-1: no host pool" in page
    assert "Enforced by 1 of 2 agents: agent-1: no host pool" in page
    assert ">in sync<" in _page(operator_client, "/fleet/agents/agent-2")
    assert "in sync, not enforced: Offload tier" in _page(operator_client, "/fleet/agents/agent-1")


def test_editor_shows_the_refusal_beside_the_field(operator_client: Client, acme: Organisation) -> None:
    make_seen_agent("agent-1", about={**_about(), "enforcement": WITHOUT_POOL})
    form = {"revision": "0", "models": "shown", "offload": "disk", "publish": "yes"}
    answer = operator_client.post("/orgs/acme/namespaces/chat/policy", form)
    assert answer.status_code == 422
    assert "is not enforced: the only agent that serves this does not enforce it (agent-1: no disk tier)" in _text(
        answer
    )
    assert level_of(chat(acme)).revision == 0


def test_members_pages_name_no_agent(customer_client: Client, acme: Organisation) -> None:
    user = User.objects.get(email="someone@acme.example")
    Member.objects.create(organisation=acme, email=user.email, role="editor", user=user, joined_at=timezone.now())
    make_seen_agent("agent-1", about={**_about(), "enforcement": WITHOUT_POOL})
    publish(chat(acme), offload="disk")
    page = _page(customer_client, "/orgs/acme/namespaces/chat/policy")
    assert "1 of 1 agent in sync; 1 field is not enforced: Offload tier (no disk tier)" in page
    assert "agent-1" not in page.partition("Offload tier")[2].partition("<form")[0]


def _about() -> dict[str, Any]:
    model = {"name": "m", "revision": "r", "kv_dtypes": ["fp8"], "context_tokens": 8192}
    pool = {"capacity_bytes": 200, "block_tokens": 16, "block_bytes": {}}
    return {"backend": "paged", "version": "0.1.0", "models": [model], "kv_dtypes": ["fp8"], "pool": pool}


def _page(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, path
    return _text(answer)


def _text(answer: Any) -> str:
    page: str = answer.content.decode()
    return page.replace("&#x27;", "'")
