"""What a write keeps of where it came from, whatever the proxy in front says; and values no column takes."""

import logging
from typing import Any

import pytest
from django.db import connection, transaction

from tenants.models import AuditRecord, Organisation
from tests.web.api import Api, said

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("shown", "kept"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2:3:4:5:6"),  # all of it, unlike where attempts are counted
        ("unknown", ""),
        ("x" * 5000, ""),
        ("", ""),
    ],
)
def test_a_write_keeps_the_address_it_came_from_and_works_where_there_is_none(
    operator: Api, shown: str, kept: str
) -> None:
    operator.client.defaults["REMOTE_ADDR"] = shown
    assert operator.post("/orgs", {"slug": "acme", "name": "Acme"}).status_code == 201
    assert AuditRecord.objects.latest("seq").address == kept


def test_a_value_no_column_takes_is_the_callers_fault_and_in_the_log(
    operator: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def overflow(**_: Any) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("INSERT INTO tenants_organisation (slug) VALUES (%s)", ["x" * 64])

    monkeypatch.setattr("tenants.services.organisations.organisation_create", overflow)
    with caplog.at_level(logging.ERROR):
        answer = operator.post("/orgs", {"slug": "acme", "name": "Acme"})
    assert (answer.status_code, said(answer)["errors"][0]["field"]) == (422, "request")
    assert "too long" in said(answer)["detail"]
    assert "a value does not fit its column" in caplog.text
    assert not Organisation.objects.exists()
