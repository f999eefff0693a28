"""Why prompts miss, from a gateway's report to what people are told, and the same of prompts in a body."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from controlplane.analytics.diagnostics import diagnostics
from controlplane.analytics.ingest import usage_store
from controlplane.analytics.models import Divergence, RefusedRow
from engine_agent.contracts.wire import Report
from engine_agent.divergence.analysing import Sample
from engine_agent.divergence.child import told_of
from engine_agent.divergence.marks import marks_of
from tenants.models import Namespace
from tests.database.factories import make_agent, make_namespace
from tests.web.api import Api, make_key, make_organisation, said

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC)
KEY = bytes(32)


def found(prompts: int = 10, first: int = 1) -> dict[str, Any]:
    """Six tokens at 37 that are others in each prompt."""
    stable = b"".join(one.to_bytes(4, "little") for one in range(440))
    samples = [
        Sample(marks_of(stable[:148] + bytes([first + n, 1, 1, 1]) * 6 + stable[148:], KEY)) for n in range(prompts)
    ]
    told = dict(told_of(samples))
    findings = [one | {"spans": []} for one in told["findings"]]
    return told | {"findings": findings, "partings": list(told["partings"])}


def told(agent: str, namespace: Namespace, what: dict[str, Any], at: datetime = NOW) -> None:
    body = {"boot": "b1", "at": at.timestamp(), "namespaces": {str(namespace.pk): what}}
    usage_store({agent: [(1, Report("diagnostics", body))]}, NOW)


@pytest.fixture
def chat() -> Namespace:
    for name in ("gateway-1", "gateway-2"):
        make_agent(name, kind="gateway")
    return make_namespace(make_organisation("acme"), "chat")


def test_what_a_gateway_found_is_told_with_what_to_do(chat: Namespace) -> None:
    told("gateway-1", chat, found())
    answer = said(
        Api(make_key(chat.organisation, "stats:read"), Client()).get("/orgs/acme/namespaces/chat/diagnostics")
    )
    (one,) = answer["findings"]
    assert (answer["sampled_requests"], answer["gateways"]) == (10, 1)
    assert (one["token"], one["length_tokens"], one["share"]) == (37, 6, 0.9)
    assert one["hit_ratio_then"] == answer["hit_ratio_then"] > answer["hit_ratio_now"] == one["hit_ratio_now"]
    assert "90 % of the prompts differ first at token 37" in one["advice"]
    assert "Move what varies to the end" in one["advice"]


def test_several_gateways_samples_are_one(chat: Namespace) -> None:
    told("gateway-1", chat, found(10))
    told("gateway-2", chat, found(30, first=50))
    answer = diagnostics(chat, now=NOW)
    (one,) = answer["findings"]
    assert (answer["sampled_requests"], answer["gateways"]) == (40, 2)
    assert one["share"] == pytest.approx((9 + 29) / 40)
    assert (one["distinct"], one["seen"]) == (40, 40)


def test_the_newest_of_a_gateway_counts_and_an_old_one_does_not(chat: Namespace) -> None:
    told("gateway-1", chat, found(12))
    told("gateway-1", chat, found(10), at=NOW - timedelta(minutes=5))
    assert diagnostics(chat, now=NOW)["sampled_requests"] == 12
    later = diagnostics(chat, now=NOW + timedelta(hours=25))
    assert (later["as_of"], later["sampled_requests"], later["findings"], later["hit_ratio_now"]) == (None, 0, [], None)


@pytest.mark.parametrize(
    "wrong",
    [{"prompts": -1}, {"hit_ratio_now": 1.5}, {"findings": {}}, {"findings": [{}]}, {"partings": [{}]}, {"text": "x"}],
    ids=["count", "ratio", "findings", "finding", "parting", "more"],
)
def test_what_cannot_be_is_refused_and_shown_to_nobody(chat: Namespace, wrong: dict[str, Any]) -> None:
    told("gateway-1", chat, found() | wrong)
    assert not Divergence.objects.exists()
    assert RefusedRow.objects.count() == 1


def body(number: int) -> dict[str, Any]:
    rules = "\n".join(
        f"{letter * 3} first, then be kind and answer shortly and with care." for letter in "abcdefghijkl"
    )
    system = f"You help people.\nNow: 2026-11-2{number}T10:0{number}:00Z\n{rules}"
    return {"messages": [{"role": "system", "content": system}, {"role": "user", "content": f"Why {number}?"}]}


@pytest.fixture
def anyone() -> Api:
    return Api(make_key(make_organisation("acme"), "policy:read"), Client())


def test_prompts_in_a_body_are_looked_at_and_pointed_into(anyone: Api) -> None:
    answer = said(anyone.post("/lint/prompt", {"prompts": [body(n) for n in range(4)]}))
    (one,) = answer["findings"]
    assert (one["looks_like"], one["excerpts"][0]["where"]) == ("a timestamp", "messages[0] (system)")
    assert one["excerpts"][0]["text"] == "2026-11-20T10:00:00Z"
    assert answer["hit_ratio_then"] > answer["hit_ratio_now"]


def test_one_prompt_has_suspects(anyone: Api) -> None:
    answer = said(anyone.post("/lint/prompt", {"prompts": [body(1)]}))
    assert [one["looks_like"] for one in answer["suspects"]] == ["a timestamp"]


@pytest.mark.parametrize(
    "prompts", [[], [{"model": "m"}], ["x"] * 33, [1]], ids=["none", "no-prompt", "many", "number"]
)
def test_what_is_no_prompt_is_refused_by_its_place(anyone: Api, prompts: list[Any]) -> None:
    answer = anyone.post("/lint/prompt", {"prompts": prompts})
    assert answer.status_code == 422
    assert "prompts" in said(answer)["errors"][0]["field"]
