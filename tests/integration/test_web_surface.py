import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext

from controlplane.live.services import pulse_record
from controlplane.web.middleware import CONTENT_SECURITY_POLICY
from tests.servers.asgi_clients import ask
from tests.support.ports import free_port
from tests.web.api import make_organisation

pytestmark = pytest.mark.django_db(transaction=True)


async def test_healthz_needs_neither_a_known_host_nor_the_database() -> None:
    status, _, body = await ask("/healthz", headers={"host": "10.0.0.7"})
    assert (status, json.loads(body)) == (200, {"status": "ok"})


async def test_readyz_says_ready_and_how_old_the_pulse_is() -> None:
    status, _, body = await ask("/readyz")
    assert status == 200
    assert json.loads(body) == {
        "status": "ok",
        "checks": {"database": "ok", "migrations": "ok", "broker": "ok"},
        "pulse_age_seconds": None,
    }


async def test_readyz_answers_even_when_the_database_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.web.probes.READINESS_SECONDS", 0.2)
    monkeypatch.setattr("controlplane.web.probes.readiness", lambda now: time.sleep(1))
    status, _, body = await ask("/readyz")
    assert status == 503
    assert json.loads(body)["checks"] == {"all": "no answer within 0.2 s"}


async def test_readyz_names_a_broker_that_is_away() -> None:
    away = replace(settings.ENVIRONMENT, redis_url=f"redis://:hush@127.0.0.1:{free_port()}/0")
    with override_settings(ENVIRONMENT=away):
        status, _, body = await ask("/readyz")
    assert status == 503
    assert json.loads(body)["checks"] == {"database": "ok", "migrations": "ok", "broker": "does not answer"}
    assert b"hush" not in body


@pytest.fixture
def _no_database() -> Iterator[None]:
    original = connection.settings_dict["PORT"]
    connection.close()
    connection.settings_dict["PORT"] = str(free_port())
    yield
    connection.close()
    connection.settings_dict["PORT"] = original


@pytest.mark.usefixtures("_no_database")
def test_readyz_names_a_database_that_is_away() -> None:
    from controlplane.web.probes import readiness

    assert readiness(now=0) == ({"database": "does not answer", "migrations": "does not answer", "broker": "ok"}, None)


@pytest.mark.usefixtures("_no_database")
def test_a_page_without_its_database_says_so_and_when_to_come_back(client: Client) -> None:
    client.raise_request_exception = False
    client.cookies["luminet_session"] = "something-to-look-up"
    answer = client.get("/")
    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    assert "The database does not answer" in answer.content.decode()


async def test_probes_are_for_reading() -> None:
    assert (await ask("/healthz", method="POST"))[0] == 405
    status, _, body = await ask("/healthz", method="HEAD")
    assert (status, body) == (200, b"")


async def test_metrics_are_for_this_machine_or_for_the_bearer_of_the_token() -> None:
    assert (await ask("/metrics"))[0] == 200
    assert (await ask("/metrics", client="203.0.113.9"))[0] == 401
    with override_settings(ENVIRONMENT=replace(settings.ENVIRONMENT, metrics_token="hush")):
        for client in ("203.0.113.9", "127.0.0.1"):  # behind a careless proxy anybody looks like this machine
            for authorization, expected in (("Bearer hush", 200), ("Bearer hus", 401), ("hush", 401), ("", 401)):
                answer = await ask("/metrics", client=client, headers={"authorization": authorization})
                assert answer[0] == expected


def test_metrics_count_requests_by_route_and_never_by_path(client: Client) -> None:
    from controlplane.common.metrics import metrics_text

    client.get("/sign-in?email=secret@acme.example")
    client.get("/no/such/page/secret")
    text = metrics_text(None).decode()
    assert 'luminet_http_requests_total{method="GET",route="sign-in",status="200"}' in text
    assert 'route="unmatched",status="404"' in text
    assert "secret" not in text


async def test_a_request_id_is_kept_or_made_and_given_back() -> None:
    assert (await ask("/sign-in", headers={"x-request-id": "mine-1"}))[1]["x-request-id"] == "mine-1"
    made = (await ask("/sign-in", headers={"x-request-id": "bad id"}))[1]["x-request-id"]
    assert len(made) == 32


@pytest.mark.parametrize("path", ["/sign-in", "/", "/no/such/page", "/admin/", "/static/luminet/luminet.css"])
def test_every_answer_carries_the_security_headers(client: Client, path: str) -> None:
    answer = client.get(path)
    assert answer["Content-Security-Policy"] == CONTENT_SECURITY_POLICY
    assert "unsafe" not in answer["Content-Security-Policy"]
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Referrer-Policy"] == "same-origin"
    assert answer["Cross-Origin-Opener-Policy"] == "same-origin"
    answer.close()


def test_pages_made_for_one_person_are_not_kept_by_anyone(customer_client: Client) -> None:
    assert "no-store" in customer_client.get("/")["Cache-Control"]


def test_a_foreign_host_is_refused(client: Client) -> None:
    answer = client.get("/sign-in", headers={"host": "evil.example"})
    assert answer.status_code == 400
    assert "evil.example" not in answer.content.decode()


def test_an_unknown_page_is_a_designed_one(customer_client: Client) -> None:
    answer = customer_client.get("/<script>alert(1)</script>")
    assert answer.status_code == 404
    assert "There is no such page" in answer.content.decode()
    assert "<script>alert" not in answer.content.decode()


def test_the_overview_shows_the_numbers_it_has(operator_client: Client) -> None:
    empty = operator_client.get("/").content.decode()
    assert "The first round trip is on its way." in empty
    pulse_record(sent_at=datetime.now(UTC), now=datetime.now(UTC))
    page = operator_client.get("/").content.decode()
    assert "<span data-count>1</span> round trips" in page
    assert "Beat is starting" in page  # nothing runs a beat in this test, and the page says so


def test_the_overview_asks_a_constant_number_of_queries(operator_client: Client) -> None:
    """Session, user, server version, latest pulse and history, the fleet's policy and its numbers."""
    operator_client.get("/")  # the first makes the fleet's policy
    asked = set()
    for pulses in (1, 30):
        for _ in range(pulses):
            pulse_record(sent_at=datetime.now(UTC), now=datetime.now(UTC))
        make_organisation(f"acme-{pulses}", *(f"n{number}" for number in range(pulses)))
        with CaptureQueriesContext(connection) as queries:
            operator_client.get("/")
        asked.add(len(queries))
    assert len(asked) == 1
