"""What is done beside the database: tokens, links, the trail, a new master key."""

import dataclasses
import json
import os
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings
from django.db import OperationalError, connection
from django.test import Client
from django.utils import timezone

from controlplane.commands import administer
from tenants.actor import SYSTEM
from tenants.audit import audit_verify
from tenants.crypto import Unreadable, _aeads, is_sealed_anew, purpose_key
from tenants.errors import LinkSpent
from tenants.models import AuditRecord, Member, NamespaceKey, User
from tenants.services.master_key import master_key_rotate
from tenants.services.members import invitation_accept, member_invite, reset_accept, reset_link
from tenants.services.namespace_keys import key_open
from tenants.services.people import sign_in
from tenants.services.pins import pin_content, pin_create
from tests.database.factories import PASSWORD, make_operator, make_user
from tests.web.api import Api, make_organisation

pytestmark = pytest.mark.django_db


@pytest.fixture
def master_keys(settings: Any) -> Iterator[Any]:
    """Sets today's and the last master key, as a restart with other variables would."""

    def forget() -> None:
        purpose_key.cache_clear()
        _aeads.cache_clear()

    def become(now: bytes, before: bytes | None) -> None:
        old = settings.ENVIRONMENT
        secrets = dataclasses.replace(old.secrets, master_key=now, previous_master_key=before)
        settings.ENVIRONMENT = dataclasses.replace(old, secrets=secrets)
        forget()

    forget()
    yield become
    forget()


def opened(key: NamespaceKey) -> bytes:
    assert key.sealed is not None
    return key_open(key.namespace_id, key.epoch, key.sealed)


def test_an_operators_token_is_printed_once_and_works(capsys: pytest.CaptureFixture[str]) -> None:
    make_operator()
    assert administer.operator_token("Operator@luminet.example", name="pipeline", scopes=["policy:read"]) == 0
    whoami = json.loads(Api(capsys.readouterr().out.strip(), Client()).get("/whoami").content)
    assert whoami["scopes"] == ["policy:read"]


def test_only_operators_get_operator_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    make_user()
    assert administer.operator_token("someone@acme.example", name="x", scopes=[]) == 1
    assert "no active operator" in capsys.readouterr().err


def test_what_is_printed_for_programs_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    email = make_operator().email

    def printed(status: int) -> dict[str, Any]:
        assert status == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    token = printed(administer.operator_token(email, name="ci", scopes=["policy:read"], as_json=True))
    assert (token["email"], token["name"], token["scopes"]) == (email, "ci", ["policy:read"])
    assert Api(token["secret"], Client()).get("/whoami").status_code == 200
    link = printed(administer.password_reset_link(email, as_json=True))
    assert (link["email"], "/reset/" in link["url"], link["expires_at"][-1]) == (email, True, "Z")
    assert printed(administer.rotate_master_key(as_json=True)) == {"encrypted_anew": 0}
    verdict = printed(administer.audit_check(None, as_json=True))
    assert (verdict["sound"], verdict["problem"]) == (True, None)
    assert verdict["head"].startswith(f"{verdict['records']}:")
    assert administer.audit_check("7:00", as_json=True) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["sound"], "is not part of this trail" in found["problem"]) == (False, True)


# Operators


def created(capsys: pytest.CaptureFixture[str], email: str = "New-Operator@luminet.example") -> tuple[str, str]:
    """The password that was printed, and what was said beside it."""
    capsys.readouterr()
    assert administer.create_operator(email, takes_over=True) == 0
    printed = capsys.readouterr()
    said = json.loads(printed.out)
    assert said["email"] == email.lower()
    return said["password"], printed.err


def test_an_operator_is_created_with_the_password_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    password, said = created(capsys)
    user = User.objects.get()
    assert (user.is_operator, user.check_password(password), said) == (True, True, "")


def test_who_is_an_operator_already_stays_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    operator = make_operator()
    assert administer.create_operator(operator.email) == 1
    assert "already has an account" in capsys.readouterr().err
    assert User.objects.get().check_password(PASSWORD)


@pytest.mark.parametrize("email", ["", "ops", "a b@luminet.example"])
def test_what_is_no_address_becomes_no_operator(capsys: pytest.CaptureFixture[str], email: str) -> None:
    assert administer.create_operator(email) == 1
    assert "is not an e-mail address" in capsys.readouterr().err


def squat(slug: str, role: str) -> Member:
    """As an organisation's admin can: an account of any address, by an invitation they open themselves."""
    organisation = make_organisation(slug)
    email = "new-operator@luminet.example"
    _, link = member_invite(actor=SYSTEM, organisation=organisation, email=email, role=role)
    user = invitation_accept(secret=link.secret, password=PASSWORD, address="192.0.2.66", now=timezone.now())
    return Member.objects.get(user=user, organisation=organisation)


def test_an_account_made_by_somebody_else_is_taken_over_with_nothing_of_theirs_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    user = squat("globex", "viewer").user
    squat("acme", "admin")
    assert user
    elsewhere, link = Client(), reset_link(actor=SYSTEM, user=user)
    elsewhere.force_login(user)
    password, said = created(capsys)
    user.refresh_from_db()
    assert (user.is_operator, user.is_active, user.check_password(password)) == (True, True, True)
    assert elsewhere.get("/").status_code == 302
    with pytest.raises(LinkSpent):
        reset_accept(secret=link.secret, password="a fine new password", address="", now=timezone.now())
    assert not Member.objects.exists()
    assert "new-operator@luminet.example had an account" in said
    assert "no member any more of: globex, acme" in said
    verbs = list(AuditRecord.objects.order_by("-seq").values_list("verb", "organisation_id")[:3])
    assert [verb for verb, _ in verbs] == ["operator.take-over", "member.remove", "member.remove"]
    assert None not in [organisation for _, organisation in verbs[1:]]
    assert audit_verify().is_sound


def test_a_closed_account_is_open_once_it_is_an_operators(capsys: pytest.CaptureFixture[str]) -> None:
    make_user(email="new-operator@luminet.example", is_active=False)
    password, _ = created(capsys)
    assert sign_in(email="new-operator@luminet.example", password=password, address="", now=timezone.now()).is_operator


# Links, the trail


def test_a_reset_link_is_for_accounts_alone(capsys: pytest.CaptureFixture[str]) -> None:
    make_user()
    assert administer.password_reset_link("someone@acme.example") == 0
    assert capsys.readouterr().out.startswith(f"{settings.ENVIRONMENT.base_url}/reset/")
    assert administer.password_reset_link("nobody@acme.example") == 1


def test_a_sound_trail_is_called_so_and_a_changed_record_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    make_organisation()
    assert administer.audit_check(None) == 0
    head = capsys.readouterr().out.splitlines()[1].removeprefix("head ")
    assert administer.audit_check(head) == 0
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE tenants_auditrecord DISABLE TRIGGER audit_is_append_only")
        AuditRecord.objects.filter(seq=2).update(target="globex")
    assert administer.audit_check(None) == 1
    assert "record 2 was changed" in capsys.readouterr().err


def test_the_trail_is_exported_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    make_organisation()
    administer.audit_export()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[0]["verb"] == "organisation.create"


def test_how_far_it_has_come_is_told_to_who_waits_at_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_organisation()
    monkeypatch.setattr("controlplane.client.asking.QUIET_SECONDS", 0.0)
    monkeypatch.setattr("controlplane.client.asking.STEP_SECONDS", 0.01)

    def slowly(*_: Any) -> bytes:
        time.sleep(0.1)
        return b""

    monkeypatch.setattr("tenants.audit.record_hash", slowly)
    administer.audit_check(None)
    assert "records …" not in capsys.readouterr().err
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    administer.audit_check(None)
    assert "2 records … 0 s" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["audit_check", "audit_export", "create_operator", "password_reset_link"])
def test_a_database_that_stops_answering_is_told_in_a_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OperationalError("canceling statement due to statement timeout\nCONTEXT: …")

    for name in ("audit_verify", "audit_lines", "operator_create", "User"):
        monkeypatch.setattr(
            administer, name, fail if name != "User" else SimpleNamespace(objects=SimpleNamespace(filter=fail))
        )
    arguments = [] if command == "audit_export" else ["x@luminet.example"]
    assert getattr(administer, command)(*arguments) == 1
    said = capsys.readouterr().err
    assert said == "the database does not answer: canceling statement due to statement timeout\n"


def test_a_new_master_key_reads_what_the_last_one_sealed_and_after_rotation_needs_it_no_more(master_keys: Any) -> None:
    first, second = settings.ENVIRONMENT.secrets.master_key, os.urandom(32)
    namespace = make_organisation().namespaces.get()
    key = namespace.keys.get()
    pin = pin_create(actor=SYSTEM, namespace=namespace, name="p", model="m", content_kind="prompt", content="Hello")
    secret = opened(key)
    master_keys(second, first)
    assert opened(key) == secret
    assert master_key_rotate() == 2
    assert master_key_rotate() == 0
    master_keys(second, None)
    key.refresh_from_db()
    pin.refresh_from_db()
    assert opened(key) == secret
    assert pin_content(pin) == "Hello"
    assert key.sealed is not None
    assert is_sealed_anew(key.sealed)


def test_without_the_last_master_key_nothing_of_it_can_be_read(master_keys: Any) -> None:
    key = make_organisation().namespaces.get().keys.get()
    master_keys(os.urandom(32), None)
    with pytest.raises(Unreadable):
        opened(key)


def test_nobody_s_account_is_taken_over_unasked(capsys: pytest.CaptureFixture[str]) -> None:
    user = make_user(email="someone@acme.example")
    assert administer.create_operator(user.email) == 1
    assert "--take-over" in capsys.readouterr().err
    user.refresh_from_db()
    assert not user.is_operator
