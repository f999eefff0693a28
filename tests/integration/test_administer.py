"""What is done beside the database: tokens, links, the trail, a new master key."""

import dataclasses
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client

from controlplane import administer
from tenants.actor import SYSTEM
from tenants.crypto import Unreadable, _aeads, is_sealed_anew, purpose_key
from tenants.models import AuditRecord, NamespaceKey
from tenants.services.master_key import master_key_rotate
from tenants.services.namespace_keys import key_open
from tenants.services.pins import pin_content, pin_create
from tests.api import Api, make_organisation
from tests.factories import make_operator, make_user

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
