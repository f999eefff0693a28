"""Webhooks against a real receiver: signed, tried again, lost by nobody, and told apart when they come twice."""

import json
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.utils import timezone

from controlplane.alerts import delivery
from controlplane.alerts.delivery import LEASE, TRIED_FOR, deliveries_claim, deliveries_send, wait_after
from controlplane.alerts.evaluating import alerts_evaluate
from controlplane.alerts.models import Alert, AlertRule, Delivery
from controlplane.alerts.selectors import rules_visible
from controlplane.alerts.services import Draft, Made, housekeeping, rule_create, rule_delete, rule_update
from controlplane.alerts.tasks import alerts_housekeeping, deliver, evaluate
from controlplane.alerts.telling import deliveries_queue
from controlplane.alerts.views import alert_view
from controlplane.celery import app
from tenants.actor import SYSTEM
from tenants.levels import FLEET, Place
from tenants.models import Namespace, Organisation
from tests.database.factories import actor_of
from tests.fleet.alerts import INTERVAL, make_alert, make_traffic
from tests.web.api import Api, make_key, make_organisation, said

pytestmark = pytest.mark.django_db
DOCS = Path(__file__).parents[2] / "docs" / "alerts.md"
Verify = Callable[[str, dict[str, str], bytes, float], bool]


@dataclass
class Receiver:
    """Answers with what is in `answers`, the last of them for ever, and keeps what it was told."""

    url: str = ""
    answers: list[int] = field(default_factory=lambda: [204])
    told: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    def answer(self) -> int:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    @property
    def events(self) -> list[str]:
        return [json.loads(body)["event"] for _, body in self.told]

    @property
    def ids(self) -> list[str]:
        return [headers["Luminet-Delivery"] for headers, _ in self.told]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.told.append((dict(self.headers), body))
            self.send_response(found.answer())
            self.send_header("Location", f"{found.url}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def chat() -> Namespace:
    return make_organisation("acme", "chat").namespaces.select_related("organisation").get(slug="chat")


class Hosts:
    """The environment as an operator who set LUMINET_WEBHOOK_HOSTS would have it."""

    def __init__(self, inner: Any, *hosts: str) -> None:
        self._inner = inner
        self.webhook_hosts: tuple[str, ...] = hosts

    def allow(self, host: str) -> None:
        self.webhook_hosts += (host,)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.fixture(autouse=True)
def hosts(monkeypatch: pytest.MonkeyPatch, receiver: Receiver) -> Hosts:
    found = Hosts(settings.ENVIRONMENT, receiver.url.removeprefix("http://"))
    monkeypatch.setattr(settings, "ENVIRONMENT", found)
    return found


def made(url: str, place: Place = FLEET, **more: Any) -> Made:
    draft = Draft("Cold", "hit_ratio", "below", 0.5, for_seconds=0, clear_for_seconds=0, webhook_url=url, **more)
    return rule_create(actor=SYSTEM, draft=draft, place=place)


def fired(chat: Namespace, now: datetime) -> Alert:
    make_traffic(chat, now, cached=0.1)
    alerts_evaluate(now=now)
    return Alert.objects.get(state="firing")


def verify_of_the_docs() -> Verify:
    """The snippet that people are given, as it stands there."""
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    space: dict[str, Any] = {}
    exec(code, space)
    verify: Verify = space["verify"]
    return verify


def test_what_is_told_is_signed_as_the_docs_say(receiver: Receiver, chat: Namespace) -> None:
    rule, now = made(receiver.url), timezone.now()
    fired(chat, now)
    assert deliveries_send(now=now) == 1
    ((headers, body),) = receiver.told
    verify, secret = verify_of_the_docs(), rule.secret or ""
    at = float(headers["Luminet-Timestamp"])
    assert verify(secret, headers, body, at)
    assert not verify("lmw_another", headers, body, at)
    assert not verify(secret, headers, body + b" ", at)
    assert not verify(secret, headers, body, at + 301), "an old one is not believed"
    assert not verify(secret, {**headers, "Luminet-Timestamp": str(int(at) + 1)}, body, at)
    told = json.loads(body)
    assert (told["event"], told["alert"]["place"], told["delivery"]) == ("fired", "acme/chat", receiver.ids[0])


def test_its_end_is_told_after_its_beginning_and_both_are_in_the_history(receiver: Receiver, chat: Namespace) -> None:
    made(receiver.url)
    now = timezone.now()
    alert = fired(chat, now)
    make_traffic(chat, now, cached=0.9)
    alerts_evaluate(now=now + INTERVAL)
    assert deliveries_send(now=now + INTERVAL) == 2
    assert receiver.events == ["fired", "resolved"]
    kinds = list(alert.events.order_by("pk").values_list("kind", flat=True))
    assert kinds == ["fired", "resolved", "delivered", "delivered"]


@pytest.mark.parametrize("refusal", [500, 503, 429, 404, 302, 301])
def test_what_is_not_taken_is_sent_again_under_the_same_id(receiver: Receiver, chat: Namespace, refusal: int) -> None:
    receiver.answers = [refusal, 204]
    made(receiver.url)
    now = timezone.now()
    fired(chat, now)
    deliveries_send(now=now)
    waiting = Delivery.objects.get()
    assert (waiting.state, waiting.problem, waiting.attempts) == ("waiting", f"answered {refusal}", 1)
    assert deliveries_send(now=now) == 0, "not before its time"
    deliveries_send(now=waiting.next_at)
    assert receiver.ids == [str(waiting.pk)] * 2, "and a redirect is not followed"
    assert Delivery.objects.get().state == "taken"
    assert deliveries_send(now=now + timedelta(days=2)) == 0


def test_a_worker_killed_before_it_sent_loses_nothing(receiver: Receiver, chat: Namespace) -> None:
    """It had claimed the delivery, and that is all anybody knows of it."""
    made(receiver.url)
    now = timezone.now()
    fired(chat, now)
    (claimed,) = deliveries_claim(now=now)
    assert deliveries_send(now=now) == 0, "while the claim lasts it is somebody's"
    assert deliveries_send(now=now + LEASE) == 1
    assert receiver.ids == [claimed.delivery]


def test_a_worker_killed_after_it_sent_tells_it_twice_and_the_id_says_so(
    receiver: Receiver, chat: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException): ...

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    made(receiver.url)
    now = timezone.now()
    alert = fired(chat, now)
    with monkeypatch.context() as patched:
        patched.setattr(delivery, "delivery_settle", killed)
        with pytest.raises(Killed):
            deliveries_send(now=now)
    deliveries_send(now=now + LEASE)
    assert len(receiver.told) == 2
    assert len(set(receiver.ids)) == 1
    assert alert.events.filter(kind="delivered").count() == 1


def test_what_nobody_takes_for_a_day_is_given_up_and_the_history_says_so(receiver: Receiver, chat: Namespace) -> None:
    receiver.answers = [500]
    made(receiver.url)
    now = timezone.now()
    alert = fired(chat, now)
    deliveries_send(now=now)
    Delivery.objects.update(created_at=now - TRIED_FOR, next_at=now)
    deliveries_send(now=now)
    assert Delivery.objects.get().state == "given_up"
    assert "answered 500" in alert.events.get(kind="not_delivered").words


def test_whoever_is_down_holds_up_nobody_else(receiver: Receiver, chat: Namespace, hosts: Hosts) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    hosts.allow(f"127.0.0.1:{port}")
    made(f"http://127.0.0.1:{port}/")
    made(receiver.url)
    now = timezone.now()
    make_traffic(chat, now, cached=0.1)
    make_traffic(chat.organisation.namespaces.get(slug="default"), now, cached=0.1)
    alerts_evaluate(now=now)
    deliveries_send(now=now)
    assert receiver.events == ["fired", "fired"]
    states = dict(Delivery.objects.order_by().values_list("problem", "attempts"))
    assert states["cannot be reached, or did not answer as HTTP"] == 1


def test_who_accepts_and_is_silent_holds_up_no_other_organisation_and_operators_come_first(
    receiver: Receiver, chat: Namespace, hosts: Hosts
) -> None:
    """Eleven rules of Acme's, all due before everybody else's."""
    other = make_organisation("globex").namespaces.get()
    rules = [customers(chat.organisation, "https://silent.example/") for _ in range(11)]
    rules += [customers(other.organisation, "https://hooks.example/"), made(receiver.url).rule]
    now = timezone.now()
    for place, rule in enumerate(rules):
        queued(rule, now + timedelta(milliseconds=place))
    claimed = [UUID(one.rule) for one in deliveries_claim(now=now + INTERVAL)]
    assert [rules.index(rule) for rule in rules if rule.public_id in claimed] == [0, 1, 11, 12]
    many = [made(receiver.url).rule for _ in range(9)]
    for rule in many:
        queued(rule, now)
    claimed = [UUID(one.rule) for one in deliveries_claim(now=now + INTERVAL)]
    assert len(claimed) == 8
    assert len([rule for rule in many if rule.public_id in claimed]) == 6, "operators' own leave room for others"


def customers(where: Organisation, url: str) -> AlertRule:
    draft = Draft("Cold", "hit_ratio", "below", 0.5, webhook_url=url)
    return rule_create(actor=actor_of(make_key(where)), draft=draft, place=Place(where)).rule


def queued(rule: AlertRule, now: datetime) -> None:
    deliveries_queue([make_alert(rule)], "fired", now=now)


@pytest.mark.django_db(transaction=True)
def test_a_second_round_leaves_it_to_the_first(receiver: Receiver) -> None:
    """So whoever is slow holds up one thread of a worker, and not one more with every round."""
    queued(made(receiver.url).rule, timezone.now())
    later = timezone.now() + LEASE
    with psycopg.connect(os.environ["LUMINET_DATABASE_URL"], dbname=connection.settings_dict["NAME"]) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [delivery.LOCK])
        assert deliveries_send(now=later) == 0
    assert deliveries_send(now=later) == 1


def test_the_end_of_a_deleted_rule_is_told_and_then_it_is_gone(receiver: Receiver, chat: Namespace) -> None:
    rule, now = made(receiver.url).rule, timezone.now()
    alert = fired(chat, now)
    rule_delete(actor=SYSTEM, rule=rule)
    assert list(rules_visible(SYSTEM).filter(built_in="")) == []
    assert alert_view(Alert.objects.get(pk=alert.pk))["rule_id"] is None
    alerts_evaluate(now=now + INTERVAL)
    assert not Alert.objects.filter(state="firing", built_in="").exists()
    housekeeping(now=timezone.now())
    assert AlertRule.objects.filter(pk=rule.pk).exists(), "it is not told yet"
    deliveries_send(now=timezone.now())
    assert receiver.events == ["fired", "resolved"]
    housekeeping(now=timezone.now())
    assert not AlertRule.objects.filter(pk=rule.pk).exists()
    kinds = list(alert.events.order_by("pk").values_list("kind", flat=True))
    assert kinds == ["fired", "resolved", "delivered", "delivered"]


def test_a_receiver_that_never_ends_its_answer_is_left(
    chat: Namespace, hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.alerts.webhooks.ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening:  # takes the connection, and says nothing
        where = f"127.0.0.1:{listening.getsockname()[1]}"
        hosts.allow(where)
        made(f"http://{where}/")
        now = timezone.now()
        fired(chat, now)
        deliveries_send(now=now)
    assert Delivery.objects.get().problem == "did not answer in time"


def test_an_address_that_may_not_be_reached_is_not_reached_though_the_rule_is_there(
    receiver: Receiver, chat: Namespace, hosts: Hosts
) -> None:
    """The operators took the host off their list after the rule was made."""
    made(receiver.url)
    hosts.webhook_hosts = ()
    now = timezone.now()
    fired(chat, now)
    deliveries_send(now=now)
    assert receiver.told == []
    assert "https" in Delivery.objects.get().problem


def test_a_customer_is_told_of_its_own_alone(receiver: Receiver, chat: Namespace) -> None:
    other = make_organisation("globex").namespaces.get()
    key = make_key(chat.organisation)
    draft = Draft("Cold", "hit_ratio", "below", 0.5, for_seconds=0)
    rule = rule_create(actor=actor_of(key), draft=draft, place=Place(chat.organisation)).rule
    rule_update(actor=SYSTEM, rule=rule, changes={"webhook_url": receiver.url})  # where only operators may lead it
    now = timezone.now()
    make_traffic(other, now, cached=0.0)
    fired(chat, now)
    deliveries_send(now=now)
    assert [json.loads(body)["alert"]["place"] for _, body in receiver.told] == ["acme/chat"]
    assert b"globex" not in receiver.told[0][1]
    (seen,) = said(Api(key, Client()).get("/alerts"))["items"]
    assert [one["what"] for one in seen["history"]] == ["fired", "delivered"]


def test_a_webhook_that_is_taken_away_is_told_nothing_more(receiver: Receiver, chat: Namespace) -> None:
    rule, now = made(receiver.url).rule, timezone.now()
    fired(chat, now)
    rule_update(actor=SYSTEM, rule=rule, changes={"webhook_url": ""})
    assert deliveries_send(now=now) == 0
    assert Delivery.objects.get().state == "given_up"


def test_waits_grow_to_a_quarter_of_an_hour() -> None:
    assert [wait_after(count).total_seconds() for count in (1, 2, 3, 7, 8, 1000)] == [10, 20, 40, 640, 900, 900]


def test_beat_asks_for_all_of_it_and_workers_know_it(receiver: Receiver, chat: Namespace) -> None:
    asked = {one["task"] for one in settings.CELERY_BEAT_SCHEDULE.values()}
    assert {task.name for task in (evaluate, deliver, alerts_housekeeping)} <= asked & set(app.tasks)
    made(receiver.url)
    make_traffic(chat, timezone.now(), cached=0.1)
    for task in (evaluate, deliver, alerts_housekeeping):
        task.apply().get()
    assert receiver.events == ["fired"]
