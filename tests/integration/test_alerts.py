"""Alerts on the real database: what is measured, when it fires, who sees it, and what people do about it."""

import os
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client import REGISTRY

from controlplane.alerts.definitions import BUILT_IN, METRICS
from controlplane.alerts.evaluating import LOCK, alerts_evaluate, built_in_rules_ensure
from controlplane.alerts.gauges import gauges_refresh
from controlplane.alerts.measuring import measured
from controlplane.alerts.models import Alert, AlertRule, AlertState, Delivery
from controlplane.alerts.services import (
    ALERTS_KEPT,
    MOST_RULES,
    alert_silence,
    housekeeping,
    rule_delete,
    rule_update,
    webhook_secret,
)
from controlplane.alerts.subjects import living
from controlplane.analytics.columns import CACHE_KIND
from controlplane.analytics.models import Piece, Reconciliation, RefusedRow, Rolled, Series
from controlplane.fleet.models import Agent, CanaryMinute, CanaryStanding, OperationStep
from tenants.actor import SYSTEM
from tenants.errors import InvalidFields
from tenants.levels import Place
from tenants.models import AuditRecord, Namespace, Organisation
from tenants.services.master_key import master_key_rotate
from tenants.services.namespaces import namespace_delete
from tenants.services.operations import operation_begin
from tests.database.factories import actor_of, make_agent, make_group, make_namespace
from tests.fleet.alerts import (
    INTERVAL,
    START,
    evaluated,
    make_alert,
    make_alert_rule,
    make_minute,
    make_pool,
    make_traffic,
)
from tests.web.api import Api, make_key, make_organisation, said

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)


@pytest.fixture
def chat() -> Namespace:
    return make_organisation("acme", "chat").namespaces.select_related("organisation").get(slug="chat")


def value(metric: str, key: str, now: datetime = START) -> float | None:
    return measured(living(), now=now)[metric][key][1].value


def alerts(**which: Any) -> list[Alert]:
    return list(Alert.objects.filter(**which).order_by("number"))


def history(alert: Alert) -> list[str]:
    return list(alert.events.order_by("pk").values_list("kind", flat=True))


def condition(agent: Agent, kind: str, since: datetime) -> None:
    agent.conditions = {kind: {"since": since.isoformat(), "why": "so"}}
    agent.last_seen_at = since
    agent.save()


# What is measured


def test_rules_that_are_always_there_are_there_before_anybody_has_evaluated() -> None:
    for _ in range(2):
        built_in_rules_ensure(now=START)
        assert list(AlertRule.objects.order_by("number").values_list("built_in", flat=True)) == [
            one.key for one in BUILT_IN
        ]


def test_pool_use_is_what_requests_hold_in_the_newest_minute() -> None:
    make_agent("agent-1")
    make_pool("agent-1", START - MINUTE, used=99, evictable=0)
    make_pool("agent-1", START, used=99, evictable=80)
    assert value("pool_use", "agent agent-1") == pytest.approx(0.19)
    assert value("pool_use", "agent agent-1", START + timedelta(minutes=5)) is None


def test_hit_ratio_is_of_customers_and_of_the_last_five_minutes(chat: Namespace) -> None:
    key = f"namespace {chat.pk}"
    assert value("hit_ratio", key) is None
    make_traffic(chat, START - 10 * MINUTE, cached=1.0, tokens=4_000)
    make_traffic(chat, START, cached=0.25, tokens=8_000)
    make_minute(chat, START, kind="probe", prompt_tokens=10**6)
    reading = measured(living(), now=START)["hit_ratio"][key][1]
    assert (reading.value, reading.prompt_tokens) == (0.25, 12_000)


def test_evictions_are_compared_with_the_hours_that_are_rolled(chat: Namespace) -> None:
    key, hour = f"namespace {chat.pk}", START.replace(minute=0, second=0)
    make_minute(chat, hour, kind=CACHE_KIND, evicted_blocks=900)
    assert value("evictions", key) is None, "there is no mean yet"
    rolled_evictions(chat, hour)
    assert value("evictions", key, hour) == pytest.approx(3.0)
    make_minute(chat, hour, kind=CACHE_KIND, evicted_blocks=99)
    assert value("evictions", key, hour) == 0.0, "too few to speak of"


def rolled_evictions(namespace: Namespace, hour: datetime) -> None:
    """One block a second, for two hours."""
    series = Series.objects.create(
        agent="", organisation_id=namespace.organisation_id, namespace_id=namespace.pk, model="m", kind=CACHE_KIND
    )
    for hours in (1, 2):
        start = hour - timedelta(hours=hours)
        Piece.objects.create(level=3600, series=series, start=start, evicted_blocks=3600)
        Rolled.objects.create(level=3600, start=start)


@pytest.mark.parametrize("second", [0, 5, 30, 55])
def test_steady_evictions_are_as_many_times_whatever_second_it_is(chat: Namespace, second: int) -> None:
    hour = START.replace(minute=0, second=0)
    rolled_evictions(chat, hour)
    now = hour + timedelta(minutes=10, seconds=second)
    for minute in range(10):
        make_minute(chat, hour + minute * MINUTE, kind=CACHE_KIND, evicted_blocks=156)
    make_minute(chat, now, kind=CACHE_KIND, evicted_blocks=second * 13 // 5)
    assert value("evictions", f"namespace {chat.pk}", now) == pytest.approx(2.6)


def test_preemptions_count_each_boot_by_itself() -> None:
    make_agent("agent-1")
    for minutes, boot, count in ((4, "b1", 7), (3, "b1", 9), (2, "b2", 0), (1, "b2", 4)):
        make_pool("agent-1", START - minutes * MINUTE, used=1, preemptions=count, boot=boot)
    assert value("preemptions", "agent agent-1") == 2 + 4


def test_preemptions_of_a_boots_first_minute_count_once_something_is_known_of_its_agent() -> None:
    for name in ("agent-1", "agent-2"):
        make_agent(name)
        make_pool(name, START - 2 * MINUTE, used=1, preemptions=4, boot="new")
    make_pool("agent-1", START - 9 * MINUTE, used=1, preemptions=50, boot="old")
    assert value("preemptions", "agent agent-1") == 4.0
    assert value("preemptions", "agent agent-2") == 0.0, "its engine may have run for long when it joined"


def test_preemptions_are_of_five_minutes_and_no_more() -> None:
    make_agent("agent-1")
    for minutes, count in ((7, 0), (6, 3), (5, 4), (1, 9)):
        make_pool("agent-1", START - minutes * MINUTE, used=1, preemptions=count)
    assert value("preemptions", "agent agent-1") == 9 - 3


def test_silence_and_drift_are_as_long_as_their_conditions() -> None:
    silent, drifting, well, new = (make_agent(f"agent-{number}") for number in range(1, 5))
    condition(silent, "stale", START - timedelta(seconds=40))
    condition(drifting, "rejected", START - timedelta(seconds=90))
    Agent.objects.filter(pk=well.pk).update(last_seen_at=START)
    found = measured(living(), now=START)
    for metric, wanted in (("silence", (40.0, 0.0, 0.0, None)), ("drift", (0.0, 90.0, 0.0, None))):
        agents = (silent, drifting, well, new)
        assert tuple(found[metric][f"agent {one.pk}"][1].value for one in agents) == wanted


def test_the_wait_for_a_disk_and_a_clock_that_is_off_are_measured() -> None:
    waiting, behind, well, new = (make_agent(f"agent-{number}") for number in range(1, 5))
    condition(waiting, "unwritable", START - timedelta(seconds=25))
    Agent.objects.exclude(pk=new.pk).update(last_seen_at=START)
    Agent.objects.filter(pk=behind.pk).update(clock_skew_seconds=-600.0)
    found = measured(living(), now=START)
    for metric, wanted in (("disk_wait", (25.0, 0.0, 0.0, None)), ("clock_skew", (0.0, 600.0, 0.0, None))):
        agents = (waiting, behind, well, new)
        assert tuple(found[metric][f"agent {one.pk}"][1].value for one in agents) == wanted


def probed(agent: Agent, at: datetime = START, **counts: int) -> None:
    CanaryMinute.objects.create(agent=agent.pk, minute=at.replace(second=0, microsecond=0), **counts)


def test_a_probe_that_found_something_cached_is_a_breach_and_without_probes_nothing_is_known() -> None:
    agent = make_agent("agent-1")
    assert value("isolation", "agent agent-1") is None
    probed(agent, START - 30 * MINUTE, unkept=3, failed=2)
    assert value("isolation", "agent agent-1") is None, "what proved nothing is no answer"
    probed(agent, START - 2 * MINUTE, isolated=9)
    assert value("isolation", "agent agent-1") == 0.0
    probed(agent, START, leaked=2)
    assert value("isolation", "agent agent-1") == 2.0
    assert value("isolation", "agent agent-1", START + 2 * 60 * MINUTE) is None, "that was two hours ago"


@pytest.mark.parametrize(
    ("low", "high", "advantage"), [(0.46, 0.55, 0.0), (0.58, 0.7, 0.08), (0.3, 0.44, 0.06), (0.9, 1.0, 0.4)]
)
def test_times_tell_by_the_bound_of_their_interval_and_never_by_a_point(
    low: float, high: float, advantage: float
) -> None:
    agent = make_agent("agent-1")
    assert value("isolation_timing", "agent agent-1") is None
    auc = (low + high) / 2
    CanaryStanding.objects.create(gateway="g", agent=agent.pk, at=START, pairs=300, auc=auc, low=low, high=high)
    assert value("isolation_timing", "agent agent-1") == pytest.approx(advantage)


def test_of_two_gateways_the_one_that_is_worse_off_counts() -> None:
    agent = make_agent("agent-1")
    for gateway, low in (("gateway-1", 0.45), ("gateway-2", 0.6)):
        CanaryStanding.objects.create(gateway=gateway, agent=agent.pk, at=START, pairs=99, auc=0.7, low=low, high=0.8)
    assert value("isolation_timing", "agent agent-1") == pytest.approx(0.1)


def checked(agent: Agent, result: Any, at: datetime) -> None:
    operation = operation_begin(actor=SYSTEM, kind="integrity", scope=agent.pk, now=at, group_ids=[])
    state = OperationStep.State.DONE
    OperationStep.objects.create(
        operation=operation, agent=agent, deed="integrity", state=state, done_at=at, receipt={"result": result}
    )


def test_integrity_is_what_the_newest_check_found() -> None:
    agent = make_agent("agent-1")
    assert value("integrity", "agent agent-1") is None
    checked(agent, {"problems": ["a block is counted twice"]}, START - MINUTE)
    assert value("integrity", "agent agent-1") == 1.0
    checked(agent, {"note": "the engine is down"}, START)
    assert value("integrity", "agent agent-1") == 1.0, "an engine that did not look has said nothing"
    checked(agent, {"problems": []}, START)
    assert value("integrity", "agent agent-1") == 0.0


def test_refused_rows_are_those_of_a_quarter_of_an_hour() -> None:
    make_agent("agent-1")
    for minutes in (1, 14, 16):
        RefusedRow.objects.create(agent="agent-1", report=1, row=0, field="minute", at=START - minutes * MINUTE)
    assert value("refused_rows", "agent agent-1") == 2.0


def difference(**more: Any) -> dict[str, Any]:
    of = {"agent": "agent-1", "namespace": "acme/chat", "namespace_id": 7, "is_explained": False, "tokens": 64}
    return {**of, "difference": {"requests": 1, "prompt_tokens": 64, "cached_tokens": 0}, **more}


def test_a_difference_is_an_alert_with_its_place_until_it_is_gone(chat: Namespace) -> None:
    make_agent("agent-1")
    found = Reconciliation.objects.create(
        pk=1,
        at=START,
        took_seconds=1,
        compared={},
        totals={},
        differences=[difference(), difference(tokens=3), difference(agent="agent-2", is_explained=True)],
    )
    now = evaluated(START, seconds=150)
    (alert,) = alerts(metric="reconciliation")
    assert (alert.place, alert.value, alert.organisation) == ("agent-1: acme/chat", 64.0, None)
    found.differences = []
    found.save()
    evaluated(now + INTERVAL)
    assert history(alert) == ["fired", "resolved"]


def test_where_nobody_compares_any_more_somebody_is_told() -> None:
    evaluated(START, seconds=150)
    assert not alerts(metric="reconciliation_age")  # there was no comparison yet
    Reconciliation.objects.create(pk=1, at=START, took_seconds=1, compared={}, totals={}, differences=[])
    now = evaluated(START + 14 * MINUTE, seconds=30)
    assert not alerts(metric="reconciliation_age")
    now = evaluated(now + MINUTE, seconds=150)
    (alert,) = alerts(metric="reconciliation_age")
    assert (alert.place, alert.organisation) == ("the fleet", None)
    Reconciliation.objects.update(at=now)
    evaluated(now + INTERVAL, seconds=150)
    assert history(alert) == ["fired", "resolved"]


# When it fires


def test_built_in_rules_are_there_from_the_first_evaluation_and_stay_as_they_were_changed() -> None:
    alerts_evaluate(now=START)
    assert list(AlertRule.objects.order_by("number").values_list("built_in", flat=True)) == [
        one.key for one in BUILT_IN
    ]
    rule_update(actor=SYSTEM, rule=AlertRule.objects.get(built_in="pool_full"), changes={"threshold": 0.7})
    alerts_evaluate(now=START + INTERVAL)
    assert (AlertRule.objects.count(), AlertRule.objects.get(built_in="pool_full").threshold) == (len(BUILT_IN), 0.7)


def test_a_full_pool_is_an_alert_after_five_minutes_and_over_a_minute_after_it_is_not() -> None:
    make_agent("agent-1")
    now = START
    for minute in range(6):
        make_pool("agent-1", START + minute * MINUTE, used=95)
        now = evaluated(START + minute * MINUTE, seconds=45)
    (alert,) = alerts()
    assert (alert.built_in, alert.place, alert.value, alert.since) == ("pool_full", "agent-1", 0.95, START)
    assert alert.fired_at - START == timedelta(minutes=5), "within one interval of what the rule says"
    assert alert.words == "agent-1: Requests hold 95.0 % of its pool; the rule is above 90.0 % for 5 min."
    for minute in range(6, 9):
        make_pool("agent-1", START + minute * MINUTE, used=80)
        evaluated(now + INTERVAL, seconds=45)
        now += MINUTE
    alert.refresh_from_db()
    assert (alert.state, alert.value, history(alert)) == ("resolved", 0.8, ["fired", "resolved"])
    assert AlertState.objects.count() == 0


def test_a_namespace_that_misses_is_an_alert_only_with_enough_tokens(chat: Namespace) -> None:
    quiet = make_namespace(chat.organisation, "quiet")
    for minute in range(17):
        make_traffic(chat, START + minute * MINUTE, cached=0.2, tokens=12_000)
        make_traffic(quiet, START + minute * MINUTE, cached=0.2, tokens=12)
        evaluated(START + minute * MINUTE, seconds=45)
    (alert,) = alerts()
    assert (alert.built_in, alert.place) == ("hit_ratio_low", "acme/chat")
    assert alert.fired_at - START == timedelta(minutes=15)


def test_what_waits_outlives_whoever_evaluates() -> None:
    """A round has nothing but the database: each here could be another worker."""
    make_agent("agent-1")
    for minute in range(5):
        make_pool("agent-1", START + minute * MINUTE, used=95)
        evaluated(START + minute * MINUTE, seconds=45)
    assert (AlertState.objects.get().phase, alerts()) == ("pending", [])
    make_pool("agent-1", START + 5 * MINUTE, used=95)
    alerts_evaluate(now=START + 5 * MINUTE)
    assert len(alerts()) == 1


def test_without_data_an_alert_stays_and_says_so() -> None:
    make_agent("agent-1")
    rule = make_alert_rule(metric="pool_use", comparison="above", threshold=0.5)
    make_pool("agent-1", START, used=95)
    alerts_evaluate(now=START)
    evaluated(START + timedelta(minutes=10), seconds=600)
    (alert,) = alerts(rule=rule)
    assert (alert.state, alert.has_data, alert.value) == ("firing", False, 0.95)


def test_an_alert_about_what_is_gone_is_over(chat: Namespace) -> None:
    make_alert_rule()
    make_traffic(chat, START, cached=0.1)
    alerts_evaluate(now=START)
    (alert,) = alerts()
    namespace_delete(actor=SYSTEM, namespace=chat, expected=None)
    alerts_evaluate(now=START + INTERVAL)
    alert.refresh_from_db()
    assert alert.state == "resolved"
    assert "gone" in alert.events.get(kind="resolved").words


def test_a_rule_watches_its_own_place_alone(chat: Namespace) -> None:
    gpu, other = make_group("gpu"), make_organisation("globex")
    on_gpu = make_namespace(chat.organisation, "on-gpu", group=gpu)
    default = chat.organisation.namespaces.get(slug="default")
    theirs = other.namespaces.get()
    for one in (chat, on_gpu, default, theirs):
        make_traffic(one, START, cached=0.1)
    places: dict[str, tuple[AlertRule, set[str]]] = {
        "fleet": (make_alert_rule(), {"acme/chat", "acme/on-gpu", "acme/default", "globex/default"}),
        "organisation": (make_alert_rule(Place(other)), {"globex/default"}),
        "namespace": (make_alert_rule(Place(chat.organisation, chat)), {"acme/chat"}),
    }
    alerts_evaluate(now=START)
    assert {name: {one.place for one in rule.alerts.all()} for name, (rule, _) in places.items()} == {
        name: wanted for name, (_, wanted) in places.items()
    }


def test_a_rule_that_is_switched_off_or_deleted_ends_what_it_found(chat: Namespace) -> None:
    make_traffic(chat, START, cached=0.1)
    off, gone = make_alert_rule(name="Off"), make_alert_rule(name="Gone")
    alerts_evaluate(now=START)
    rule_update(actor=SYSTEM, rule=off, changes={"enabled": False})
    rule_delete(actor=SYSTEM, rule=gone)
    alerts_evaluate(now=START + INTERVAL)
    assert {one.rule_name: (one.state, history(one)) for one in alerts()} == {
        "Off": ("resolved", ["fired", "resolved"]),
        "Gone": ("resolved", ["fired", "resolved"]),
    }


def test_another_threshold_counts_from_the_next_round(chat: Namespace) -> None:
    make_traffic(chat, START, cached=0.4)
    rule = make_alert_rule(clear_for_seconds=0)
    alerts_evaluate(now=START)
    rule_update(actor=SYSTEM, rule=rule, changes={"threshold": 0.3})
    assert AlertRule.objects.get(pk=rule.pk).clears_at == pytest.approx(0.33)
    alerts_evaluate(now=START + INTERVAL)
    assert [one.state for one in alerts()] == ["resolved"]


def test_a_round_asks_the_same_number_of_questions_whatever_there_is(chat: Namespace) -> None:
    def grown(count: int, now: datetime) -> int:
        for number in range(count):
            agent, namespace = f"agent-{now:%M}-{number}", make_namespace(chat.organisation, f"n{now:%M}{number}")
            make_agent(agent)
            make_pool(agent, now, used=100)
            make_traffic(namespace, now, cached=0.1)
            make_alert_rule(Place(chat.organisation, namespace))
        with CaptureQueriesContext(connection) as queries:
            found = alerts_evaluate(now=now)
        assert found is not None
        assert len(found.fired) == 2 * count
        return len(queries)

    make_alert_rule(metric="pool_use", comparison="above", threshold=0.5)
    alerts_evaluate(now=START)
    assert grown(2, START + MINUTE) == grown(20, START + 2 * MINUTE)


@pytest.mark.django_db(transaction=True)
def test_two_rounds_at_once_are_one() -> None:
    with psycopg.connect(os.environ["LUMINET_DATABASE_URL"], dbname=connection.settings_dict["NAME"]) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        assert alerts_evaluate(now=START) is None
    assert alerts_evaluate(now=START) is not None


# What people do


def test_only_whose_place_it_is_sees_an_alert(chat: Namespace) -> None:
    acme, default = chat.organisation, chat.organisation.namespaces.get(slug="default")
    make_agent("agent-1")
    make_pool("agent-1", START, used=95)
    for one in (chat, default, make_organisation("globex").namespaces.get()):
        make_traffic(one, START, cached=0.1)
    key = make_key(acme, "stats:read", "admin")
    make_alert_rule(name="An operator's word about Acme")
    make_alert_rule(metric="pool_use", comparison="above", threshold=0.5)
    make_alert_rule(Place(acme), actor=actor_of(key), name="Theirs")
    alerts_evaluate(now=START)
    AlertRule.objects.filter(built_in="hit_ratio_low").update(for_seconds=0)
    alerts_evaluate(now=START + INTERVAL)

    def seen(secret: str) -> set[tuple[str, str]]:
        return {(one["rule"], one["place"]) for one in said(Api(secret, Client()).get("/alerts"))["items"]}

    low = "A namespace misses more than it hits"
    assert seen(key) == {(rule, place) for rule in (low, "Theirs") for place in ("acme/chat", "acme/default")}
    bound = make_key(acme, "stats:read", namespaces=[chat])
    assert seen(bound) == {(low, "acme/chat"), ("Theirs", "acme/chat")}
    theirs = Api(make_key(Organisation.objects.get(slug="globex")), Client())
    assert {one["place"] for one in said(theirs.get("/alerts"))["items"]} == {"globex/default"}
    assert "acme" not in theirs.get("/alerts").content.decode()


def test_operators_see_all_and_filter(operator: Api, chat: Namespace) -> None:
    rule = make_alert_rule(Place(chat.organisation, chat))
    make_alert(rule, state="resolved", resolved_at=START)
    make_alert(rule)
    make_alert(make_alert_rule(metric="pool_use"), subject="agent a", place="a")

    def found(query: str) -> list[str]:
        return [one["state"] for one in said(operator.get(f"/alerts{query}"))["items"]]

    assert found("") == ["firing", "firing", "resolved"]
    assert found("?state=resolved") == ["resolved"]
    assert found("?org=acme") == ["firing", "resolved"]
    assert operator.get("/alerts?org=nowhere").status_code == 404
    assert operator.get("/alerts?state=gone").status_code == 422


def test_an_alert_is_acknowledged_with_a_note(acme: Api, operator: Api) -> None:
    namespace = Namespace.objects.select_related("organisation").get()
    alert = make_alert(make_alert_rule(Place(namespace.organisation, namespace), actor=actor_of(acme.token or "")))
    path = f"/alerts/{alert.public_id}/acknowledge"
    answer = said(acme.post(path, {"note": "On it"}))
    assert (answer["acknowledged"]["by"], answer["acknowledged"]["note"]) == ("test", "On it")
    assert [one["what"] for one in answer["history"]] == ["fired", "acknowledged"]
    assert AuditRecord.objects.filter(verb="alert.acknowledge", organisation_id=namespace.organisation_id).count() == 1
    assert acme.ask("POST", path).status_code == 200  # without a body there is no note
    seen = said(operator.post(path, {"note": "They never do this right"}))
    assert "operator@luminet.example" in seen["acknowledged"]["by"]
    (theirs,) = said(acme.get("/alerts"))["items"]
    assert theirs["acknowledged"]["by"] == "an operator"
    assert "never do this right" not in acme.get("/alerts").content.decode()


def test_a_silence_lasts_until_it_is_over_also_for_the_next_alert_of_the_place(chat: Namespace) -> None:
    rule = make_alert_rule(clear_for_seconds=0, webhook_url="https://hooks.example.com/")
    now = timezone.now()
    make_traffic(chat, now, cached=0.1)
    alerts_evaluate(now=now)
    (alert,) = alerts()
    assert Delivery.objects.count() == 1
    alert_silence(actor=SYSTEM, alert=alert, until=now + timedelta(hours=1))
    make_traffic(chat, now, cached=0.9)
    alerts_evaluate(now=now + INTERVAL)
    make_traffic(chat, now, cached=0.1)
    alerts_evaluate(now=now + 2 * INTERVAL)
    again = alerts(rule=rule)[1]
    assert again.silenced_until == now + timedelta(hours=1)
    assert list(Delivery.objects.order_by("created_at").values_list("event", flat=True)) == ["fired", "resolved"]
    make_traffic(chat, now + timedelta(hours=1), cached=0.1)
    alerts_evaluate(now=now + timedelta(hours=1))
    assert Delivery.objects.filter(alert=again, event="fired").count() == 1, "it still fires, so now it is told"


def test_a_customers_rule_ends_no_alert_within_a_minute(chat: Namespace) -> None:
    """Each has its history, and a ratio that they steer themselves could make them without end."""
    theirs = actor_of(make_key(chat.organisation))
    with pytest.raises(InvalidFields, match="59 is not 60 to"):
        make_alert_rule(Place(chat.organisation), actor=theirs, clear_for_seconds=59)
    rule = make_alert_rule(Place(chat.organisation), actor=theirs, clear_for_seconds=60)
    with pytest.raises(InvalidFields, match="clear_for_seconds"):
        rule_update(actor=theirs, rule=rule, changes={"clear_for_seconds": 0})
    assert make_alert_rule(clear_for_seconds=0).clear_for_seconds == 0, "operators know what they do"


def test_of_one_organisations_own_alerts_the_oldest_that_are_over_go(
    chat: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.alerts.services.ALERTS_OF_ONE", 3)
    acme, other = chat.organisation, make_organisation("globex")
    now, over = timezone.now(), {"state": "resolved", "resolved_at": timezone.now()}
    own = make_alert_rule(Place(acme), actor=actor_of(make_key(acme)))
    firing = make_alert(own)
    mine = [make_alert(own, **over) for _ in range(5)]
    of_operators = [make_alert(make_alert_rule(Place(acme)), **over) for _ in range(4)]
    others = make_alert_rule(Place(other), actor=actor_of(make_key(other)))
    theirs = [make_alert(others, **over) for _ in range(3)]
    housekeeping(now=now)
    assert alerts() == [firing, *mine[2:], *of_operators, *theirs]


def test_customers_do_not_silence_what_operators_rely_on(acme: Api) -> None:
    namespace = Namespace.objects.select_related("organisation").get()
    alert = make_alert(make_alert_rule(Place(namespace.organisation, namespace)), built_in="hit_ratio_low")
    assert acme.post(f"/alerts/{alert.public_id}/acknowledge", {}).status_code == 200
    assert acme.post(f"/alerts/{alert.public_id}/silence", {"seconds": 60}).status_code == 403
    (seen,) = said(acme.get("/alerts"))["items"]
    assert (seen["rule_id"], seen["silenced_until"]) == (None, None)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "until"),
        ({"seconds": 1, "until": "2036-01-01T00:00:00Z"}, "until"),
        ({"until": "2001-01-01T00:00:00Z"}, "until"),
        ({"until": "2036-01-01T00:00:00Z"}, "until"),
        ({"seconds": -1}, "seconds"),
        ({"seconds": 10**9}, "seconds"),
        ({"seconds": 1.5}, "seconds"),
    ],
)
def test_a_silence_that_cannot_be_is_refused(operator: Api, body: Any, field: str) -> None:
    alert = make_alert(make_alert_rule())
    answer = operator.post(f"/alerts/{alert.public_id}/silence", body)
    assert answer.status_code == 422
    assert [one["field"] for one in said(answer)["errors"]] == [field]


def test_a_silence_of_no_seconds_ends_one(operator: Api) -> None:
    alert = make_alert(make_alert_rule())
    path = f"/alerts/{alert.public_id}/silence"
    assert said(operator.post(path, {"seconds": 60}))["silenced_until"] is not None
    ended = said(operator.post(path, {"seconds": 0}))
    assert (ended["silenced_until"], [one["what"] for one in ended["history"]]) == (
        None,
        ["fired", "silenced", "unsilenced"],
    )


# Rules


COLD = {"name": "Cold", "metric": "hit_ratio", "comparison": "below", "threshold": 0.7}


def test_a_customers_rule_watches_its_own_and_is_seen_by_nobody_else(acme: Api, operator: Api) -> None:
    made = acme.post("/alert-rules", {**COLD, "place": "acme/default", "webhook_url": "https://hooks.example.com/x"})
    rule = said(made)
    assert (made.status_code, rule["place"], rule["clears_at"]) == (201, "acme/default", pytest.approx(0.77))
    assert rule["webhook_secret"].startswith("lmw_")
    assert "secret" not in str(said(acme.get("/alert-rules")))
    assert [one["id"] for one in said(acme.get("/alert-rules"))["items"]] == [rule["id"]]
    other = Api(make_key(make_organisation("globex")), Client())
    assert said(other.get("/alert-rules"))["items"] == []
    assert other.patch(f"/alert-rules/{rule['id']}", {"threshold": 0.1}).status_code == 404
    assert other.delete(f"/alert-rules/{rule['id']}").status_code == 404
    assert [one["id"] for one in said(operator.get("/alert-rules"))["items"]] == [rule["id"]]
    record = AuditRecord.objects.get(verb="alert-rule.create")
    assert (record.organisation_id, rule["webhook_secret"] in record.after) == (
        Organisation.objects.get(slug="acme").pk,
        False,
    )


def test_a_rule_without_a_place_is_about_all_that_is_the_callers(acme: Api, operator: Api) -> None:
    assert said(acme.post("/alert-rules", COLD))["place"] == "acme"
    assert said(operator.post("/alert-rules", COLD))["place"] == "fleet"


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"place": "fleet"}, 403),
        ({"place": "globex"}, 404),
        ({"place": "globex/default"}, 404),
        ({"place": "acme/nowhere"}, 404),
        ({"group": "default"}, 403),
        ({"metric": "pool_use"}, 422),
        ({"metric": "drift"}, 422),
        ({"metric": "lag"}, 422),
        ({"threshold": -1}, 422),
        ({"threshold": "high"}, 422),
        ({"clears_at": 0.5}, 422),
        ({"for_seconds": 10**6}, 422),
        ({"name": " "}, 422),
        ({"webhook_url": "http://hooks.example.com/"}, 422),
        ({"webhook_url": "https://127.0.0.1/"}, 422),
        ({"webhook_url": "https://169.254.169.254/latest"}, 422),
        ({"colour": "red"}, 422),
    ],
)
def test_a_rule_that_a_customer_may_not_make_is_refused(acme: Api, change: dict[str, Any], status: int) -> None:
    make_organisation("globex")
    answer = acme.post("/alert-rules", {**COLD, **change})
    assert answer.status_code == status, answer.content
    if status == 422:
        assert next(iter(change)) in [one["field"] for one in said(answer)["errors"]]
    assert AlertRule.objects.count() == 0


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"metric": "pool_use", "comparison": "above", "place": "acme"}, "place"),
        ({"metric": "reconciliation", "comparison": "above", "place": "acme/default"}, "place"),
        ({"metric": "pool_use", "comparison": "above", "least_prompt_tokens": 5}, "least_prompt_tokens"),
        ({"group": "default", "place": "acme"}, "group"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(operator: Api, change: dict[str, Any], field: str) -> None:
    make_organisation("acme")
    answer = operator.post("/alert-rules", {**COLD, **change})
    assert (answer.status_code, [one["field"] for one in said(answer)["errors"]]) == (422, [field])


def test_changing_a_rule_leaves_what_is_left_out(acme: Api) -> None:
    rule = said(acme.post("/alert-rules", {**COLD, "for_seconds": 60}))
    changed = said(acme.patch(f"/alert-rules/{rule['id']}", {"enabled": False, "name": "Colder"}))
    assert changed == {**rule, "enabled": False, "name": "Colder"}
    assert acme.patch(f"/alert-rules/{rule['id']}", {"threshold": None}).status_code == 422
    assert acme.patch(f"/alert-rules/{rule['id']}", {"rotate_secret": True}).status_code == 422


def test_a_secret_is_shown_when_it_is_new_and_then_never_again(acme: Api) -> None:
    rule = said(acme.post("/alert-rules", COLD))
    path = f"/alert-rules/{rule['id']}"
    first = said(acme.patch(path, {"webhook_url": "https://hooks.example.com/"}))["webhook_secret"]
    assert said(acme.patch(path, {"threshold": 0.6}))["webhook_secret"] is None
    second = said(acme.patch(path, {"rotate_secret": True}))["webhook_secret"]
    assert first != second
    held = AlertRule.objects.get()
    assert webhook_secret(held) == second
    assert second.encode() not in bytes(held.sealed_secret or b"")


def test_secrets_are_sealed_anew_with_the_master_key(acme: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = said(acme.post("/alert-rules", {**COLD, "webhook_url": "https://hooks.example.com/"}))["webhook_secret"]
    before = bytes(AlertRule.objects.get().sealed_secret or b"")
    monkeypatch.setattr("tenants.services.master_key.is_sealed_anew", lambda _: False)
    master_key_rotate()
    held = AlertRule.objects.get()
    assert bytes(held.sealed_secret or b"") != before
    assert webhook_secret(held) == secret


def test_built_in_rules_can_be_changed_and_switched_off_but_not_deleted(operator: Api, acme: Api) -> None:
    alerts_evaluate(now=START)
    rules = {one["built_in"]: one for one in said(operator.get("/alert-rules?limit=200"))["items"]}
    path = f"/alert-rules/{rules['pool_full']['id']}"
    assert said(operator.patch(path, {"threshold": 0.8, "clears_at": 0.7, "enabled": False}))["threshold"] == 0.8
    assert operator.delete(path).status_code == 409
    assert acme.patch(path, {"enabled": True}).status_code == 404
    assert said(acme.get("/alert-rules"))["items"] == []


def test_an_organisation_has_only_so_many_rules(acme: Api) -> None:
    organisation = Organisation.objects.get()
    like = {"name": "x", "scope": "organisation", "organisation": organisation, "metric": "hit_ratio"}
    numbers = {"comparison": "below", "threshold": 1, "clears_at": 1, "for_seconds": 0, "clear_for_seconds": 0}
    AlertRule.objects.bulk_create(AlertRule(**like, **numbers) for _ in range(MOST_RULES))
    assert acme.post("/alert-rules", COLD).status_code == 409


def test_old_alerts_go_and_what_fires_stays() -> None:
    rule, now = make_alert_rule(), timezone.now()
    make_alert(rule, state="resolved", resolved_at=now - ALERTS_KEPT - MINUTE)
    recent = make_alert(rule, state="resolved", resolved_at=now - ALERTS_KEPT + MINUTE)
    firing = make_alert(rule, fired_at=now - 2 * ALERTS_KEPT)
    housekeeping(now=now)
    assert alerts() == [recent, firing]


def test_prometheus_is_told_how_many_fire() -> None:
    alerts_evaluate(now=START)
    make_alert(AlertRule.objects.get(built_in="drift"), built_in="drift")
    make_alert(make_alert_rule())
    gauges_refresh()
    counts = {one.key: REGISTRY.get_sample_value("luminet_alerts_firing", {"rule": one.key}) for one in BUILT_IN}
    assert counts == {one.key: float(one.key == "drift") for one in BUILT_IN}
    assert REGISTRY.get_sample_value("luminet_alerts_firing", {"rule": "own"}) == 1
    assert REGISTRY.get_sample_value("luminet_alerts_evaluated_timestamp_seconds") == START.timestamp()


def test_every_metric_is_measured() -> None:
    assert set(measured(living(), now=START)) == set(METRICS)
