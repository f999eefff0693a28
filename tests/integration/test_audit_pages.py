"""The audit trail in a browser: found, compared, proven whole, and taken along. For operators alone."""

import csv
import html
import io
import json
import re
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tenants.actor import SYSTEM
from tenants.audit import audit_lines, audit_verify, audited
from tenants.models import AuditRecord, Organisation
from tests.web.api import make_organisation
from tests.web.pages import words

pytestmark = pytest.mark.django_db
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def acme(operator_client: Client) -> Organisation:
    found = make_organisation("acme", "chat")
    note("ttl.test", before={"ttl_seconds": 300}, after={"ttl_seconds": 600}, organisation=found)
    return found


def note(verb: str, target: str = "acme/chat", **more: Any) -> None:
    with audited() as journal:
        journal.record(SYSTEM, verb, target, **more)


def get(client: Client, **query: Any) -> str:
    answer = client.get("/audit", query)
    assert answer.status_code == 200, answer.content
    return words(answer)


def exported(client: Client, **query: str) -> str:
    answer = client.get("/audit/export", query)
    assert answer.status_code == 200
    assert answer.streaming

    async def whole() -> bytes:
        return b"".join([part async for part in answer])  # type: ignore[attr-defined]

    return async_to_sync(whole)().decode()


def test_a_record_shows_what_was_and_what_became_of_it(operator_client: Client, acme: Organisation) -> None:
    told = get(operator_client)
    assert "ttl_seconds was 300 → became 600" in told
    assert f"{AuditRecord.objects.count()} things were done on this installation" in told


def test_newest_come_first_and_older_ones_a_page_later(operator_client: Client, acme: Organisation) -> None:
    for number in range(60):
        note("many.test", f"target-{number:02}.")
    first = operator_client.get("/audit", {"verb": "many.test"})
    seen = re.findall(r"target-\d\d\.", first.content.decode())
    assert seen == [f"target-{number:02}." for number in range(59, 9, -1)]
    found = re.search(r'href="([^"]+)" rel="next"', first.content.decode())
    assert found
    second = operator_client.get(html.unescape(found[1])).content.decode()
    assert re.findall(r"target-\d\d\.", second) == [f"target-{number:02}." for number in range(9, -1, -1)]
    assert 'rel="next"' not in second


def test_each_filter_holds_back_what_does_not_fit(operator_client: Client, acme: Organisation) -> None:
    note("lonely.test", "globex/other")
    day = f"{AuditRecord.objects.latest('pk').at:%Y-%m-%d}"
    fits = {"verb": "lonely.test", "find": "globex/other", "who": "luminet", "since": day, "until": day}
    told = get(operator_client, **fits)
    assert "1 record fits" in told
    assert "globex/other" in told
    for name, value in {
        "verb": "other.test",
        "find": "nothing-like-it",
        "who": "nobody",
        "since": "9998-01-01",
    }.items():
        more = {"until": ""} if name == "since" else {}
        assert "No record fits" in get(operator_client, **{**fits, name: value, **more}), name
    assert "No record fits" in get(operator_client, **{**fits, "since": "", "until": "2020-01-01"})
    assert "No record fits" in get(operator_client, **fits, org="acme")
    assert "ttl.test" in get(operator_client, org="acme")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"since": "yesterday"}, "From (UTC): “yesterday” is no day, as 2026-11-24."),
        ({"until": "2026-02-30"}, "To, inclusive (UTC): “2026-02-30” is no day"),
        ({"since": "2026-02-02", "until": "2026-02-01"}, "To: 2026-02-01 is before 2026-02-02"),
        ({"org": "nobody"}, "Organisation: there is none with the slug “nobody”."),
        ({"find": "x" * 500}, "Text: “xxxxxxxxxxxxxxxxxxxx…” has 500 characters; 100 are the most."),
    ],
)
def test_what_cannot_be_is_named_and_kept(
    operator_client: Client, acme: Organisation, query: dict[str, str], said: str
) -> None:
    answer = operator_client.get("/audit", query)
    assert answer.status_code == 422
    assert said in words(answer)
    for typed in query.values():
        assert f'value="{typed}"' in answer.content.decode()
    assert operator_client.get("/audit/export", query).status_code == 422


@pytest.mark.parametrize("field", ["verb", "who", "org", "since", "until", "find", "before"])
def test_hostile_text_is_shown_as_text(operator_client: Client, acme: Organisation, field: str) -> None:
    note("ttl.test", HOSTILE, after={"note": HOSTILE})
    page = operator_client.get("/audit", {field: f"{HOSTILE}\0"}).content.decode()
    assert HOSTILE not in page
    assert HOSTILE not in operator_client.get("/audit").content.decode()
    assert html.escape(HOSTILE) in operator_client.get("/audit").content.decode()


def test_a_whole_chain_is_said_to_be_whole_with_its_head(operator_client: Client, acme: Organisation) -> None:
    verdict = audit_verify()
    told = words(operator_client.post("/audit", {"head": ""}))
    assert f"The chain is whole: {verdict.records} records, each as it was written." in told
    assert verdict.head in told
    note("ttl.test")
    told = words(operator_client.post("/audit", {"head": verdict.head}))
    assert "and the head you gave is part of it" in told


def test_the_first_break_is_named(operator_client: Client, acme: Organisation) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE tenants_auditrecord DISABLE TRIGGER USER")
        cursor.execute("UPDATE tenants_auditrecord SET target = 'else' WHERE seq = 2")
    told = words(operator_client.post("/audit", {}))
    assert "The chain is broken: record 2 was changed. 1 record before it is as written." in told


def test_a_head_that_is_none_of_this_trail_shows(operator_client: Client, acme: Organisation) -> None:
    assert "its end was cut off" in words(operator_client.post("/audit", {"head": f"99:{'0' * 64}"}))
    answer = operator_client.post("/audit", {"head": HOSTILE})
    assert answer.status_code == 422
    assert "is no head of a trail" in words(answer)
    assert HOSTILE not in answer.content.decode()


def test_the_export_is_what_the_command_line_exports(operator_client: Client, acme: Organisation) -> None:
    assert exported(operator_client) == "".join(f"{line}\n" for line in audit_lines())


def test_what_is_exported_is_what_was_found(operator_client: Client, acme: Organisation) -> None:
    lines = exported(operator_client, verb="ttl.test").splitlines()
    assert [json.loads(one)["after"] for one in lines] == [{"ttl_seconds": 600}]


def test_csv_has_a_row_for_each_record_and_no_formulas(operator_client: Client, acme: Organisation) -> None:
    note("ttl.test", "=cmd()")
    rows = list(csv.DictReader(io.StringIO(exported(operator_client, format="csv"))))
    assert [int(one["seq"]) for one in rows] == list(range(1, AuditRecord.objects.count() + 1))
    assert rows[-1]["target"] == "'=cmd()"
    assert next(one["after"] for one in rows if one["verb"] == "ttl.test") == '{"ttl_seconds": 600}'


def test_an_export_never_holds_more_than_a_page(operator_client: Client, acme: Organisation) -> None:
    """600 records are read as two chunks of lines, and what was not asked for is not read."""
    for number in range(600):
        note("many.test", f"t{number}")
    answer = operator_client.get("/audit/export", {"verb": "many.test"})

    async def chunks() -> list[int]:
        return [part.count(b"\n") async for part in answer]  # type: ignore[attr-defined]

    assert async_to_sync(chunks)() == [500, 100]


def test_customers_find_nothing_here(customer_client: Client) -> None:
    assert customer_client.get("/audit").status_code == 404
    assert customer_client.post("/audit", {}).status_code == 404
    assert customer_client.get("/audit/export").status_code == 404


def test_however_many_records_there_are_the_queries_stay_the_same(operator_client: Client, acme: Organisation) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as found:
            get(operator_client)
        return len(found)

    few = queries()
    for _ in range(30):
        note("many.test")
    assert queries() == few
