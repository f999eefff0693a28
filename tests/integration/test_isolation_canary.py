"""The isolation canary at the control plane: who holds its tenants, what is stored of its findings, who sees it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.alerts.evaluating import alerts_evaluate, built_in_rules_ensure
from controlplane.alerts.models import Alert
from controlplane.analytics.ingest import usage_store
from controlplane.analytics.models import RefusedRow, Series
from controlplane.fleet.canaries import isolations_read
from controlplane.fleet.models import CanaryMinute
from controlplane.fleet.recording import batches_store
from controlplane.rollouts.planner import plan_carry_out
from controlplane.rollouts.serving import snapshot_for
from engine_agent.contracts.protocol import CANARIES, Snapshot, snapshot_decode
from engine_agent.contracts.usage import Row, row_document
from engine_agent.contracts.wire import Batch, Report
from tenants.models import Organisation
from tests.database.factories import make_agent, make_group
from tests.web.api import Api, make_organisation, said

pytestmark = pytest.mark.django_db
WHY = "192 of 200 tokens of another organisation's prompt were cached"


def found(timing: dict[str, Any] | None = None, *, failure: str = "", **rounds: int) -> dict[str, Any]:
    failed = {"at": timezone.now().timestamp(), "why": failure} if failure else None
    return {"rounds": rounds, "failure": failed, "timing": timing}


def told(gateway: str = "gateway-1", *, first: int = 1, at: float | None = None, **agents: Any) -> None:
    named = {name.replace("_", "-"): one for name, one in agents.items()}
    report = Report("canary", {"at": timezone.now().timestamp() if at is None else at, "agents": named})
    batch = Batch(0.0, "spool-1", first, [report], None)
    assert batches_store({gateway: batch}, now=timezone.now(), usage=usage_store)


def isolation(agent: str = "agent-1") -> Any:
    probed = isolations_read([agent], now=timezone.now())
    return probed.get(agent)


@pytest.fixture
def acme() -> Organisation:
    organisation = make_organisation("acme")
    make_agent("agent-1")
    return organisation


@pytest.fixture
def probed(acme: Organisation) -> Organisation:
    make_agent("gateway-1", kind="gateway")
    return acme


# Who holds its tenants


def held(name: str) -> Snapshot:
    plan_carry_out(now=timezone.now())
    return snapshot_decode(snapshot_for(name).body)


def canary_keys(snapshot: Snapshot) -> list[str]:
    return [snapshot.entries[f"ns/{name}"]["key"] for name in CANARIES]


def test_engines_and_gateways_hold_the_same_two_tenants_with_two_keys(probed: Organisation) -> None:
    engine, gateway = held("agent-1"), held("gateway-1")
    assert canary_keys(engine) == canary_keys(gateway)
    assert len(set(canary_keys(engine))) == 2
    assert not [key for key in gateway.entries if key.startswith("key/canary")], "no client can be one of them"


def test_their_prompts_are_kept_as_customers_are_for_a_minute_in_a_small_share(probed: Organisation) -> None:
    snapshot = held("agent-1")
    policy = snapshot.policies[snapshot.entries["ns/canary-a"]["policy"]]
    usual = next(one for name, one in snapshot.policies.items() if name != snapshot.entries["ns/canary-a"]["policy"])
    assert policy["kv_dtype"] == usual["kv_dtype"]
    assert (policy["ttl_seconds"], policy["limit_share"], policy["weight"]) == (60, 0.05, 0.001)


def test_where_there_is_no_gateway_nobody_holds_them(acme: Organisation) -> None:
    assert not [key for key in held("agent-1").entries if "canary" in key]


def test_nobody_sees_them_among_organisations(probed: Organisation, operator: Api) -> None:
    held("agent-1")
    assert [one["slug"] for one in said(operator.get("/orgs"))["items"]] == ["acme"]
    assert "canary" not in operator.get("/fleet/stats").content.decode()


# What is stored


def test_rounds_add_up_and_are_counted_once(probed: Organisation) -> None:
    told(agent_1=found(isolated=3))
    told(agent_1=found(isolated=3))
    told(first=2, agent_1=found(isolated=2, unkept=1))
    assert isolation().rounds == {"isolated": 5, "leaked": 0, "unkept": 1, "failed": 0}
    assert isolation().state == "isolated"


def test_a_gateway_is_believed_of_engines_of_its_group_alone(probed: Organisation) -> None:
    make_agent("elsewhere", group=make_group("elsewhere"))
    told(elsewhere=found(leaked=1), gateway_1=found(leaked=1), nobody=found(leaked=1))
    assert not CanaryMinute.objects.exists()


def test_an_engine_is_not_believed_of_any(probed: Organisation) -> None:
    told("agent-1", agent_1=found(isolated=1))
    assert isolation() is None


@pytest.mark.parametrize(
    "nonsense",
    [
        [],
        {"rounds": {}},
        {"rounds": {"isolated": -1}, "failure": None, "timing": None},
        {"rounds": {"won": 1}, "failure": None, "timing": None},
        {"rounds": {}, "failure": {"at": "now", "why": ""}, "timing": None},
        {"rounds": {}, "failure": None, "timing": {"pairs": 3, "auc": 0.5, "low": 0.6, "high": 0.7}},
        {"rounds": {}, "failure": None, "timing": {"pairs": 0, "auc": 0.5, "low": 0.4, "high": 0.7}},
    ],
)
def test_what_is_malformed_is_left_out_and_the_rest_is_kept(probed: Organisation, nonsense: Any) -> None:
    make_agent("agent-2")
    told(agent_1=nonsense, agent_2=found(isolated=1))
    assert isolation() is None
    assert isolation("agent-2").rounds["isolated"] == 1


def test_what_waited_in_a_spool_is_of_the_minute_in_which_it_was_found(probed: Organisation) -> None:
    at = timezone.now() - timedelta(hours=2)
    told(at=at.timestamp(), agent_1=found(leaked=1))
    assert CanaryMinute.objects.get().minute == at.astimezone(UTC).replace(second=0, microsecond=0)
    assert isolation() is None, "that was no breach of the last hour"


def probe_row(now: datetime, kind: Any = "probe") -> Row:
    minute = int(now.timestamp()) // 60 * 60
    counts = {"requests": 2, "prompt_tokens": 400, "cached_tokens": 192}
    return Row(minute, "canary-a", "canary-a", "m", "bf16", kind, counts)


def usage(row: Row) -> Report:
    totals = {"canary-a": [2, 400, 192]}
    told_row = {"rows": [row_document(row)], "totals": totals, "lost": 0}
    return Report("usage", {"boot": "b1", "after": 0, "born": 7, "upto": 2, **told_row})


def test_probes_are_stored_as_such_and_of_no_organisation(probed: Organisation) -> None:
    now = timezone.now()
    batch = Batch(0.0, "spool-1", 1, [usage(probe_row(now))], None)
    batches_store({"agent-1": batch}, now=now, usage=usage_store)
    assert not RefusedRow.objects.exists()
    series = Series.objects.get()
    assert (series.kind, series.namespace_id < 0, series.organisation_id < 0) == ("probe", True, True)


def test_of_its_tenants_nobody_is_a_customer(probed: Organisation) -> None:
    now = timezone.now()
    batch = Batch(0.0, "spool-1", 1, [usage(probe_row(now, "customer"))], None)
    batches_store({"agent-1": batch}, now=now, usage=usage_store)
    assert RefusedRow.objects.get().field == "kind"
    assert not Series.objects.exists()


# Who is told


def firing() -> list[str]:
    built_in_rules_ensure(now=timezone.now())
    alerts_evaluate(now=timezone.now())
    return sorted(Alert.objects.filter(state="firing").values_list("built_in", flat=True))


def test_a_leak_is_an_alert_and_named_on_the_agents_page(probed: Organisation, operator: Api) -> None:
    told(agent_1=found(isolated=3))
    assert "isolation_failed" not in firing()
    told(first=2, agent_1=found(leaked=1, failure=WHY))
    assert "isolation_failed" in firing()
    shown = said(operator.get("/fleet/agents/agent-1"))["isolation"]
    assert (shown["state"], shown["rounds"]["leaked"], shown["last_failure"]) == ("broken", 1, WHY)


def test_times_that_tell_are_an_alert(probed: Organisation) -> None:
    told(agent_1=found({"pairs": 300, "auc": 0.7, "low": 0.5, "high": 0.8}, isolated=1))
    assert "isolation_timing" not in firing(), "a point proves nothing"
    told(first=2, agent_1=found({"pairs": 300, "auc": 0.8, "low": 0.7, "high": 0.9}, isolated=1))
    assert "isolation_timing" in firing()
    assert isolation().state == "broken"


def test_an_agent_says_how_isolated_it_is_and_a_gateway_does_not(probed: Organisation, operator: Api) -> None:
    assert said(operator.get("/fleet/agents/agent-1"))["isolation"]["state"] == "unknown"
    assert said(operator.get("/fleet/agents/gateway-1"))["isolation"] is None
    told(agent_1=found(unkept=1))
    assert said(operator.get("/fleet/agents/agent-1"))["isolation"]["state"] == "unproven"
