"""Agents and join tokens over REST, as operators have them."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.common.version import version
from controlplane.fleet.enforcement import enforcement_view
from controlplane.fleet.enrolment import agent_for_token, enrol
from controlplane.fleet.errors import Revoked, UnknownToken
from controlplane.fleet.models import Agent, JoinToken, OperationStep
from tenants.models import AuditRecord
from tests.database.factories import about_agent, enrol_agent, make_agent, make_group
from tests.web.api import Api, make_organisation, said

pytestmark = pytest.mark.usefixtures("still_clock")
AGENTS = "/fleet/agents"
HASH = "a" * 64


def beat(agent: str, *, state: str = "ready", seconds_ago: float = 0.0, **columns: Any) -> None:
    engine = {"boot": "e", "state": state, "why": None, "hash": HASH}
    heartbeat = {
        "boot": "s",
        "sequence": 1,
        "applied": {"hash": HASH, "generation": 3},
        "engine": engine,
        "load": {"running": 2, "waiting": 1},
        "pool": {"capacity_bytes": 1 << 28, "used_bytes": 4096},
        "counters": {},
        "spooled": 5,
    }
    held = {"desired_hash": HASH, "desired_generation": 3, "applied_hash": HASH, "applied_generation": 3}
    seen = timezone.now() - timedelta(seconds=seconds_ago)
    Agent.objects.filter(pk=agent).update(
        **{**held, "heartbeat": heartbeat, "heartbeat_sequence": 812, "last_seen_at": seen, **columns}
    )


def listed(operator: Api, query: str = "") -> list[str]:
    return [one["id"] for one in said(operator.get(f"{AGENTS}{query}"))["items"]]


def receipt_of(operator: Api, response: Any) -> Any:
    return said(operator.get(response["Location"].removeprefix("/api/v1")))


def test_an_agent_is_shown_with_what_it_is_holds_and_lacks(operator: Api) -> None:
    make_agent("agent-1", labels={"tier": "canary"})
    beat("agent-1")
    shown = said(operator.get(f"{AGENTS}/agent-1"))
    assert shown.pop("last_seen_seconds") == 0
    for name in ("enrolled_at", "last_seen_at"):
        assert shown.pop(name) is not None
    formats = ["bf16", "fp8"]
    assert shown == {
        "id": "agent-1",
        "kind": "engine",
        "backend": "simulated",
        "backend_version": None,
        "state": "ready",
        "in_sync": True,
        "desired_hash": HASH,
        "applied_hash": HASH,
        "models": [{"name": "m", "revision": "r1", "kv_dtypes": formats, "context_tokens": 2048}],
        "kv_dtypes": formats,
        "computed_as": {},
        "pool": {
            "capacity_bytes": 1 << 28,
            "used_bytes": 4096,
            "block_tokens": 16,
            "block_bytes": {"bf16": 4096, "fp8": 2048},
        },
        "why": None,
        "conditions": {},
        "group": "default",
        "labels": {"tier": "canary"},
        "version": version(),
        "address": "http://127.0.0.1:8101",
        "accelerator": None,
        "desired_generation": 3,
        "desired_at": None,
        "applied_generation": 3,
        "applied_at": None,
        "clock_skew_seconds": 0.0,
        "draining": False,
        "heartbeat": 812,
        "running": 2,
        "waiting": 1,
        "spooled": 5,
        "enrolled_by": "first machines",
        "revoked_at": None,
        "isolation": {
            "state": "unknown",
            "rounds": {"isolated": 0, "leaked": 0, "unkept": 0, "failed": 0},
            "told_at": None,
            "last_failure": None,
            "last_failure_at": None,
            "timing": None,
        },
        "enforcement": enforcement_view(about_agent()),
        "not_enforced": [],
    }


def test_one_that_was_never_heard_is_shown_too(operator: Api) -> None:
    make_agent("agent-1")
    shown = said(operator.get(f"{AGENTS}/agent-1"))
    assert (shown["state"], shown["in_sync"], shown["last_seen_seconds"]) == ("enrolled", False, None)
    assert shown["why"] == "nothing was heard of it since it enrolled"
    assert (shown["desired_hash"], shown["running"], shown["pool"]["used_bytes"]) == (None, None, None)


def test_what_is_wrong_is_shown_and_the_gravest_first(operator: Api) -> None:
    make_agent("agent-1")
    since = "2026-11-22T12:00:00Z"
    wrong = {"clock_skew": {"since": since, "why": "off"}, "engine_down": {"since": since, "why": "it is down"}}
    beat("agent-1", state="down", conditions=wrong)
    shown = said(operator.get(f"{AGENTS}/agent-1"))
    assert (shown["state"], shown["why"], shown["conditions"]) == ("down", "it is down", wrong)


def test_the_list_is_filtered_by_group_kind_and_state(operator: Api) -> None:
    gpu = make_group("gpu")
    for name, group in (("agent-1", None), ("agent-2", gpu), ("agent-3", None)):
        make_agent(name, group=group)
    make_agent("gateway-1", kind="gateway", backend="gateway")
    beat("agent-1")
    beat("agent-2", seconds_ago=60)
    operator.delete(f"{AGENTS}/agent-3")
    assert listed(operator) == ["agent-1", "agent-2", "gateway-1"]
    assert listed(operator, "?group=gpu") == ["agent-2"]
    assert listed(operator, "?group=nowhere") == []
    assert listed(operator, "?kind=gateway") == ["gateway-1"]
    assert listed(operator, "?state=stale") == ["agent-2"]
    assert listed(operator, "?state=ready&kind=engine") == ["agent-1"]
    assert listed(operator, "?state=revoked") == ["agent-3"]
    assert [one["state"] for one in said(operator.get(AGENTS))["items"]] == ["ready", "stale", "enrolled"]


def test_the_list_comes_in_pages(operator: Api) -> None:
    for number in range(5):
        make_agent(f"agent-{number}")
    first = said(operator.get(f"{AGENTS}?limit=3"))
    rest = said(operator.get(f"{AGENTS}?limit=3&cursor={first['next_cursor']}"))
    assert [one["id"] for one in first["items"] + rest["items"]] == [f"agent-{number}" for number in range(5)]
    assert rest["next_cursor"] is None


@pytest.mark.parametrize("query", ["?state=happy", "?kind=toaster", "?limit=0", "?colour=blue"])
def test_a_filter_that_is_none_is_refused(operator: Api, query: str) -> None:
    assert operator.get(f"{AGENTS}{query}").status_code in (400, 422)


@pytest.mark.parametrize("name", ["nobody", "x" * 300, "a%00b"])
def test_an_agent_that_is_not_there_is_not_found(operator: Api, name: str) -> None:
    assert operator.get(f"{AGENTS}/{name}").status_code == 404
    assert operator.post(f"{AGENTS}/{name}/drain").status_code == 404
    assert operator.delete(f"{AGENTS}/{name}").status_code == 404


def test_organisations_see_nothing_of_the_fleet(acme: Api) -> None:
    make_agent("agent-1")
    for method, path in (("GET", AGENTS), ("GET", f"{AGENTS}/agent-1"), ("GET", "/fleet/join-tokens")):
        assert acme.ask(method, path).status_code == 403


def test_labels_and_group_are_changed_one_without_the_other(operator: Api) -> None:
    make_group("gpu")
    make_agent("agent-1", labels={"tier": "stable"})
    labelled = said(operator.patch(f"{AGENTS}/agent-1", {"labels": {"tier": "canary", "rack": "b.7"}}))
    assert (labelled["labels"], labelled["group"]) == ({"tier": "canary", "rack": "b.7"}, "default")
    moved = said(operator.patch(f"{AGENTS}/agent-1", {"group": "gpu"}))
    assert (moved["labels"], moved["group"]) == ({"tier": "canary", "rack": "b.7"}, "gpu")
    assert said(operator.patch(f"{AGENTS}/agent-1", {"labels": {}, "group": "default"}))["labels"] == {}
    before = AuditRecord.objects.count()
    operator.patch(f"{AGENTS}/agent-1", {"group": "default"})
    assert AuditRecord.objects.count() == before  # nothing was changed
    assert [one.verb for one in AuditRecord.objects.order_by("seq")][-3:] == ["agent.update"] * 3


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"labels": {"Tier": "x"}}, "labels.Tier"),
        ({"labels": {"tier": "no spaces"}}, "labels.tier"),
        ({"labels": {"tier": 1}}, "labels.tier"),
        ({"labels": {f"l{number}": "" for number in range(33)}}, "labels"),
        ({"group": "nowhere"}, "group"),
        ({"group": "No Slug"}, "group"),
        ({"state": "ready"}, "state"),
    ],
)
def test_what_cannot_be_set_is_refused_by_its_name(operator: Api, body: Any, field: str) -> None:
    make_agent("agent-1")
    response = operator.patch(f"{AGENTS}/agent-1", body)
    assert response.status_code == 422
    assert [one["field"] for one in said(response)["errors"]] == [field]


@pytest.mark.parametrize(
    ("path", "deed", "drains"),
    [
        ("drain", "drain", True),
        ("resume", "resume", False),
        ("integrity", "integrity", False),
        ("rotate-token", "rotate_token", False),
    ],
)
def test_an_order_is_an_operation_that_awaits_the_agent(operator: Api, path: str, deed: str, drains: bool) -> None:
    make_agent("agent-1")
    if path == "resume":
        operator.post(f"{AGENTS}/agent-1/drain")
    response = operator.post(f"{AGENTS}/agent-1/{path}")
    assert response.status_code == 202
    operation = receipt_of(operator, response)
    assert operation["id"] == said(response)["operation"]
    assert (operation["state"], operation["receipts"]) == ("running", [])
    step = OperationStep.objects.get(operation=operation["id"])
    assert (step.agent_id, step.deed, step.state) == ("agent-1", deed, "waiting")
    assert step.deadline is not None
    assert Agent.objects.get().is_draining is drains
    assert AuditRecord.objects.order_by("-seq")[0].verb == f"agent.{path}"


def test_an_order_sent_twice_under_one_key_is_one_order(operator: Api) -> None:
    make_agent("agent-1")
    first, second = (operator.post(f"{AGENTS}/agent-1/integrity", Idempotency_Key="key-1") for _ in range(2))
    assert said(first) == said(second)
    assert OperationStep.objects.count() == 1


def test_a_revoked_agent_is_out_and_stays_to_be_looked_at(operator: Api) -> None:
    gpu = make_group("gpu")
    given = enrol_agent("agent-1", group=gpu)
    waiting = operator.post(f"{AGENTS}/agent-1/drain")
    assert operator.delete(f"{AGENTS}/agent-1").status_code == 204
    with pytest.raises(Revoked):
        agent_for_token(given.token or "", timezone.now())
    shown = said(operator.get(f"{AGENTS}/agent-1"))
    assert (shown["state"], shown["why"]) == ("revoked", "an operator took it out of the fleet")
    receipts = receipt_of(operator, waiting)["receipts"]
    assert [one["agent"] for one in receipts] == ["agent-1"]
    assert receipt_of(operator, waiting)["state"] != "running"
    for method, path in (("PATCH", ""), ("POST", "/drain"), ("POST", "/rotate-token")):
        response = operator.ask(method, f"{AGENTS}/agent-1{path}", {})
        assert response.status_code == 409
        assert "agent-1 is revoked" in said(response)["detail"]
    assert operator.delete(f"{AGENTS}/agent-1").status_code == 204
    assert AuditRecord.objects.filter(verb="agent.revoke").count() == 1
    assert operator.delete("/agent-groups/gpu").status_code == 204


def test_a_group_with_agents_stays(operator: Api) -> None:
    make_agent("agent-1", group=make_group("gpu"))
    response = operator.delete("/agent-groups/gpu")
    assert response.status_code == 409
    assert "agents belong to it" in said(response)["detail"]


# Join tokens


def test_a_join_token_is_shown_once_and_lets_an_agent_in(operator: Api) -> None:
    made = operator.post("/fleet/join-tokens", {"name": "rack 7", "uses": 2, "expires_in_seconds": 600})
    assert made.status_code == 201
    created = said(made)
    secret = created.pop("secret")
    assert secret.startswith(created["prefix"])
    assert (created["state"], created["group"], created["kind"], created["agent"]) == ("open", "default", None, None)
    assert said(operator.get(f"/fleet/join-tokens/{created['id']}")) == created
    assert said(operator.get("/fleet/join-tokens"))["items"] == [created]
    enrol(token=secret, kind="engine", name=None, about=about_agent(), now=timezone.now(), address="")
    again = said(operator.get(f"/fleet/join-tokens/{created['id']}"))
    assert (again["uses"], again["uses_left"]) == (1, 1)


def test_a_revoked_join_token_is_gone_and_lets_nobody_in(operator: Api) -> None:
    created = said(operator.post("/fleet/join-tokens", {"name": "rack 7"}))
    assert operator.delete(f"/fleet/join-tokens/{created['id']}").status_code == 204
    assert operator.get(f"/fleet/join-tokens/{created['id']}").status_code == 404
    assert operator.delete(f"/fleet/join-tokens/{created['id']}").status_code == 404
    assert said(operator.get("/fleet/join-tokens"))["items"] == []
    with pytest.raises(UnknownToken):
        enrol(token=created["secret"], kind="engine", name=None, about={}, now=timezone.now(), address="")


def test_spent_and_expired_join_tokens_say_so(operator: Api) -> None:
    enrol_agent("agent-1")
    created = said(operator.post("/fleet/join-tokens", {"name": "rack 7", "uses": None}))
    assert {one["state"] for one in said(operator.get("/fleet/join-tokens"))["items"]} == {"spent", "open"}
    JoinToken.objects.filter(pk=created["id"]).update(expires_at=timezone.now())
    assert said(operator.get(f"/fleet/join-tokens/{created['id']}"))["state"] == "expired"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": "x", "kind": "toaster"}, "kind"),
        ({"name": "x", "group": "nowhere"}, "group"),
        ({"name": "x", "agent": "No Slug"}, "agent"),
        ({"name": "x", "uses": 0}, "uses"),
        ({"name": "x", "agent": "agent-1", "uses": 2}, "uses"),
        ({"name": "x", "expires_in_seconds": 59}, "expires_in_seconds"),
        ({"name": "x", "expires_in_seconds": "an hour"}, "expires_in_seconds"),
        ({"name": "x", "expires_at": "2036-01-01T00:00:00Z"}, "expires_at"),
        ({"name": "x\u202e"}, "name"),
    ],
)
def test_a_join_token_that_makes_no_sense_is_refused(operator: Api, body: Any, field: str) -> None:
    response = operator.post("/fleet/join-tokens", body)
    assert response.status_code == 422
    assert [one["field"] for one in said(response)["errors"]] == [field]


def test_an_agents_token_is_good_for_nothing_in_rest(operator: Api) -> None:
    make_organisation("acme")
    given = enrol_agent("agent-1")
    assert Api(given.token, Client()).get("/whoami").status_code == 401
