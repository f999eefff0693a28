"""The switch of the demo's traffic, by REST and by one click; whose keys it uses; and where it runs."""

import json
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

from controlplane.analytics.demo_traffic import demo_traffic_now, demo_traffic_state
from controlplane.common.health import DEMO_TRAFFIC_KEY, NotReady, demo_traffic_check, redis_client
from controlplane.demo.memory import demo_keys_read
from controlplane.demo.seed import demo_traffic_keys
from controlplane.stack import up
from controlplane.stack.config import StackConfig, read_stack_config
from controlplane.stack.services import Addresses
from tenants.models import ApiKey, AuditRecord, Organisation, User
from tests.database.factories import actor_of
from tests.web.api import Api, make_organisation, said
from tests.web.demonstration import demonstration

pytestmark = pytest.mark.django_db
ADDRESSES = Addresses(web="http://127.0.0.1:8000", database_url="postgresql://x", redis_url="redis://127.0.0.1:1/0")


def tell(state: str) -> None:
    with redis_client(settings.ENVIRONMENT.redis_url) as client:
        client.set(DEMO_TRAFFIC_KEY, state, ex=15)


# The switch


def test_it_is_wanted_until_somebody_says_otherwise(operator: Api) -> None:
    assert said(operator.get("/demo-traffic")) == {
        "is_here": False, "state": None, "is_on": True, "changed_by": None, "changed_at": None,
    }  # fmt: skip


def test_it_is_switched_off_and_on_and_who_did_it_is_remembered_and_audited(operator: Api) -> None:
    off = said(operator.put("/demo-traffic", {"is_on": False}))
    assert (off["is_on"], off["changed_by"]) == (False, "operator@luminet.example (test)")
    assert said(operator.get("/demo-traffic")) == off
    assert said(operator.put("/demo-traffic", {"is_on": True}))["is_on"] is True
    verbs = AuditRecord.objects.filter(verb__startswith="demo_traffic").order_by("pk").values_list("verb", flat=True)
    assert list(verbs) == ["demo_traffic.stop", "demo_traffic.start"]


def test_to_say_what_is_so_already_changes_nothing(operator: Api) -> None:
    operator.put("/demo-traffic", {"is_on": True})
    first = said(operator.put("/demo-traffic", {"is_on": False}))
    assert said(operator.put("/demo-traffic", {"is_on": False})) == first
    assert AuditRecord.objects.filter(verb__startswith="demo_traffic").count() == 1


@pytest.mark.parametrize("body", [{}, {"is_on": "no"}, {"is_on": 0}, {"is_on": False, "more": 1}])
def test_anything_but_a_truth_is_refused(operator: Api, body: object) -> None:
    assert operator.put("/demo-traffic", body).status_code == 422
    assert demo_traffic_now().is_on


@pytest.mark.parametrize("state", ["sends", "paused", "waits"])
def test_what_it_does_is_what_it_last_said(operator: Api, state: str) -> None:
    with pytest.raises(NotReady, match="has said nothing"):
        demo_traffic_check(settings.ENVIRONMENT.redis_url)
    tell(state)
    demo_traffic_check(settings.ENVIRONMENT.redis_url)
    found = said(operator.get("/demo-traffic"))
    assert (found["is_here"], found["state"]) == (True, state)


def test_what_nobody_says_is_not_believed() -> None:
    tell("\N{ROLLING ON THE FLOOR LAUGHING}")
    assert demo_traffic_state() is None


# On the homes


def test_both_homes_of_a_demonstration_say_what_the_numbers_are_of(
    operator_client: Client, customer_client: Client
) -> None:
    for client in (operator_client, customer_client):
        assert "A demonstration" not in client.get("/").content.decode()
        assert client.post("/demo-traffic", {"is_on": "no"}).status_code == 404
        with demonstration():
            page = client.get("/").content.decode()
        assert "small model, CPU, example prices" in page
        assert "Hit counts are exact" in page


def test_one_click_of_an_operator_stops_it_and_another_starts_it(operator_client: Client) -> None:
    tell("sends")
    with demonstration():
        assert "Stop demo traffic" in operator_client.get("/").content.decode()
        answer = operator_client.post("/demo-traffic", {"is_on": "no"}, follow=True)
        assert "Start demo traffic" in answer.content.decode()
        assert not demo_traffic_now().is_on
        operator_client.post("/demo-traffic", {"is_on": "yes"})
    assert demo_traffic_now().is_on


def test_the_settings_of_a_demonstration_have_the_switch_too(operator_client: Client) -> None:
    tell("sends")
    assert "demo traffic" not in operator_client.get("/settings").content.decode().lower()
    with demonstration():
        assert "Stop demo traffic" in operator_client.get("/settings").content.decode()
        answer = operator_client.post("/demo-traffic", {"is_on": "no", "next": "/settings"}, follow=True)
        assert "Start demo traffic" in answer.content.decode()
        assert answer.request["PATH_INFO"] == "/settings"


def test_only_the_sign_in_page_of_a_demonstration_says_where_its_password_is(client: Client) -> None:
    assert "demo.json" not in client.get("/sign-in").content.decode()
    with demonstration():
        assert "demo.json" in client.get("/sign-in").content.decode()


def test_where_none_runs_there_is_no_switch_to_click(operator_client: Client) -> None:
    with demonstration():
        page = operator_client.get("/").content.decode()
    assert "No demo traffic runs here." in page
    assert "Stop demo traffic" not in page


def test_customers_have_no_switch(customer_client: Client) -> None:
    tell("sends")
    with demonstration():
        assert "Stop demo traffic" not in customer_client.get("/").content.decode()
        assert customer_client.post("/demo-traffic", {"is_on": "no"}).status_code == 404
    assert demo_traffic_now().is_on


# Whose keys, and where it runs


def test_where_nobody_ever_was_it_makes_organisations_without_people_and_keys_for_inference_alone() -> None:
    keys = demo_traffic_keys()
    assert set(keys) == {"acme", "globex", "initech"}
    assert actor_of(keys["acme"]).scopes == frozenset({"infer"})
    assert not User.objects.exists()


def test_started_again_it_has_new_keys_and_the_lost_ones_have_ended() -> None:
    first, second = demo_traffic_keys(), demo_traffic_keys()
    assert first.keys() == second.keys()
    assert not set(first.values()) & set(second.values())
    assert ApiKey.objects.filter(revoked_at=None).count() == 3


def test_where_somebody_is_already_it_makes_nothing_and_has_no_key() -> None:
    make_organisation("umbrella")
    assert demo_traffic_keys() == {}
    assert Organisation.objects.count() == 1


def test_it_reads_the_keys_that_the_stack_wrote_down(tmp_path: Path) -> None:
    file = tmp_path / "demo.json"
    assert demo_keys_read(file) == {}
    file.write_text(json.dumps({"orgs": [{"slug": "acme", "api_key": "lmk_x"}, {"slug": "b", "api_key": None}, 7]}))
    assert demo_keys_read(file) == {"acme": "lmk_x"}
    file.write_text("[]")
    assert demo_keys_read(file) == {}


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "runs_fleet", lambda config: config.engine_port is not None)
    monkeypatch.setattr(up, "is_installed", lambda name: True)


def services_of(**environ: str) -> dict[str, object]:
    config: StackConfig = read_stack_config({"LUMINET_HOME": "/nowhere", **environ})
    return {one.name: one for one in up._fleet_services(config, ADDRESSES, {"LUMINET_HOME": "/nowhere"})}


@pytest.mark.usefixtures("fleet")
def test_the_stack_runs_it_beside_the_gateway_unless_told_not_to() -> None:
    found = services_of(LUMINET_GATEWAY_PORT="8123")
    assert found["demo-traffic"].env["LUMINET_DEMO_GATEWAY"] == "http://127.0.0.1:8123"  # type: ignore[attr-defined]
    assert "gateway" in found
    assert "demo-traffic" not in services_of(LUMINET_DEMO_TRAFFIC="0")
    assert services_of(LUMINET_RUN_ENGINE="no") == {}
