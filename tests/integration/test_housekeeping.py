"""What goes by itself, when, and that nothing of it holds up the rest."""

from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.utils import timezone

from tenants.actor import SYSTEM
from tenants.models import IdempotentRequest, NamespaceKey, Operation, Organisation, SignInAttempt
from tenants.services import housekeeping as services
from tenants.services.housekeeping import ERASED_KEYS_KEPT, OPERATIONS_KEPT, housekeeping, rows_remove
from tenants.services.namespaces import default_group
from tenants.services.operations import operation_begin, purge
from tenants.services.organisations import organisation_delete
from tenants.tasks import housekeeping as task
from tests.database.factories import make_agent
from tests.web.api import make_organisation

pytestmark = pytest.mark.django_db
MOMENT = timedelta(minutes=1)


def attempts(count: int, at: datetime) -> None:
    SignInAttempt.objects.bulk_create(SignInAttempt(email_hash=b"x", address="192.0.2.1", at=at) for _ in range(count))


def purged() -> Operation:
    return purge(actor=SYSTEM, organisation=make_organisation())


def test_an_operation_that_ended_is_kept_for_ninety_days() -> None:
    purged()
    assert (housekeeping(now=timezone.now() + OPERATIONS_KEPT - MOMENT), Operation.objects.count()) == (0, 1)
    housekeeping(now=timezone.now() + OPERATIONS_KEPT + MOMENT)
    assert not Operation.objects.exists()


def test_an_operation_that_runs_stays_however_old() -> None:
    make_agent("agent-1")
    long_ago = timezone.now() - timedelta(days=999)
    operation_begin(actor=SYSTEM, kind="purge", scope="acme", now=long_ago, group_ids=(default_group().pk,))
    housekeeping(now=timezone.now())
    assert Operation.objects.get().state == "running"


def test_an_erased_key_is_forgotten_after_ninety_days_and_the_living_one_never() -> None:
    purged()
    housekeeping(now=timezone.now() + ERASED_KEYS_KEPT - MOMENT)
    assert NamespaceKey.objects.count() == 2
    housekeeping(now=timezone.now() + ERASED_KEYS_KEPT + MOMENT)
    assert NamespaceKey.objects.get().epoch == 2


def test_rows_go_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "BATCH", 3)
    now = timezone.now()
    attempts(8, now - timedelta(days=1))
    attempts(2, now)
    assert (housekeeping(now=now), SignInAttempt.objects.count()) == (8, 2)


def test_what_does_not_fit_into_the_time_there_is_goes_with_the_next_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "BATCH", 3)
    attempts(7, timezone.now())
    assert [rows_remove(SignInAttempt.objects.all(), seconds=0) for _ in range(4)] == [3, 3, 1, 0]


@pytest.mark.parametrize("failing", ["rows_remove", "remains_remove"])
def test_a_part_that_fails_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failing: str
) -> None:
    working = rows_remove

    def fail(*rows: object) -> int:
        if rows and getattr(rows[0], "model", None) is not SignInAttempt:
            return working(*rows)  # type: ignore[arg-type]
        raise RuntimeError("canceling statement due to statement timeout")

    organisation_delete(actor=SYSTEM, organisation=make_organisation(), expected=None)
    long_ago = timezone.now() - timedelta(days=2)
    attempts(1, long_ago)
    IdempotentRequest.objects.create(caller="c", key="k", fingerprint=b"f", created_at=long_ago)
    monkeypatch.setattr(services, failing, fail)
    task()
    left = (SignInAttempt.objects.count(), IdempotentRequest.objects.count(), Organisation.objects.count())
    assert left == ((1, 0, 0) if failing == "rows_remove" else (0, 0, 1))
    assert "housekeeping left something undone" in caplog.text


def plan(query: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")  # of a table this small all is read, given the choice
        cursor.execute(f"EXPLAIN {query}")
        return "\n".join(row[0] for row in cursor.fetchall())


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (
            "SELECT organisation_id FROM tenants_operation WHERE kind = 'purge' AND state = 'running'",
            "operations_that_run",
        ),
        ("SELECT id FROM tenants_operation WHERE finished_at < now()", "operations_that_ended"),
        ("SELECT id FROM tenants_namespacekey WHERE retired_at < now()", "erased_keys"),
    ],
)
def test_the_sweep_reads_what_it_looks_for_and_not_whole_tables(query: str, index: str) -> None:
    assert f"using {index} " in plan(query) or f"on {index} " in plan(query)
