"""The trail: every write, in order and without gaps; what was done to it afterwards shows; no secret is in it."""

import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, transaction
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tenants.actor import SYSTEM
from tenants.audit import GENESIS, audit_lines, audit_verify, audited, head_text
from tenants.errors import TenantsError
from tenants.levels import FLEET, Place
from tenants.models import AuditHead, AuditRecord, NamespaceKey
from tenants.services import members
from tenants.services.groups import group_create
from tenants.services.members import member_link, member_remove
from tenants.services.namespace_keys import key_open
from tenants.services.namespaces import namespace_delete, namespace_update
from tenants.services.operations import purge
from tenants.services.organisations import organisation_delete, organisation_update
from tenants.services.people import password_change
from tests.database.factories import make_group, make_namespace, make_operator, make_pin, publish
from tests.support.threads import at_once, failures
from tests.web.api import Api, make_key, make_operator_token, make_organisation, said

pytestmark = pytest.mark.django_db
at_once_on_the_database = pytest.mark.django_db(transaction=True)
AS_OWNER = "ALTER TABLE tenants_auditrecord DISABLE TRIGGER USER"  # as whoever has the database's own password can


WORDS = ("actor_kind", "actor_id", "actor_name", "verb", "target", "before", "after", "address", "request_id")


def record(*names: str) -> None:
    for name in names:
        with audited() as journal:
            journal.record(SYSTEM, "test.deed", name)


def targets() -> list[str]:
    return list(AuditRecord.objects.order_by("seq").values_list("target", flat=True))


def sequence() -> list[int]:
    return list(AuditRecord.objects.order_by("seq").values_list("seq", flat=True))


def tampered(*statements: str) -> str | None:
    """What is found after somebody with the database's own password was at it."""
    record("one", "two", "three", "four")
    assert audit_verify().problem is None
    with connection.cursor() as cursor:
        cursor.execute(AS_OWNER)
        for statement in statements:
            cursor.execute(statement)
    return audit_verify().problem


# In order, without gaps


def test_an_empty_trail_is_sound() -> None:
    verdict = audit_verify()
    assert (verdict.is_sound, verdict.records, verdict.head) == (True, 0, head_text(0, GENESIS))


def test_records_are_numbered_from_one_and_chained() -> None:
    record("a", "b", "c")
    assert (sequence(), targets()) == ([1, 2, 3], ["a", "b", "c"])
    verdict = audit_verify()
    head = AuditHead.objects.get()
    assert (verdict.is_sound, verdict.records) == (True, 3)
    assert verdict.head == head_text(3, bytes(head.hash))


def test_what_fails_leaves_no_record_and_no_gap() -> None:
    record("a")
    with suppress(RuntimeError), audited() as journal:
        journal.record(SYSTEM, "test.deed", "lost")
        raise RuntimeError
    record("b")
    assert (sequence(), targets(), audit_verify().is_sound) == ([1, 2], ["a", "b"], True)


def test_a_part_that_fails_takes_its_own_records_along_and_no_others() -> None:
    with audited() as outer:
        outer.record(SYSTEM, "test.deed", "before")
        with suppress(RuntimeError), audited() as inner:
            inner.record(SYSTEM, "test.deed", "lost")
            group_create(actor=SYSTEM, slug="lost", name="Lost")
            raise RuntimeError
        group_create(actor=SYSTEM, slug="kept", name="Kept")
        outer.record(SYSTEM, "test.deed", "after")
    assert targets() == ["before", "group kept", "after"]
    assert [one.slug for one in apps.get_model("tenants", "AgentGroup").objects.all()] == ["kept"]
    assert audit_verify().is_sound


def test_a_part_that_succeeds_goes_with_the_whole_that_fails() -> None:
    with suppress(RuntimeError), audited():
        record("inner")
        raise RuntimeError
    assert targets() == []


def test_a_deed_refused_inside_another_leaves_the_other_going() -> None:
    make_organisation()
    with audited():
        with pytest.raises(TenantsError):
            make_organisation()
        make_organisation("globex")
    assert targets() == ["acme", "acme/default", "globex", "globex/default"]


def test_text_of_any_language_is_kept_letter_by_letter() -> None:
    with audited() as journal:
        journal.record(SYSTEM, "test.deed", "t", before={"é": "名前\x00\ud800"}, after=[1.5, None, True])
    found = AuditRecord.objects.get()
    assert json.loads(found.before) == {"é": "名前\x00\ud800"}
    assert found.after == "[1.5,null,true]"
    assert audit_verify().is_sound


def test_the_export_is_one_line_of_json_a_record_oldest_first() -> None:
    made = make_organisation()
    lines = [json.loads(line) for line in audit_lines()]
    assert [one["seq"] for one in lines] == [1, 2]
    assert lines[0]["organisation_id"] == made.pk
    assert lines[0]["hash"] == bytes(AuditRecord.objects.get(seq=1).hash).hex()


def test_a_long_trail_is_read_a_page_at_a_time(monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any) -> None:
    """For one cursor over all of it the database would first set the whole trail aside."""
    monkeypatch.setattr("tenants.audit.PAGE", 3)
    record(*"abcdefgh")
    pages: list[int] = []
    with django_assert_num_queries(4), CaptureQueriesContext(connection) as asked:
        assert [json.loads(one)["target"] for one in audit_lines(seen=pages.append)] == list("abcdefgh")
    assert (pages, ["CURSOR" in one["sql"] for one in asked]) == ([3, 3, 2], [False] * 4)
    verdict = audit_verify(seen=pages.append)
    assert (verdict.is_sound, verdict.records, pages[3:]) == (True, 8, [3, 3, 2])


# What was done to it afterwards


@pytest.mark.parametrize("column", WORDS)
def test_a_changed_word_is_found_wherever_it_is(column: str) -> None:
    problem = tampered(f"UPDATE tenants_auditrecord SET {column} = {column} || ' ' WHERE seq = 2")
    assert problem == "record 2 was changed"


@pytest.mark.parametrize(
    "change",
    [
        "at = at + interval '1 microsecond'",
        "organisation_id = 7",
        r"hash = '\x00'",
        "hash = (SELECT hash FROM tenants_auditrecord WHERE seq = 3)",
    ],
)
def test_a_changed_moment_owner_or_hash_is_found(change: str) -> None:
    assert tampered(f"UPDATE tenants_auditrecord SET {change} WHERE seq = 2") == "record 2 was changed"


@pytest.mark.parametrize(
    ("which", "problem"),
    [
        ("seq = 1", "record 1 is missing"),
        ("seq = 3", "record 3 is missing"),
        ("seq = 4", "record 4 is missing"),
        ("seq IN (2, 3)", "records 2 to 3 are missing"),
        ("true", "records 1 to 4 are missing"),
    ],
)
def test_deleted_records_are_named(which: str, problem: str) -> None:
    assert tampered(f"DELETE FROM tenants_auditrecord WHERE {which}") == problem


def test_two_records_that_changed_places_are_found() -> None:
    problem = tampered(
        "UPDATE tenants_auditrecord SET seq = 99 WHERE seq = 2",
        "UPDATE tenants_auditrecord SET seq = 2 WHERE seq = 3",
        "UPDATE tenants_auditrecord SET seq = 3 WHERE seq = 99",
    )
    assert problem == "record 2 was changed"


COLUMNS = f"at, {', '.join(WORDS)}, hash"
COPY = (
    f"INSERT INTO tenants_auditrecord (seq, {COLUMNS}) SELECT {{seq}}, {COLUMNS} FROM tenants_auditrecord WHERE seq = 4"
)


@pytest.mark.parametrize(
    ("seq", "problem"),
    [
        (5, "the head of the trail is behind record 5"),
        (0, "record 0 was inserted: numbers begin at 1"),
        (-3, "record -3 was inserted: numbers begin at 1"),
    ],
)
def test_an_inserted_record_is_found(seq: int, problem: str) -> None:
    assert tampered(COPY.format(seq=seq)) == problem


def test_a_record_inserted_with_the_head_moved_along_is_found() -> None:
    moved = "UPDATE tenants_audithead SET seq = 5, hash = (SELECT hash FROM tenants_auditrecord WHERE seq = 5)"
    assert tampered(COPY.format(seq=5), moved) == "record 5 was changed"


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DELETE FROM tenants_audithead", "the head of the trail is behind record 4"),
        (r"UPDATE tenants_audithead SET hash = '\x00'", "the head of the trail was changed"),
        ("UPDATE tenants_audithead SET seq = 9", "records 5 to 9 are missing"),
        ("UPDATE tenants_audithead SET seq = 3, hash = (SELECT hash FROM tenants_auditrecord WHERE seq = 3)",
         "the head of the trail is behind record 4"),
    ],
)  # fmt: skip
def test_a_head_that_does_not_fit_is_found(statement: str, problem: str) -> None:
    assert tampered(statement) == problem


ROLLED_BACK = (
    "DELETE FROM tenants_auditrecord WHERE seq = 4",
    "UPDATE tenants_audithead SET seq = 3, hash = (SELECT hash FROM tenants_auditrecord WHERE seq = 3)",
)


def test_a_remembered_head_that_is_part_of_the_trail_is_fine_however_old() -> None:
    heads = [audit_verify().head]
    for name in "abc":
        record(name)
        heads.append(audit_verify().head)
    assert [audit_verify(remembered_head=head).problem for head in heads] == [None] * 4


def test_a_tail_cut_off_with_its_head_shows_to_who_remembers_the_head() -> None:
    record("one", "two", "three", "four")
    remembered = audit_verify().head
    with connection.cursor() as cursor:
        cursor.execute(AS_OWNER)
        for statement in ROLLED_BACK:
            cursor.execute(statement)
    assert audit_verify().problem is None  # to who remembers nothing
    problem = audit_verify(remembered_head=remembered).problem
    assert problem == f"the remembered head {remembered} is not part of this trail: its end was cut off or rewritten"


def test_a_chain_made_without_our_secret_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    record("one")
    monkeypatch.setattr("tenants.audit.purpose_key", lambda secret, purpose: b"a guess")
    assert audit_verify().problem == "record 1 was changed"
    monkeypatch.undo()
    assert audit_verify().is_sound


# What the database itself refuses


def refused(statement: str) -> str:
    with pytest.raises(IntegrityError) as caught, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    return str(caught.value).partition("\n")[0]


@pytest.mark.parametrize("table", ["tenants_auditrecord", "tenants_policyrevision"])
def test_neither_the_trail_nor_revisions_can_be_changed_or_deleted(table: str) -> None:
    publish(FLEET, ttl_seconds=60)
    column = "verb" if table.endswith("record") else "note"
    assert refused(f"UPDATE {table} SET {column} = 'x'") == f"{table} is append-only: UPDATE refused"
    assert refused(f"DELETE FROM {table}") == f"{table} is append-only: DELETE refused"


def test_leave_to_remove_covers_deleting_revisions_and_nothing_else() -> None:
    publish(FLEET, ttl_seconds=60)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL luminet.removing = 'yes'")
    assert "UPDATE refused" in refused("UPDATE tenants_policyrevision SET note = 'x'")
    assert "DELETE refused" in refused("DELETE FROM tenants_auditrecord")
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM tenants_policyrevision")


@pytest.mark.parametrize("table", ["tenants_auditrecord", "tenants_policyrevision"])
def test_neither_can_be_truncated(table: str) -> None:
    assert refused(f"TRUNCATE {table} CASCADE") == f"{table} is append-only: TRUNCATE refused"


# At the same moment


@at_once_on_the_database
def test_records_written_at_once_are_without_gaps_and_sound() -> None:
    outcomes = at_once(*[lambda n=n: record(*(f"{n}.{i}" for i in range(10))) for n in range(4)])
    assert failures(outcomes) == []
    assert sequence() == list(range(1, 41))
    assert audit_verify().is_sound


@at_once_on_the_database
def test_the_trail_is_in_the_order_of_commits() -> None:
    """A reader who has seen a number never finds a smaller one later."""
    seen: list[list[int]] = []

    def read() -> None:
        for _ in range(30):
            seen.append(sequence())

    assert failures(at_once(lambda: record(*"abcdefghij"), lambda: record(*"abcdefghij"), read)) == []
    assert all(found == list(range(1, len(found) + 1)) for found in seen)


@at_once_on_the_database
def test_verifying_while_others_write_finds_nothing_wrong() -> None:
    def verify() -> list[str | None]:
        return [audit_verify().problem for _ in range(15)]

    outcomes = at_once(verify, verify, lambda: record(*"abcdefghijklmno"), lambda: record(*"abcdefghijklmno"))
    assert outcomes[:2] == [[None] * 15] * 2


# Secrets


@pytest.fixture
def _all_of_the_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, logger="luminet.web"):
        yield


def secrets_used() -> dict[str, str]:
    """One of each kind, used as in life: by REST where it can be."""
    operator = Api(make_operator_token(make_operator(), "admin"), Client())
    made = make_organisation("acme", "chat")
    chat = made.namespaces.get(slug="chat")
    acme = Api(make_key(made, "admin"), Client())
    key = said(acme.post("/orgs/acme/keys", {"name": "x", "scopes": ["infer"]}, Idempotency_Key="k-1"))["secret"]
    invited = said(acme.post("/orgs/acme/members", {"email": "kim@acme.example", "role": "viewer"}))
    invitation = invited["invitation_url"].rpartition("/")[2]
    Client().get(f"/invitation/{invitation}")
    user = members.invitation_accept(
        secret=invitation, password="a fine new password", address="192.0.2.1", now=timezone.now()
    )
    reset = said(operator.post(f"/orgs/acme/members/{invited['id']}/link"))["url"].rpartition("/")[2]
    Client().get(f"/reset/{reset}")
    password_change(user=user, current="a fine new password", new="another fine password")
    make_pin(chat, content="what nobody may read")
    row = NamespaceKey.objects.get(namespace=chat)
    assert row.sealed is not None
    opened = key_open(chat.pk, row.epoch, row.sealed)
    acme.post("/orgs/acme/keys", {"name": key, "scopes": ["nonsense " + key]})  # refused, and quoted nowhere
    Api(key[:-1] + "x", Client()).get("/orgs")
    return {
        "operator's token": str(operator.token),
        "key": str(acme.token),
        "new key": key,
        "invitation": invitation,
        "reset link": reset,
        "password": "a fine new password",
        "changed password": "another fine password",
        "pin": "what nobody may read",
        "namespace key": opened.hex(),
    }


def tables() -> list[type[Model]]:
    return list(apps.get_app_config("tenants").get_models())


def everything_stored() -> str:
    rows = (row for model in tables() for row in model._base_manager.values_list())
    return "\n".join(repr([*map(_readable, row)]) for row in rows)


def _readable(value: object) -> object:
    """Bytes both ways: as hex, and as far as they are text."""
    if not isinstance(value, bytes | memoryview):
        return value
    return bytes(value).hex(), bytes(value).decode("utf-8", "replace")


@pytest.mark.usefixtures("_all_of_the_log")
def test_no_secret_is_in_the_trail_the_log_a_repr_or_any_table(caplog: pytest.LogCaptureFixture) -> None:
    secrets = secrets_used()
    trail = "\n".join(audit_lines())
    log = "\n".join(repr(vars(one)) + one.getMessage() for one in caplog.records)
    reprs = "\n".join(repr(one) for model in tables() for one in model._base_manager.all())
    stored = everything_stored()
    assert "/invitation/…" in log
    for name, secret in secrets.items():
        for where, text in (("trail", trail), ("log", log), ("repr", reprs), ("table", stored)):
            assert secret not in text, f"{name} in {where}"


def test_a_person_of_the_organisation_reads_no_operators_name(acme: Api) -> None:
    operator = Api(make_operator_token(make_operator()), Client())
    operator.patch("/orgs/acme", {"name": "Renamed"}, seen=1)
    operator.put("/orgs/acme/policy", {"policy": {}}, seen=0)
    operator.post("/orgs/acme/keys", {"name": "x", "scopes": ["infer"]})
    for path in ("/audit", "/orgs/acme/keys", "/orgs/acme/policy/revisions"):
        answer = acme.get(path)
        assert answer.status_code == 200
        assert "operator@luminet.example" not in answer.content.decode(), path


def test_every_verb_of_the_day_is_recorded_for_its_organisation() -> None:
    made, group = make_organisation(), make_group()
    chat = make_namespace(made)
    publish(Place(made, chat), ttl_seconds=60)
    namespace_update(actor=SYSTEM, namespace=chat, expected=None, group=group)
    purge(actor=SYSTEM, organisation=made, include_pins=True)
    make_key(made)
    member, _ = members.member_invite(actor=SYSTEM, organisation=made, email="kim@acme.example", role="viewer")
    member_link(actor=SYSTEM, member=member)
    member_remove(actor=SYSTEM, member=member)
    namespace_delete(actor=SYSTEM, namespace=chat, expected=None)
    organisation_update(actor=SYSTEM, organisation=made, expected=None, state="suspended")
    organisation_delete(actor=SYSTEM, organisation=made, expected=None)
    assert list(AuditRecord.objects.filter(organisation_id=made.pk).order_by("seq").values_list("verb", flat=True)) == [
        *("organisation.create", "namespace.create", "namespace.create", "policy.publish", "namespace.update"),
        *("cache.purge", "key.create", "member.invite", "member.invite-again", "member.remove"),
        *("namespace.delete", "organisation.update", "organisation.delete"),
    ]
