"""What everybody counted is compared, and whoever counted differently is named with the place. Spoilt by hand here."""

import threading
from datetime import UTC, date, datetime, timedelta

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from prometheus_client.registry import REGISTRY

from controlplane.analytics import reconciling
from controlplane.analytics.models import EngineTotal, LedgerEntry, Reconciliation, RefusedRow
from controlplane.analytics.partitions import partition_name, partitions, partitions_ensure
from controlplane.analytics.reconciliations import (
    MOST_KEPT,
    differences_measure,
    differences_now,
    reconciliation_keep,
    reconciliation_run,
)
from controlplane.analytics.reconciling import Counted, Difference, Found, reconcile, reconciled
from controlplane.analytics.retention import retain
from tests.database.factories import make_namespace
from tests.usage.reconciled import ALL_NAMESPACES, counted, minute_add, rolled, series_make
from tests.web.api import Api, make_organisation, said

pytestmark = pytest.mark.django_db
NOON = datetime(2031, 5, 4, 12, 0, tzinfo=UTC)
YESTERDAY = NOON - timedelta(days=1)


@pytest.fixture(autouse=True)
def _days(db: None) -> None:
    """These and no others: what is missed depends on the oldest day, and other files' tests may have left some."""
    minutes_forget()
    partitions_ensure((NOON - timedelta(days=ago)).date() for ago in range(3))


def only() -> Difference:
    (found,) = reconcile(NOON)
    return found


def minutes_forget() -> None:
    """After a test with transactions of its own only what Django manages is truncated."""
    with connection.cursor() as cursor:
        for day in partitions():
            cursor.execute(f"DROP TABLE {partition_name(day)}")


def test_where_everybody_agrees_there_is_no_difference_and_something_was_compared() -> None:
    counted("agent-1", 7, NOON)
    counted("agent-2", 7, YESTERDAY)
    rolled(300, NOON, 7, requests=1, prompt=100, cached=60)
    rolled(300, NOON, ALL_NAMESPACES, requests=1, prompt=100, cached=60)
    rolled(60, NOON, ALL_NAMESPACES, requests=1, prompt=100, cached=60)
    found = reconciled(NOON)
    assert found.differences == []
    assert found.compared == {"engine and ledger": 2, "ledger and minutes": 2, "minutes and pieces": 3}


def test_a_lost_ledger_row_is_told_by_the_engine_and_by_the_minutes() -> None:
    counted("agent-1", 7, NOON, boot="b1")
    counted("agent-1", 8, NOON, boot="b1")
    LedgerEntry.objects.filter(namespace_id=7).delete()
    engine, minutes = sorted(reconcile(NOON), key=lambda one: one.between)
    assert (engine.between, engine.agent, engine.namespace_id, engine.boot) == ("engine and ledger", "agent-1", 7, "b1")
    assert engine.difference == Counted(1, 100, 60)
    assert (minutes.between, minutes.agent, minutes.namespace_id) == ("ledger and minutes", "agent-1", 7)
    assert (minutes.day, minutes.difference) == (NOON.date(), Counted(-1, -100, -60))


def test_a_minute_that_was_changed_is_named_with_its_agent_namespace_and_day() -> None:
    namespace = make_namespace(make_organisation("acme"), "chat")
    counted("agent-1", namespace.pk, NOON)
    counted("agent-2", namespace.pk, NOON)
    minute_add(series_make("agent-2", namespace.pk), NOON, 0, 0, -1)
    found = only()
    assert found.sides == (Counted(1, 100, 60), Counted(1, 100, 59))
    assert (found.difference, found.tokens) == (Counted(0, 0, 1), 1)
    assert found.place == "agent-2, acme/chat, 2031-05-04"


def test_a_minute_nobody_reported_is_a_difference() -> None:
    minute_add(series_make("agent-1", 7), YESTERDAY, 1, 10, 0)
    assert (only().day, only().difference) == (YESTERDAY.date(), Counted(-1, -10, 0))


def test_blocks_are_no_requests() -> None:
    minute_add(series_make("agent-1", 7, kind="cache"), NOON, 5, 5, 5)
    assert reconcile(NOON) == []


@pytest.mark.parametrize("kind", ["probe", "pin"])
def test_what_counts_in_no_customers_numbers_is_compared_too(kind: str) -> None:
    minute_add(series_make("agent-1", 7, kind=kind), NOON, 1, 10, 0)
    assert only().between == "ledger and minutes"


@pytest.mark.parametrize("level", [300, 3600, 86_400])
def test_a_wrong_piece_of_every_level_is_named_with_its_level_and_start(level: int) -> None:
    counted("agent-1", 7, NOON)
    counted("agent-2", 7, NOON + timedelta(minutes=1))
    start = NOON.replace(hour=0) if level == 86_400 else NOON
    piece = rolled(level, start, 7, requests=2, prompt=200, cached=120)
    rolled(level, start, ALL_NAMESPACES, requests=2, prompt=200, cached=120)
    assert reconcile(NOON) == []
    piece.prompt_tokens = 190
    piece.save()
    found = only()
    assert (found.between, found.level, found.start, found.namespace_id) == ("minutes and pieces", level, start, 7)
    assert found.difference == Counted(0, 10, 0)


def test_of_the_least_level_there_are_pieces_of_the_fleet_alone() -> None:
    counted("agent-1", 7, NOON)
    rolled(60, NOON, ALL_NAMESPACES, requests=1, prompt=99, cached=60)
    assert (only().namespace_id, only().difference) == (0, Counted(0, 1, 0))
    assert only().place == "the fleet, 60 s from 2031-05-04 12:00 UTC"


def test_a_piece_that_is_missing_is_a_difference_and_one_that_does_not_count_is_none() -> None:
    counted("agent-1", 7, NOON)
    rolled(300, NOON - timedelta(minutes=5), 7, requests=0, prompt=0, cached=0)
    rolled(300, NOON, ALL_NAMESPACES, requests=1, prompt=100, cached=60)
    assert (only().namespace_id, only().sides) == (7, (Counted(1, 100, 60), Counted()))
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM analytics_rolled")
    assert reconcile(NOON) == []


def test_days_whose_minutes_are_gone_are_not_missed() -> None:
    old = NOON - timedelta(days=9)
    LedgerEntry.objects.create(day=old.date(), agent="agent-1", boot="b0", namespace_id=7, requests=1, prompt_tokens=9)
    rolled(86_400, old.replace(hour=0), 7, requests=1, prompt=9, cached=0)
    assert reconcile(NOON) == []


def test_a_day_of_minutes_that_is_lost_between_others_is_missed() -> None:
    counted("agent-1", 7, YESTERDAY - timedelta(days=1))
    counted("agent-1", 7, YESTERDAY)
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE {partition_name(YESTERDAY.date())}")
    assert (only().day, only().sides) == (YESTERDAY.date(), (Counted(1, 100, 60), Counted()))


@pytest.mark.django_db(transaction=True)
def test_a_day_cannot_go_while_it_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[str] = []

    def drop() -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = 50")
                cursor.execute(f"DROP TABLE {partition_name(NOON.date())}")
        except OperationalError as error:
            refused.append(str(error))
        finally:
            connection.close()

    def partitions_while_one_would_go() -> list[date]:
        days = partitions()
        dropping = threading.Thread(target=drop)
        dropping.start()
        dropping.join()
        return days

    monkeypatch.setattr(reconciling, "partitions", partitions_while_one_would_go)
    counted("agent-1", 7, NOON)
    try:
        assert reconcile(NOON) == []
        assert "lock timeout" in refused[0]
    finally:
        minutes_forget()


def test_two_boots_of_an_engine_are_compared_each_for_itself() -> None:
    counted("agent-1", 7, NOON, boot="b1")
    counted("agent-1", 7, NOON, boot="b2")
    EngineTotal.objects.filter(boot="b1").update(requests=2)
    EngineTotal.objects.filter(boot="b2").update(requests=0)
    assert [(one.boot, one.difference.requests) for one in reconcile(NOON)] == [("b1", 1), ("b2", -1)]


def test_the_ledger_of_an_engine_that_still_counts_stays_however_old_it_is() -> None:
    for boot in ("b1", "b2"):
        counted("agent-1", 7, NOON - timedelta(days=1), boot=boot)
    EngineTotal.objects.filter(boot="b1").update(at=NOON + timedelta(days=50))
    retain(NOON + timedelta(days=50))
    retain(NOON + timedelta(days=50))
    assert list(LedgerEntry.objects.values_list("boot", flat=True)) == ["b1"]
    assert [one for one in reconcile(NOON) if one.between == "engine and ledger"] == []


def refuse(agent: str, namespace: str, *, boot: str = "b1", field: str = "minute", **counts: int) -> None:
    told = {"namespace": namespace, "counts": counts, "boot": boot}
    RefusedRow.objects.create(agent=agent, report=4, row=0, field=field, problem="is 48 h old", told=told, at=NOON)


def test_refused_rows_explain_what_is_missing_by_name() -> None:
    counted("agent-1", 7, NOON)
    EngineTotal.objects.update(requests=3, prompt_tokens=150, cached_tokens=70)
    refuse("agent-1", "7", requests=1, prompt_tokens=30, cached_tokens=10)
    refuse("agent-1", "7", requests=1, prompt_tokens=20)
    refuse("agent-2", "7", requests=9)
    found = only()
    assert found.refused is not None
    assert (found.refused.rows, found.refused.why) == (2, ("minute: is 48 h old",))
    assert found.refused.told == found.difference == Counted(2, 50, 10)
    assert found.is_explained


def test_refused_rows_that_come_to_something_else_explain_nothing() -> None:
    counted("agent-1", 7, NOON)
    EngineTotal.objects.update(prompt_tokens=150)
    refuse("agent-1", "7", requests=1, prompt_tokens=49)
    refuse("agent-1", "no number", prompt_tokens=1)
    assert (only().refused is not None, only().is_explained) == (True, False)


@pytest.mark.parametrize(
    ("difference", "field"), [(50, "minute"), (50, "namespace"), (50, "counts"), (-50, "minute"), (2**41, "minute")]
)
def test_only_what_could_have_been_counted_explains(difference: int, field: str) -> None:
    counted("agent-1", 7, NOON)
    EngineTotal.objects.update(prompt_tokens=100 + difference)
    refuse("agent-1", "7", field=field, prompt_tokens=difference)
    assert only().is_explained == (difference == 50 and field != "counts")


def test_one_refused_row_explains_no_two_boots() -> None:
    for boot in ("b1", "b2"):
        counted("agent-1", 7, NOON, boot=boot)
    EngineTotal.objects.update(prompt_tokens=150)
    refuse("agent-1", "7", boot="b2", prompt_tokens=50)
    assert {one.boot: one.is_explained for one in reconcile(NOON)} == {"b1": False, "b2": True}


def test_records_that_a_journal_lost_are_named_beside_what_is_missing_of_that_boot() -> None:
    for boot in ("b1", "b2"):
        counted("agent-1", 7, NOON, boot=boot)
    EngineTotal.objects.update(prompt_tokens=150)
    told = {"boot": "b2", "upto": 40}
    RefusedRow.objects.create(agent="agent-1", report=4, row=-1, field="lost", problem="3 records", told=told, at=NOON)
    first, second = reconcile(NOON)
    assert (first.boot, first.refused) == ("b1", None)
    assert second.refused is not None
    assert (second.boot, second.refused.why, second.is_explained) == ("b2", ("lost: 3 records",), False)


def test_however_much_there_is_it_is_asked_by_the_same_number_of_queries() -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as asked:
            reconcile(NOON)
        return len(asked)

    counted("agent-1", 7, NOON)
    EngineTotal.objects.update(requests=0)
    few = queries()
    for number in range(30):
        counted(f"agent-{number}", number + 8, NOON)
    EngineTotal.objects.update(requests=0)
    assert queries() == few


@pytest.mark.django_db(transaction=True)
def test_reports_that_are_being_taken_in_never_show_as_a_difference() -> None:
    stop, written = threading.Event(), [0]

    def take_in() -> None:
        try:
            while not stop.is_set():
                counted("agent-1", 7, NOON + timedelta(seconds=written[0]))
                written[0] += 1
        finally:
            connection.close()

    busy = threading.Thread(target=take_in)
    busy.start()
    try:
        seen: set[int] = set()
        while len(seen) < 20 and busy.is_alive():
            found = reconciled(NOON)
            assert found.differences == []
            seen.add(written[0])
    finally:
        stop.set()
        busy.join()
        minutes_forget()
    assert len(seen) == 20


# What becomes of it


def test_the_newest_result_is_kept_and_an_older_one_does_not_replace_it() -> None:
    counted("agent-1", 7, NOON)
    EngineTotal.objects.update(requests=2)
    assert differences_now() == []
    assert reconciliation_run(now=NOON)
    EngineTotal.objects.update(requests=1)
    reconciliation_keep(Found(NOON - timedelta(minutes=1), {}, []), took_seconds=1)
    assert [one["place"] for one in differences_now()] == ["agent-1, namespace 7, boot b1"]
    assert reconciliation_run(now=NOON + timedelta(minutes=1))
    assert differences_now() == []
    assert Reconciliation.objects.count() == 1


def test_a_database_that_took_long_is_left_alone_for_ten_times_as_long() -> None:
    reconciliation_keep(Found(NOON, {}, []), took_seconds=30)
    assert not reconciliation_run(now=NOON + timedelta(seconds=299))
    assert reconciliation_run(now=NOON + timedelta(seconds=301))


def test_a_clock_that_was_set_back_keeps_nobody_from_comparing() -> None:
    """The last result is then of a time that is still to come."""
    reconciliation_keep(Found(NOON + timedelta(hours=1), {}, []), took_seconds=30)
    assert reconciliation_run(now=NOON)
    assert Reconciliation.objects.get().at == NOON


def test_of_very_many_differences_the_largest_are_kept_and_all_are_in_the_totals() -> None:
    many = [
        Difference("engine and ledger", number, (Counted(prompt_tokens=number), Counted()), agent="agent-1", boot="b1")
        for number in range(MOST_KEPT + 50, 0, -1)
    ]
    reconciliation_keep(Found(NOON, {"engine and ledger": 900}, many), took_seconds=0.1)
    kept, totals = differences_now(), Reconciliation.objects.get().totals["engine and ledger"]
    assert (len(kept), kept[0]["tokens"]) == (MOST_KEPT, MOST_KEPT + 50)
    assert (totals["differences"], totals["tokens"]) == (MOST_KEPT + 50, sum(range(MOST_KEPT + 51)))


def test_the_metric_says_by_how_many_tokens_and_between_whom() -> None:
    def tokens(between: str) -> float | None:
        return REGISTRY.get_sample_value("luminet_reconciliation_difference_tokens", {"between": between})

    counted("agent-1", 7, NOON)
    EngineTotal.objects.update(prompt_tokens=77)
    reconciliation_run(now=NOON)
    differences_measure()
    assert (tokens("engine and ledger"), tokens("ledger and minutes")) == (23, 0)


def test_operators_read_what_was_found(operator: Api) -> None:
    assert said(operator.get("/fleet/reconciliation")) == {
        "as_of": None, "took_seconds": None, "is_reconciled": None, "compared": {}, "totals": {}, "differences": [],
    }  # fmt: skip
    counted("agent-1", 7, NOON)
    LedgerEntry.objects.update(requests=2)
    reconciliation_run(now=NOON)
    found = said(operator.get("/fleet/reconciliation"))
    assert (found["is_reconciled"], found["as_of"]) == (False, "2031-05-04T12:00:00Z")
    assert found["compared"] == {"engine and ledger": 1, "ledger and minutes": 1, "minutes and pieces": 0}
    one = next(one for one in found["differences"] if one["between"] == "engine and ledger")
    assert one["sides"] == {
        "engine": {"requests": 1, "prompt_tokens": 100, "cached_tokens": 60},
        "ledger": {"requests": 2, "prompt_tokens": 100, "cached_tokens": 60},
    }
    assert one["difference"] == {"requests": -1, "prompt_tokens": 0, "cached_tokens": 0}
