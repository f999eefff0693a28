"""Alerts in a browser: worst first, each reader their own, and the same deeds and refusals as in the API."""

import html
import re
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.alerts.models import Alert, AlertRule, Evaluation
from controlplane.alerts.services import webhook_secret
from tenants.levels import Place
from tenants.models import AuditRecord, Namespace, Organisation
from tenants.services.organisations import organisation_update
from tests.database.factories import actor_of, make_group, make_operator
from tests.fleet.alerts import make_alert, make_alert_rule
from tests.web.api import make_key, make_organisation
from tests.web.pages import join, words

pytestmark = pytest.mark.django_db
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def acme(customer_client: Client) -> Organisation:
    found = make_organisation("acme", "chat")
    join(found, role="editor")
    return found


def chat(organisation: Organisation) -> Place:
    return Place(organisation, Namespace.objects.get(organisation=organisation, slug="chat"))


def own_rule(organisation: Organisation, **more: Any) -> AlertRule:
    actor = actor_of(make_key(organisation, "admin"))
    return make_alert_rule(chat(organisation), actor=actor, clear_for_seconds=60, **more)


def get(client: Client, path: str = "/alerts") -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer.content
    return words(answer)


def at(alert: Alert) -> str:
    return f"/alerts/{alert.public_id}"


# Who sees what


def test_what_cannot_wait_and_has_nobody_comes_first(operator_client: Client, acme: Organisation) -> None:
    rule, now = make_alert_rule(chat(acme)), timezone.now()
    make_alert(rule, subject="a", rule_name="Looked after", acknowledged_at=now, acknowledged_by="kim@x.example")
    make_alert(rule, subject="b", rule_name="Silent", silenced_until=now + timedelta(hours=1))
    make_alert(rule, subject="c", rule_name="Can wait", since=now - timedelta(days=1))
    make_alert(rule, subject="d", rule_name="Cannot wait", built_in="pool_full", metric="pool_use")
    make_alert(rule, subject="e", rule_name="Long over", state="resolved", resolved_at=now)
    told = get(operator_client)
    order = ["Cannot wait", "Can wait", "Looked after", "Silent"]
    assert re.findall("|".join(order), told[told.index("Who looks") :]) == order
    assert "4 alerts fire: 1 cannot wait and has nobody" in told
    assert "Long over" not in told
    assert "Long over" in get(operator_client, "/alerts?state=over")


def test_an_organisation_sees_its_own_and_built_in_ones_alone(
    customer_client: Client, operator_client: Client, acme: Organisation
) -> None:
    globex = make_organisation("globex", "chat")
    own, operators = own_rule(acme), make_alert_rule(chat(acme), name="Operators watch")
    mine = make_alert(own, rule_name="Ours is cold")
    make_alert(operators, subject="x", rule_name="Operators watch")
    make_alert(operators, subject="y", rule_name="Built in is theirs", built_in="hit_ratio_low")
    other = make_alert(own_rule(globex), rule_name="Globex is cold")
    told = get(customer_client)
    assert "Ours is cold" in told
    assert "Built in is theirs" in told
    assert "Operators watch" not in told
    assert "Globex" not in told
    assert "2 alerts fire" in told
    assert customer_client.get(at(mine)).status_code == 200
    assert customer_client.get(at(other)).status_code == 404
    assert customer_client.post(at(other), {"do": "acknowledge"}).status_code == 404
    assert "4 alerts fire" in get(operator_client)


def test_somebody_in_no_organisation_sees_none(customer_client: Client) -> None:
    make_alert(make_alert_rule(chat(make_organisation("globex", "chat"))))
    assert "Nothing fires" in get(customer_client)
    assert "There is no rule yet" in get(customer_client, "/alerts/rules")


def test_of_operators_customers_learn_no_names(customer_client: Client, acme: Organisation) -> None:
    alert = make_alert(
        make_alert_rule(chat(acme)), built_in="hit_ratio_low", acknowledged_at=timezone.now(),
        acknowledged_by="root@luminet.example", acknowledged_by_operator=True, note="their fault",
    )  # fmt: skip
    told = get(customer_client, at(alert))
    assert "by an operator" in told
    assert "root@" not in told
    assert "their fault" not in told


def test_old_evaluations_are_said_to_be_old(operator_client: Client) -> None:
    Evaluation.objects.create(at=timezone.now() - timedelta(minutes=5))
    assert "Nobody has looked at the rules for more than 2 minutes" in get(operator_client)


def test_however_many_alerts_there_are_the_queries_stay_the_same(operator_client: Client, acme: Organisation) -> None:
    rule = make_alert_rule(chat(acme))

    def queries() -> int:
        with CaptureQueriesContext(connection) as found:
            get(operator_client)
        return len(found)

    make_alert(rule, subject="a")
    few = queries()
    for number in range(60):
        make_alert(rule, subject=f"b{number}")
    assert queries() == few
    assert "1 to 50 of 61" in get(operator_client)
    assert "51 to 61 of 61" in get(operator_client, "/alerts?page=2")
    assert "51 to 61 of 61" in get(operator_client, "/alerts?page=99999")
    assert "1 to 50 of 61" in get(operator_client, "/alerts?page=<b>")


# What is done about one


def test_whoever_acknowledges_is_named_with_what_they_do(customer_client: Client, acme: Organisation) -> None:
    alert = make_alert(own_rule(acme))
    answer = customer_client.post(at(alert), {"do": "acknowledge", "note": HOSTILE})
    assert (answer.status_code, answer["Location"]) == (302, at(alert))
    page = customer_client.get(at(alert)).content.decode()
    assert "someone@acme.example" in page
    assert HOSTILE not in page
    assert html.escape(HOSTILE) in page
    assert AuditRecord.objects.latest("pk").verb == "alert.acknowledge"


@pytest.mark.parametrize(("seconds", "hours"), [("3600", 1), ("28800", 8), ("86400", 24)])
def test_an_alert_is_silenced_for_as_long_as_chosen_and_lifted_again(
    customer_client: Client, acme: Organisation, seconds: str, hours: int
) -> None:
    alert = make_alert(own_rule(acme))
    customer_client.post(at(alert), {"do": "silence", "seconds": seconds})
    alert.refresh_from_db()
    assert alert.silenced_until is not None
    assert abs(alert.silenced_until - timezone.now() - timedelta(hours=hours)) < timedelta(minutes=1)
    assert "Lift the silence" in get(customer_client, at(alert))
    customer_client.post(at(alert), {"do": "lift"})
    alert.refresh_from_db()
    assert alert.silenced_until is None


def test_until_lifted_is_said_to_be_thirty_days_and_is(customer_client: Client, acme: Organisation) -> None:
    alert = make_alert(own_rule(acme))
    found = re.search(r'value="(\d+)">until it is lifted, 30 days', customer_client.get(at(alert)).content.decode())
    assert found
    assert customer_client.post(at(alert), {"do": "silence", "seconds": found[1]}).status_code == 302
    alert.refresh_from_db()
    assert alert.silenced_until is not None
    assert alert.silenced_until - timezone.now() > timedelta(days=29, hours=23)


def test_bad_words_are_refused_beside_their_field_and_kept(customer_client: Client, acme: Organisation) -> None:
    alert = make_alert(own_rule(acme))
    answer = customer_client.post(at(alert), {"do": "acknowledge", "note": "n" * 501})
    assert answer.status_code == 422
    assert "What is being done about it:" in words(answer)
    assert "n" * 501 in answer.content.decode()
    answer = customer_client.post(at(alert), {"do": "silence", "seconds": HOSTILE})
    assert answer.status_code == 422
    assert HOSTILE not in answer.content.decode()
    alert.refresh_from_db()
    assert (alert.acknowledged_at, alert.silenced_until) == (None, None)


def test_a_viewer_reads_and_learns_whom_to_ask(customer_client: Client) -> None:
    acme = make_organisation("acme", "chat")
    join(acme, "viewer")
    alert = make_alert(own_rule(acme))
    told = get(customer_client, at(alert))
    assert "Editors and admins of your organisation may acknowledge and silence" in told
    assert "Silence Silence" not in told
    assert customer_client.post(at(alert), {"do": "acknowledge"}).status_code == 403
    alert.refresh_from_db()
    assert alert.acknowledged_at is None


def test_a_suspended_organisation_changes_nothing(customer_client: Client, acme: Organisation) -> None:
    alert = make_alert(own_rule(acme))
    acme.refresh_from_db()
    organisation_update(
        actor=actor_of_operator(), organisation=acme, expected=frozenset({acme.revision}), state="suspended"
    )
    assert "suspended: alerts can be read, not changed" in get(customer_client, at(alert))
    assert customer_client.post(at(alert), {"do": "acknowledge"}).status_code == 403


def actor_of_operator() -> Any:
    from tenants.access import actor_for_operator

    return actor_for_operator(make_operator())


def test_what_operators_rely_on_customers_do_not_silence(customer_client: Client, acme: Organisation) -> None:
    alert = make_alert(make_alert_rule(chat(acme)), built_in="hit_ratio_low")
    assert "only they silence it" in get(customer_client, at(alert))
    assert customer_client.post(at(alert), {"do": "silence", "seconds": "3600"}).status_code == 403
    assert customer_client.post(at(alert), {"do": "acknowledge"}).status_code == 302


# Rules

RULE = {
    "name": "Chat is cold", "metric": "hit_ratio", "place": "acme/chat", "comparison": "below", "threshold": "62.5",
    "lasting": "1 h 30 min", "clears_at": "", "clear_for": "2 min", "least": "5,000", "webhook": "", "enabled": "on",
}  # fmt: skip


def send(client: Client, path: str = "/alerts/rules", **more: str) -> HttpResponse:
    return client.post(path, {**RULE, **more})  # type: ignore[return-value]


def test_a_rule_is_made_in_the_units_people_think_in(operator_client: Client, acme: Organisation) -> None:
    assert send(operator_client).status_code == 302
    rule = AlertRule.objects.get()
    assert (rule.threshold, rule.for_seconds, rule.clear_for_seconds, rule.least_prompt_tokens) == (
        0.625, 5400, 120, 5000,
    )  # fmt: skip
    assert (rule.scope, rule.namespace and rule.namespace.slug, rule.enabled) == ("namespace", "chat", True)
    told = get(operator_client, "/alerts/rules")
    assert "Hit rate below 62.5 % for 90 min" in told


@pytest.mark.parametrize(
    ("place", "scope"), [("", "fleet"), ("fleet", "fleet"), ("group:gpu", "group"), ("acme", "organisation")]
)
def test_an_operator_says_where(operator_client: Client, acme: Organisation, place: str, scope: str) -> None:
    make_group("gpu")
    assert send(operator_client, place=place).status_code == 302
    assert AlertRule.objects.get().scope == scope


def test_an_admin_makes_rules_of_their_own_organisation_alone(customer_client: Client) -> None:
    make_organisation("globex", "chat")
    join(make_organisation("acme", "chat"), "admin")
    for place in ("globex", "globex/chat", "fleet", "group:default", "acme/nothing", ""):
        assert send(customer_client, place=place).status_code == 422, place
    assert send(customer_client, metric="silence").status_code == 422
    assert not AlertRule.objects.exists()
    assert send(customer_client).status_code == 302
    assert AlertRule.objects.get().author_is_operator is False


def test_an_editor_makes_none(customer_client: Client, acme: Organisation) -> None:
    assert "Admins of your organisation may make rules" in get(customer_client, "/alerts/rules")
    rule = own_rule(acme)
    assert send(customer_client).status_code == 403
    assert customer_client.get(f"/alerts/rules/{rule.public_id}").status_code == 403
    assert AlertRule.objects.count() == 1


def test_a_webhooks_secret_is_shown_once(operator_client: Client, acme: Organisation) -> None:
    answer = send(operator_client, webhook="https://93.184.216.34/hook")
    assert answer.status_code == 201, words(answer)
    secret = webhook_secret(AlertRule.objects.get())
    assert secret in answer.content.decode()
    assert "no-store" in answer["Cache-Control"]
    assert secret not in operator_client.get("/alerts/rules").content.decode()
    assert secret not in operator_client.get(f"/alerts/rules/{AlertRule.objects.get().public_id}").content.decode()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": ""}, "required"),
        ({"name": "n" * 300}, "Name:"),
        ({"metric": HOSTILE}, "is none of pool_use"),
        ({"place": "nobody/here"}, "Where: there is no “nobody/here” here"),
        ({"threshold": "half"}, "Threshold: “half” is not a number"),
        ({"threshold": "9" * 29}, "Threshold:"),
        ({"lasting": "5"}, "For how long: “5” is no length of time: write it as 5 min or 90 s."),
        ({"lasting": "8 d"}, "For how long: 691200 is not 0 to 86400."),
        ({"clears_at": "10"}, "Over at: 0.1 is less than the threshold 0.625"),
        ({"comparison": "beside"}, "When it is: “beside” is not above or below."),
        ({"webhook": "ftp://x"}, "Webhook:"),
        ({"webhook": HOSTILE}, "Webhook:"),
    ],
)
def test_a_wrong_rule_is_refused_by_field_and_what_was_typed_stays(
    operator_client: Client, acme: Organisation, wrong: dict[str, str], said: str
) -> None:
    answer = send(operator_client, **wrong)
    assert answer.status_code == 422
    assert said in words(answer)
    page = answer.content.decode()
    assert HOSTILE not in page
    for name, typed in {**RULE, **wrong}.items():
        if typed and name not in ("metric", "comparison", "enabled"):
            assert f'value="{html.escape(typed)}"' in page, name
    assert not AlertRule.objects.exists()


def form_of(client: Client, path: str) -> dict[str, str]:
    page = client.get(path).content.decode()
    names = ("name", "threshold", "lasting", "clears_at", "clear_for", "least", "webhook", "seen")
    found = {}
    for name in names:
        tag = re.search(rf'<input[^>]*name="{name}"[^>]*>', page)
        assert tag, name
        value = re.search(r'value="([^"]*)"', tag[0])
        found[name] = html.unescape(value[1]) if value else ""
    return {**found, "enabled": "on"}


def test_a_rule_is_changed_and_what_is_not_touched_stays(operator_client: Client, acme: Organisation) -> None:
    rule = make_alert_rule(chat(acme), for_seconds=900)
    path = f"/alerts/rules/{rule.public_id}"
    told = form_of(operator_client, path)
    assert (told["threshold"], told["lasting"]) == ("50", "15 min")
    assert operator_client.post(path, {**told, "threshold": "40"}).status_code == 302
    before = (rule.for_seconds, rule.clears_at, rule.name)
    rule.refresh_from_db()
    assert (rule.for_seconds, rule.clears_at, rule.name) == before
    assert rule.threshold == 0.4


def test_a_second_tab_learns_what_changed_and_keeps_its_text(operator_client: Client, acme: Organisation) -> None:
    rule = make_alert_rule(chat(acme))
    path = f"/alerts/rules/{rule.public_id}"
    old = form_of(operator_client, path)
    assert operator_client.post(path, {**old, "threshold": "40"}).status_code == 302
    answer = operator_client.post(path, {**old, "threshold": "30"})
    assert answer.status_code == 422
    assert "Somebody changed this rule meanwhile" in words(answer)
    assert "Hit rate below 40.0 %" in words(answer)
    assert 'value="30"' in answer.content.decode()
    rule.refresh_from_db()
    assert rule.threshold == 0.4
    seen = re.search(r'name="seen" value="([^"]+)"', answer.content.decode())
    assert seen
    assert operator_client.post(path, {**old, "threshold": "30", "seen": seen[1]}).status_code == 302
    rule.refresh_from_db()
    assert rule.threshold == 0.3


def test_a_rule_is_deleted_by_its_name_and_says_what_ends(operator_client: Client, acme: Organisation) -> None:
    rule = make_alert_rule(chat(acme))
    make_alert(rule)
    path = f"/alerts/rules/{rule.public_id}"
    assert "Delete it: 1 alert that fires by it ends" in get(operator_client, path)
    for typed in ("", "cold", HOSTILE):
        answer = operator_client.post(path, {"do": "delete", "end-typed": typed})
        assert answer.status_code == 422
        assert HOSTILE not in answer.content.decode()
    assert AlertRule.objects.filter(pk=rule.pk, deleted_at=None).exists()
    assert operator_client.post(path, {"do": "delete", "end-typed": "Cold"}).status_code == 302
    assert not AlertRule.objects.filter(pk=rule.pk, deleted_at=None).exists()
    assert Alert.objects.get().state == "resolved"


def test_a_built_in_rule_is_marked_and_cannot_be_deleted(operator_client: Client, acme: Organisation) -> None:
    rule = make_alert_rule(chat(acme))
    AlertRule.objects.filter(pk=rule.pk).update(built_in="hit_ratio_low")
    path = f"/alerts/rules/{rule.public_id}"
    assert "built in" in get(operator_client, "/alerts/rules")
    assert "Delete it" not in get(operator_client, path)
    answer = operator_client.post(path, {"do": "delete", "end-typed": "Cold"})
    assert answer.status_code == 422
    assert AlertRule.objects.filter(pk=rule.pk).exists()


def test_rules_of_others_and_of_operators_are_not_there(customer_client: Client) -> None:
    acme, globex = make_organisation("acme", "chat"), make_organisation("globex", "chat")
    join(acme, "admin")
    for rule in (own_rule(globex), make_alert_rule(chat(acme))):
        assert customer_client.get(f"/alerts/rules/{rule.public_id}").status_code == 404
        assert customer_client.post(f"/alerts/rules/{rule.public_id}", {"do": "delete"}).status_code == 404
    assert customer_client.get(f"/alerts/rules/{uuid4()}").status_code == 404


# Live


def test_an_alert_that_fires_meanwhile_comes_with_the_part_that_the_page_asks_for(
    operator_client: Client, acme: Organisation
) -> None:
    rule = make_alert_rule(chat(acme))
    page = operator_client.get("/alerts").content.decode()
    assert 'data-live="/ws/live/fleet"' in page
    assert 'hx-get="/alerts/now?"' in page
    make_alert(rule, rule_name="Just now")
    part = operator_client.get("/alerts/now").content.decode()
    assert "Just now" in part
    assert "1 alert fires" in part
    places = re.findall(r'id="([\w-]+)"(?: hx-swap-oob="true")?', part)
    assert len(places) == len(set(places)), "where something is put is there once"
    assert {"alerts", "alerts-title"} <= {*re.findall(r'id="([\w-]+)"', page)}


def test_the_part_is_of_the_same_list_and_page(operator_client: Client, acme: Organisation) -> None:
    rule, now = make_alert_rule(chat(acme)), timezone.now()
    for number in range(60):
        make_alert(rule, subject=str(number), rule_name=f"Over {number}", state="resolved", resolved_at=now)
    page = html.unescape(operator_client.get("/alerts?state=over&page=2").content.decode())
    (address,) = re.findall(r'id="alerts" hx-get="([^"]+)"', page)
    assert address == "/alerts/now?state=over&page=2"
    part = operator_client.get(address).content.decode()
    assert "51 to 60 of 60" in part
    assert "Over 9<" in part
    assert "Over 10<" not in part


def test_an_organisations_people_hear_by_its_socket_and_see_their_own(
    customer_client: Client, acme: Organisation
) -> None:
    assert 'data-live="/ws/live/orgs/acme"' in customer_client.get("/alerts").content.decode()
    make_alert(own_rule(make_organisation("globex", "chat")), rule_name="Globex is cold")
    part = customer_client.get("/alerts/now").content.decode()
    assert "Globex" not in part
    assert "Nothing fires" in part


def test_who_is_in_no_organisation_has_nothing_to_hear(customer_client: Client) -> None:
    assert "data-live=" not in customer_client.get("/alerts").content.decode()


def test_the_overviews_firing_alerts_come_by_themselves(operator_client: Client, acme: Organisation) -> None:
    page = operator_client.get("/").content.decode()
    assert 'hx-get="/overview/watched"' in page
    make_alert(make_alert_rule(chat(acme)), rule_name="Just now")
    part = operator_client.get("/overview/watched").content.decode()
    assert "1 alert fires" in part
    places = re.findall(r'id="([\w-]+)" hx-swap-oob="true"', part)
    assert sorted(places) == ["firing", "pools", "rolling"]
    assert all(page.count(f'id="{place}"') == 1 for place in places)


def test_alerts_ask_no_more_the_more_fire(operator_client: Client, acme: Organisation) -> None:
    rule = make_alert_rule(chat(acme))

    def asked(path: str) -> int:
        with CaptureQueriesContext(connection) as queries:
            assert operator_client.get(path).status_code == 200
        return len(queries)

    make_alert(rule)
    paths = ("/alerts/now", "/overview/watched")
    for path in paths:
        asked(path)  # fills the cache of policy fields in force
    few = [asked(path) for path in paths]
    for number in range(60):
        make_alert(rule, subject=str(number))
    assert [asked(path) for path in paths] == few
