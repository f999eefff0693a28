"""How to get hits, and a test request: in whose name it goes, what of it stays, and what it shows."""

import html
from collections.abc import Iterator

import pytest
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.dashboard.experiments import start
from controlplane.fleet.models import Agent
from tenants.actor import SYSTEM
from tenants.models import ApiKey, AuditRecord, Organisation
from tenants.services.organisations import organisation_update
from tests.database.factories import make_agent, make_namespace
from tests.gateway.stand_in_gateway import StandIn, stand_in_gateway
from tests.web.api import make_key, make_organisation
from tests.web.pages import join, words

pytestmark = pytest.mark.django_db
PAGE = "/orgs/acme/start"


@pytest.fixture
def gateway() -> Iterator[StandIn]:
    with stand_in_gateway() as found:
        made = make_agent("gateway-1", kind="gateway", address=found.address)
        Agent.objects.filter(pk=made.pk).update(last_seen_at=timezone.now())
        yield found


@pytest.fixture
def acme(customer_client: Client) -> Organisation:
    return make_organisation("acme", "chat")


def send(client: Client, **more: str) -> HttpResponse:
    return client.post(PAGE, {"namespace": "default", **more})  # type: ignore[return-value]


def living_keys() -> list[str]:
    return list(ApiKey.objects.filter(revoked_at=None).values_list("name", flat=True))


def test_snippets_name_the_gateway_and_the_prefix_of_a_key_and_never_a_secret(
    customer_client: Client, acme: Organisation, gateway: StandIn
) -> None:
    join(acme, "admin")
    make_agent("agent-1")
    secret = make_key(acme, "infer")
    page = customer_client.get(PAGE)
    said = words(page)
    prefix = ApiKey.objects.get().prefix
    assert said.count(f"{gateway.address}/v1") == 3
    assert said.count(f"{prefix}…") == 3
    assert secret not in page.content.decode()
    assert 'model="m"' in said
    for language in ("python", "javascript", "curl"):
        assert f'<details class="data" id="{language}"' in page.content.decode()


@pytest.mark.parametrize("role", ["viewer", "editor"])
def test_who_may_not_manage_keys_sees_no_prefix_and_is_asked_for_a_key(
    customer_client: Client, acme: Organisation, gateway: StandIn, role: str
) -> None:
    join(acme, role)
    make_key(acme, "infer")
    page = customer_client.get(PAGE).content.decode()
    assert ApiKey.objects.get().prefix not in page
    assert 'type="password" name="key"' in page


def test_a_test_goes_twice_with_a_key_that_is_gone_afterwards(
    customer_client: Client, acme: Organisation, gateway: StandIn
) -> None:
    join(acme, "admin")
    gateway.unknown_keys = 2
    answer = send(customer_client, namespace="chat", gateway="http://127.0.0.1:1", address="http://127.0.0.1:1")
    said = words(answer)
    assert answer.status_code == 200
    assert "The same prompt twice: 0.0 %, then 99.0 % came from the cache" in said
    assert "x-luminet-cached-tokens: 1584" in said
    (first, body, namespace), (second, again, _) = gateway.asked
    assert (first, body, namespace) == (second, again, "chat")
    assert first not in answer.content.decode()
    assert living_keys() == []
    made = ApiKey.objects.get()
    assert (made.name, made.scopes) == ("test request", ["infer"])
    assert made.expires_at is not None
    assert 0 < (made.expires_at - made.created_at).total_seconds() <= 301
    assert list(
        AuditRecord.objects.filter(verb__startswith="key.").order_by("pk").values_list("verb", "actor_name")
    ) == [
        ("key.create", "someone@acme.example"),
        ("key.revoke", "someone@acme.example"),
    ]


def test_an_operator_tests_in_an_organisations_name(operator_client: Client, gateway: StandIn) -> None:
    make_organisation("acme")
    assert send(operator_client).status_code == 200
    assert len(gateway.asked) == 2
    assert living_keys() == []


def test_a_gateway_that_breaks_is_told_of_and_leaves_no_key(
    customer_client: Client, acme: Organisation, gateway: StandIn
) -> None:
    join(acme, "admin")
    gateway.breaks_at = 2
    answer = send(customer_client)
    assert answer.status_code == 502
    assert "The gateway answers 500: <script>broken</script>" in words(answer)
    assert b"<script>broken" not in answer.content
    assert living_keys() == []


def test_where_no_gateway_is_no_key_is_made(customer_client: Client, acme: Organisation) -> None:
    join(acme, "admin")
    answer = send(customer_client)
    assert answer.status_code == 502
    assert "No gateway has joined this fleet yet" in words(answer)
    assert not ApiKey.objects.exists()


def test_leftovers_of_a_process_that_died_are_revoked(
    customer_client: Client, acme: Organisation, gateway: StandIn
) -> None:
    join(acme, "admin")
    make_key(acme, "infer")
    make_key(acme, "infer")
    ApiKey.objects.filter(pk=ApiKey.objects.order_by("created_at")[0].pk).update(
        name="test request", expires_at=timezone.now()
    )
    send(customer_client)
    assert living_keys() == ["test"]


def test_a_pasted_key_is_used_and_not_shown(customer_client: Client, acme: Organisation, gateway: StandIn) -> None:
    join(acme, "editor")
    secret = make_key(acme, "infer")
    answer = send(customer_client, key=secret)
    assert answer.status_code == 200
    assert [key for key, _, _ in gateway.asked] == [secret, secret]
    assert secret not in answer.content.decode()
    assert not AuditRecord.objects.filter(actor_name="someone@acme.example").exists()


def test_a_key_that_is_not_this_organisations_is_sent_nowhere(
    customer_client: Client, acme: Organisation, gateway: StandIn
) -> None:
    join(acme, "viewer")
    for secret in (make_key(make_organisation("globex"), "infer"), "lmk_nonsense", "<script>x</script>", "ключ"):
        answer = send(customer_client, key=secret)
        assert answer.status_code == 502
        assert "This is no key of this organisation" in words(answer)
        assert secret not in html.unescape(answer.content.decode())
    assert gateway.asked == []


@pytest.mark.parametrize(("key", "problem"), [("", "This field is required"), ("k" * 201, "at most 200 characters")])
def test_an_empty_and_a_huge_key_are_refused_beside_their_field(
    customer_client: Client, acme: Organisation, gateway: StandIn, key: str, problem: str
) -> None:
    join(acme, "editor")
    answer = send(customer_client, key=key)
    assert answer.status_code == 422
    assert problem in words(answer)
    assert 'aria-invalid="true"' in answer.content.decode()
    assert gateway.asked == []


@pytest.mark.parametrize("namespace", ["", "elsewhere", "<script>alert(1)</script>", "n" * 10_000])
def test_a_namespace_that_is_not_there_is_refused_and_shown_as_text(
    customer_client: Client, acme: Organisation, gateway: StandIn, namespace: str
) -> None:
    join(acme, "admin")
    answer = send(customer_client, namespace=namespace)
    assert answer.status_code == 422
    assert b"<script>alert" not in answer.content
    assert not ApiKey.objects.exists()
    assert gateway.asked == []


def test_a_suspended_organisation_sends_nothing(customer_client: Client, acme: Organisation, gateway: StandIn) -> None:
    join(acme, "admin")
    organisation_update(actor=SYSTEM, organisation=acme, expected=None, state="suspended")
    answer = send(customer_client)
    assert answer.status_code == 502
    assert "is suspended" in words(answer)
    assert gateway.asked == []


def test_more_tests_than_threads_can_be_spared_for_wait(
    customer_client: Client, acme: Organisation, gateway: StandIn
) -> None:
    join(acme, "admin")
    for _ in range(start.AT_ONCE):
        assert start._places.acquire(blocking=False)
    try:
        answer = send(customer_client)
    finally:
        start._places.release(start.AT_ONCE)
    assert "tests are running right now" in words(answer)
    assert gateway.asked == []
    assert send(customer_client).status_code == 200


def test_the_number_of_queries_does_not_grow_with_namespaces(
    customer_client: Client, acme: Organisation, gateway: StandIn
) -> None:
    join(acme, "admin")

    def asked() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert customer_client.get(PAGE).status_code == 200
        return len(queries)

    asked()
    few = asked()
    for number in range(12):
        make_namespace(acme, f"more-{number}")
    assert asked() == few
