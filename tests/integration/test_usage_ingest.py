"""Reports of usage on the real PostgreSQL: whatever comes twice, split, late, wrong or cut short is counted once."""

import gzip
import random
import re
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client import REGISTRY

from controlplane.alerts.measuring import measured
from controlplane.alerts.subjects import living
from controlplane.analytics import ingest
from controlplane.analytics.columns import BLOCK_COLUMNS, CACHE_KIND
from controlplane.analytics.ingest import usage_store
from controlplane.analytics.models import (
    EngineTotal,
    JournalRead,
    LedgerEntry,
    PoolMinute,
    RefusedRow,
    Residence,
    ReuseCurve,
    Rolled,
    Series,
)
from controlplane.analytics.notices import CHANNEL
from controlplane.analytics.partitions import partition_name, partitions, partitions_ensure
from controlplane.analytics.reconciling import reconcile
from controlplane.analytics.series import SERIES_FIND
from controlplane.analytics.stats import live_message, stats_answer
from controlplane.analytics.sums import Scope
from controlplane.fleet.models import Agent
from controlplane.fleet.recording import batches_store
from engine_agent.contracts.usage import Row, row_document
from engine_agent.contracts.wire import MOST_BATCH_BYTES, Batch, Report, batch_decode, batch_encode
from tenants.models import Namespace, Organisation
from tests.database.factories import make_agent, make_group, make_namespace
from tests.fleet.doors import Sender, door, sender, senders
from tests.support.threads import at_once, failures
from tests.usage.agents import Whose, minute_of, row_of, rows_by_chance
from tests.usage.sums import minutes_forget, minutes_sums, store, sums_of, usage_report
from tests.web.api import make_organisation

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _minutes(transactional_db: None) -> Iterator[None]:
    minutes_forget()  # also those of other files
    yield
    minutes_forget()


@pytest.fixture(autouse=True)
async def _connections_end(transactional_db: None) -> AsyncIterator[None]:
    """Those that tests open in asgiref's thread."""
    yield
    await sync_to_async(lambda: connection.close())()


def place(slug: str = "acme") -> tuple[Namespace, Whose]:
    namespace = make_namespace(make_organisation(slug), "chat-2")
    return namespace, Whose(str(namespace.organisation_id), str(namespace.pk))


def some_rows(of: Whose, count: int = 20, *, seed: int = 1, minutes: int = 30) -> list[Row]:
    now = minute_of(timezone.now().timestamp())
    return rows_by_chance(random.Random(seed), [of], count, minutes=range(now - minutes * 60, now + 1, 60))


def batch(*reports: Report, first: int = 1, spool: str = "spool-1") -> Batch:
    return Batch(0.0, spool, first, reports, None)


def stored(agent: str, one: Batch) -> Any:
    return batches_store({agent: one}, now=timezone.now(), usage=usage_store)[agent]


def parts(rows: list[Row], size: int) -> list[Report]:
    return [usage_report(rows[at : at + size]) for at in range(0, len(rows), size)]


# Exactly once


def test_the_same_report_five_times_is_counted_once() -> None:
    _, whose = place()
    agent, rows = make_agent().pk, some_rows(whose)
    for _ in range(5):
        assert stored(agent, batch(usage_report(rows))).intake.arrival.acknowledged == 1
    assert minutes_sums() == sums_of(rows)


def test_split_and_overlapping_batches_are_counted_once() -> None:
    _, whose = place()
    agent, rows = make_agent().pk, some_rows(whose)
    reports = parts(rows, 4)
    for first, last in ((1, 2), (1, 4), (2, 3), (4, 5), (5, 5), (1, 5)):
        stored(agent, batch(*reports[first - 1 : last], first=first))
    assert minutes_sums() == sums_of(rows)


def test_rows_come_in_any_order_and_land_in_their_minutes() -> None:
    namespace, whose = place()
    agent, rows = make_agent().pk, some_rows(whose, 25)
    random.Random(2).shuffle(rows)
    for number, row in enumerate(rows, 1):
        stored(agent, batch(usage_report([row]), first=number))
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM minute)::bigint, prompt_tokens FROM analytics_minute ORDER BY 1")
        found = cursor.fetchall()
    assert found == sorted((row.minute, row.counts["prompt_tokens"]) for row in rows)
    assert minutes_sums(namespace.pk) == sums_of(rows)


def test_two_processes_that_store_the_same_batch_at_once_count_it_once() -> None:
    _, whose = place()
    agent, rows = make_agent().pk, some_rows(whose)
    outcomes = at_once(*[lambda: stored(agent, batch(usage_report(rows)))] * 4)
    assert failures(outcomes) == []
    assert minutes_sums() == sums_of(rows)


def test_many_agents_told_at_once_by_several_processes_come_to_their_sum() -> None:
    _, whose = place()
    agents = [make_agent(f"agent-{number}").pk for number in range(6)]
    rows = {agent: some_rows(whose, 10, seed=number) for number, agent in enumerate(agents)}

    def all_told(order: list[str], first: int) -> Any:
        told = {agent: batch(usage_report(rows[agent]), first=first) for agent in order}
        return batches_store(told, now=timezone.now(), usage=usage_store)

    for first in (1, 2, 3):
        deeds = [lambda one=one, first=first: all_told(one, first) for one in (agents[:4], agents[2:], agents[::-1])]
        assert failures(at_once(*deeds)) == []
    assert minutes_sums() == sums_of([row for some in rows.values() for row in some * 3])


def test_rows_of_one_series_and_minute_add_up_and_their_times_stay_few() -> None:
    _, whose = place()
    row = Row(minute_of(timezone.now().timestamp()), whose.organisation, whose.namespace, "m", "fp8", "customer")
    rows = [Row(**{**_fields(row), "counts": {"requests": 1}, "times": {number % 7: 1, 9: 2}}) for number in range(700)]
    for part in parts(rows, 50):
        store(part)
    assert minutes_sums() == sums_of(rows)
    with connection.cursor() as cursor:
        cursor.execute("SELECT cardinality(times) FROM analytics_minute")
        ((length,),) = cursor.fetchall()
    assert length <= 600


def _fields(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in Row.__slots__}


def test_nothing_is_counted_of_a_transaction_that_is_rolled_back() -> None:
    _, whose = place()
    agent, rows = make_agent().pk, some_rows(whose)

    def fails(*_: Any) -> Any:
        usage_store(*_)
        raise ValueError("the last moment")

    with pytest.raises(ValueError, match="the last moment"):
        batches_store({agent: batch(usage_report(rows))}, now=timezone.now(), usage=fails)
    assert (minutes_sums(), Series.objects.count(), LedgerEntry.objects.count()) == ({}, 0, 0)
    assert Agent.objects.get().spool_number == 0
    stored(agent, batch(usage_report(rows)))
    assert minutes_sums() == sums_of(rows)


def test_a_connection_that_is_killed_in_the_middle_leaves_nothing_behind() -> None:
    _, whose = place()
    agent, rows = make_agent().pk, some_rows(whose)

    def killed(told: Any, now: Any) -> Any:
        usage_store(told, now)
        pid = connection.connection.info.backend_pid
        with psycopg.connect(connection.connection.info.dsn, password=connection.settings_dict["PASSWORD"]) as other:
            assert other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid]).fetchone() == (True,)
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")

    with pytest.raises(OperationalError):
        batches_store({agent: batch(usage_report(rows))}, now=timezone.now(), usage=killed)
    connection.close()
    assert minutes_sums() == {}
    stored(agent, batch(usage_report(rows)))
    assert minutes_sums() == sums_of(rows)


# Partitions


def test_a_missing_partition_is_made_and_the_rows_are_there() -> None:
    _, whose = place()
    now = timezone.now()
    days = [now, now - timedelta(days=1)]
    rows = [row_of(whose, at=day.timestamp()) for day in days]
    assert partitions() == []
    store(usage_report(rows))
    assert partitions() == sorted(day.date() for day in days)
    assert minutes_sums() == sums_of(rows)


def test_two_processes_that_miss_the_same_partition_both_get_it() -> None:
    _, whose = place()
    rows = {f"agent-{number}": [row_of(whose)] for number in range(4)}
    outcomes = at_once(*(partial(store, usage_report(rows[one]), agent=one) for one in rows))
    assert failures(outcomes) == []
    assert minutes_sums() == sums_of([row for some in rows.values() for row in some])


def test_a_table_that_was_made_and_never_attached_is_taken() -> None:
    day = timezone.now().date()
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {partition_name(day)} (LIKE analytics_minute INCLUDING ALL)")
    assert partitions_ensure([day]) == [day]
    assert partitions_ensure([day]) == []


# What is refused


def test_a_bad_row_is_refused_by_name_and_the_rest_of_the_batch_is_kept() -> None:
    namespace, whose = place()
    other, _ = place("globex")
    good, now = row_of(whose), timezone.now().timestamp()
    bad: list[Any] = [
        row_document(row_of(whose, prompt_tokens=-1)),
        row_document(row_of(whose, at=now - 49 * 3_600)),
        row_document(row_of(whose, at=now + 49 * 3_600)),
        row_document(row_of(Whose(whose.organisation, "999999"))),
        row_document(row_of(Whose(whose.organisation, str(other.pk)))),
        row_document(good) | {"times": [[10**9, 1]]},
        "no row at all",
    ]
    refused = store(usage_report([good]), usage_report([*bad, good]))
    assert [(one["report"], one["row"], one["field"]) for one in refused] == [
        (2, 0, "counts.prompt_tokens"),
        (2, 1, "minute"),
        (2, 2, "minute"),
        (2, 3, "namespace"),
        (2, 4, "organisation"),
        (2, 5, "times.0.0"),
        (2, 6, "row"),
    ]
    assert minutes_sums(namespace.pk) == sums_of([good, good])
    kept = RefusedRow.objects.order_by("pk").values_list("agent", "report", "row", "field")
    assert list(kept) == [("agent-1", 2, one["row"], one["field"]) for one in refused]
    told = RefusedRow.objects.order_by("pk").first()
    assert told is not None
    assert told.told["counts"]["prompt_tokens"] == -1


def test_of_refused_rows_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "MOST_REFUSED_TOLD", 3)
    for number in range(3):
        assert len(store(usage_report(["bad"] * (number + 2)), agent="agent-1")) == min(number + 2, 3)
    store(usage_report(["bad"]), agent="agent-2")
    assert RefusedRow.objects.filter(agent="agent-1").count() == 3
    assert RefusedRow.objects.filter(agent="agent-2").count() == 1


def test_a_namespace_that_was_deleted_is_known_and_one_that_is_gone_too_if_it_was_counted() -> None:
    namespace, whose = place()
    Namespace.objects.filter(pk=namespace.pk).update(deleted_at=timezone.now())
    assert not store(usage_report([row_of(whose)]))
    Namespace.objects.filter(pk=namespace.pk).delete()
    assert not store(usage_report([row_of(whose)]))
    assert minutes_sums(namespace.pk)["requests"] == 2


def test_numbers_without_end_are_counted_up_to_a_bound_and_break_nothing() -> None:
    _, whose = place()
    absurd = [row_of(whose, prompt_tokens=2**40, cached_tokens=2**40)] * 500
    for _ in range(2):
        store(usage_report(absurd))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE analytics_minute SET prompt_tokens = %s", [2**63 - 1])
    assert not store(usage_report(absurd))
    assert minutes_sums()["prompt_tokens"] == 2**61 + 500 * 2**40


def test_of_the_fleets_own_series_nobody_may_tell() -> None:
    """There is one of it as soon as anything was rolled up; its number is no namespace."""
    _, whose = place()
    rows = some_rows(whose)
    store(usage_report(rows))
    Series.objects.create(agent="", organisation_id=0, namespace_id=0, model="m", kv_dtype="fp8", kind="customer")
    (refused,) = store(usage_report([row_of(Whose("0", "0"))], totals={}), agent="evil")
    assert refused["field"] == "namespace"
    assert minutes_sums() == sums_of(rows)


def test_an_agent_may_tell_of_namespaces_of_its_group_and_of_those_it_served_before_they_moved() -> None:
    mine, whose = place()
    agent, other = make_agent(), make_group("other")
    theirs = make_namespace(make_organisation("globex"), group=other)
    foreign = Whose(str(theirs.organisation_id), str(theirs.pk))
    assert not store(usage_report([row_of(whose)]), agent=agent.pk)
    Namespace.objects.filter(pk=mine.pk).update(group=other)
    told = [row_of(whose), row_of(foreign, prompt_tokens=2**40, cached_tokens=0)]
    (refused,) = store(usage_report(told), agent=agent.pk)
    assert (refused["row"], refused["field"]) == (1, "namespace")
    (refused,) = store(levels(theirs.pk, evicted_blocks=9), agent=agent.pk)
    assert refused["field"] == f"namespaces.'{theirs.pk}'"
    assert (minutes_sums(mine.pk)["requests"], +minutes_sums(theirs.pk)) == (2, {})


def test_a_refused_row_is_kept_with_its_boot() -> None:
    _, whose = place()
    store(usage_report([row_of(whose, at=0)], boot="boot-7"))
    assert RefusedRow.objects.get().told["boot"] == "boot-7"


def test_however_absurd_two_engines_are_everybody_who_reads_gets_an_answer() -> None:
    """As much as one may say, of two namespaces and by two boots: no sum of it is beyond what can be answered."""
    namespace, whose = place()
    other = make_namespace(Organisation.objects.get(slug="acme"), "chat-3")
    most = row_of(whose, prompt_tokens=2**40, cached_tokens=2**40)
    for agent in ("evil-1", "evil-2"):
        for boot in ("boot-1", "boot-2"):
            assert not store(usage_report([most], boot=boot, totals={whose.namespace: [2**62] * 3}), agent=agent)
            assert not store(levels(namespace.pk, boot=boot, resident=2**50, evicted_blocks=2**40), agent=agent)
            assert not store(levels(other.pk, boot=boot, resident=2**50), agent=agent)
    Residence.objects.update(resident_bytes=2**62)  # as older control planes took them
    LedgerEntry.objects.update(prompt_tokens=2**62)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE analytics_minute SET prompt_tokens = %s", [2**62])
    now = timezone.now()
    for scope in (Scope(None), Scope(namespace.organisation_id), Scope(namespace.organisation_id, namespace.pk)):
        assert stats_answer(scope, "24h", now=now)
    assert live_message("fleet", now=now)
    assert live_message(f"org/{namespace.organisation_id}", now=now)
    assert measured(living(), now=now)
    assert reconcile(now)


def test_more_than_any_machine_has_is_refused_and_no_blocks_are_lost_to_it() -> None:
    namespace, _ = place()
    for name, absurd in (
        ("resident_bytes", levels(namespace.pk, resident=2**50 + 1)),
        ("evicted_blocks", levels(namespace.pk, evicted_blocks=2**40 + 1)),
    ):
        (refused,) = store(absurd)
        assert refused["field"] == f"namespaces.'{namespace.pk}'.{name}"
    assert not store(levels(namespace.pk, evicted_blocks=3))
    assert minutes_sums() == {"evicted_blocks": 3}


# Ledger, totals, levels, gaps


def test_the_ledger_has_what_the_minutes_have_and_an_engines_totals_the_newest() -> None:
    namespace, whose = place()
    rows = some_rows(whose)
    key = str(namespace.pk)
    store(usage_report(rows, totals={key: [5, 6, 4]}, upto=7), usage_report([], totals={key: [9, 9, 9]}, upto=3))
    store(usage_report(rows, totals={key: [1, 1, 1]}, upto=6))
    sums, found = sums_of(rows + rows), LedgerEntry.objects.all()
    assert sum(one.prompt_tokens for one in found) == sums["prompt_tokens"]
    assert sum(one.generated_tokens for one in found) == sums["generated_tokens"]
    total = EngineTotal.objects.get()
    assert (total.requests, total.prompt_tokens, total.cached_tokens, total.upto) == (5, 6, 4, 7)


def levels(namespace: int, *, boot: str = "boot-1", resident: int = 10, used: int = 5, **blocks: int) -> Report:
    held = {"resident_bytes": resident, "host_bytes": 0, **dict.fromkeys(BLOCK_COLUMNS, 0), **blocks}
    pool = {"capacity_bytes": 100, "used_bytes": used, "evictable_bytes": 1}
    told = {"boot": boot, "at": timezone.now().timestamp(), "pool": pool, "preemptions": 2}
    return Report("levels", {**told, "namespaces": {str(namespace): held}})


def test_levels_say_what_is_held_and_count_what_left() -> None:
    namespace, _ = place()
    store(levels(namespace.pk, evicted_blocks=4), levels(namespace.pk, evicted_blocks=6, expired_blocks=1))
    store(levels(namespace.pk, evicted_blocks=7, expired_blocks=1, resident=30, used=2))
    store(levels(namespace.pk, evicted_blocks=2, boot="boot-2"))
    residence = Residence.objects.get()
    assert (residence.boot, residence.resident_bytes, residence.evicted_blocks) == ("boot-2", 10, 2)
    assert minutes_sums() == {"evicted_blocks": 9, "expired_blocks": 1}
    assert Series.objects.get().kind == CACHE_KIND
    assert max(PoolMinute.objects.values_list("used_bytes", flat=True)) == 5


def test_a_namespace_that_an_engine_no_longer_names_holds_nothing() -> None:
    one, _ = place()
    two, _ = place("globex")
    store(levels(one.pk, evicted_blocks=4))
    store(levels(two.pk))
    store(levels(one.pk, evicted_blocks=5))
    found = dict(Residence.objects.values_list("namespace_id", "resident_bytes"))
    assert found == {one.pk: 10, two.pk: 0}
    assert minutes_sums()["evicted_blocks"] == 5


def test_of_gaps_the_newest_is_kept() -> None:
    namespace, _ = place()
    now = timezone.now().timestamp()

    def gaps(at: float, prompt_tokens: int) -> Report:
        curve = {"ttl_mode": "sliding", "limit_share": 1.0, "hit_ratios": [0.5], "resident_bytes": [9]}
        told = {"prompt_tokens": prompt_tokens, "ttls": [60], "curves": [curve]}
        return Report("gaps", {"boot": "boot-1", "at": at, "namespaces": {str(namespace.pk): told, "nobody": told}})

    refused = store(gaps(now, 2))
    store(gaps(now - 60, 1))
    assert ReuseCurve.objects.get().told["prompt_tokens"] == 2
    assert [one["field"] for one in refused] == ["namespaces.'nobody'"]


# Rolled pieces, notices, statements


def test_a_late_row_takes_the_marks_of_its_own_spans_away_and_no_others() -> None:
    _, whose = place()
    late = timezone.now().replace(second=0, microsecond=0) - timedelta(hours=30)
    starts = {level: int(late.timestamp()) // level * level for level in (60, 300, 3_600, 86_400)}
    for level, start in starts.items():
        for offset in (-level, 0, level):
            moment = datetime.fromtimestamp(start + offset, UTC)
            Rolled.objects.create(level=level, start=moment)
    store(usage_report([row_of(whose, at=late.timestamp())]))
    left = {(one.level, int(one.start.timestamp()) - starts[one.level]) for one in Rolled.objects.all()}
    assert left == {(level, offset) for level in starts for offset in (-level, level)}


def test_web_processes_are_told_at_commit_and_only_then() -> None:
    namespace, whose = place()
    dsn, password = connection.connection.info.dsn, connection.settings_dict["PASSWORD"]
    with psycopg.connect(dsn, password=password, autocommit=True) as listening:
        listening.execute(f"LISTEN {CHANNEL}")
        with transaction.atomic():
            usage_store({"agent-1": [(1, usage_report([row_of(whose)]))]}, timezone.now())
            assert list(listening.notifies(timeout=0)) == []
        (notice,) = listening.notifies(timeout=10, stop_after=1)
    assert notice.payload == str(namespace.organisation_id)


def test_the_number_of_statements_depends_on_neither_rows_nor_agents(
    django_assert_max_num_queries: Any,
) -> None:
    _, whose = place()
    other, others = place("globex")
    key = str(other.pk)

    def all_told(agents: int, rows: int) -> dict[str, list[tuple[int, Report]]]:
        return {
            f"agent-{number}": [
                (1, usage_report([*some_rows(whose, rows), "bad"], totals={key: [1, 1, 1]})),
                (2, usage_report(some_rows(others, rows))),
                (3, levels(other.pk, evicted_blocks=number)),
            ]
            for number in range(agents)
        }

    def statements(agents: int, rows: int) -> int:
        with django_assert_max_num_queries(100) as counted, transaction.atomic():
            usage_store(all_told(agents, rows), timezone.now())
        return len(counted)

    statements(2, 30)  # makes the series and the partition
    few = statements(2, 3)
    assert statements(9, 30) <= few + 2  # the series of agents that are new are made


MUCH = (
    """
    INSERT INTO analytics_series (agent, organisation_id, namespace_id, model, kv_dtype, kind)
    SELECT 'agent-' || agent, 1, namespace, 'm', 'bf16', 'customer'
    FROM generate_series(1, 20) AS agent, generate_series(100000, 100999) AS namespace
    """,
    """
    INSERT INTO analytics_rolled (level, start)
    SELECT 60, '2026-01-01 00:00+00'::timestamptz + place * interval '1 minute' FROM generate_series(1, 20000) AS place
    """,
    """
    INSERT INTO analytics_refusedrow (agent, report, "row", field, problem, told, at)
    SELECT 'agent-' || place % 50, 1, 1, 'f', 'p', '{}', now() FROM generate_series(1, 20000) AS place
    """,
    """
    INSERT INTO analytics_residence (agent, namespace_id, boot, at)
    SELECT 'agent-' || place % 50, place, 'b', now() FROM generate_series(1, 20000) AS place
    """,
    """
    INSERT INTO tenants_namespace (organisation_id, group_id, slug, name, revision, epoch, created_at)
    SELECT organisation_id, group_id, 'n-' || place, '', 1, 1, now()
    FROM (SELECT * FROM tenants_namespace ORDER BY id LIMIT 1) AS one, generate_series(1, 20000) AS place
    """,
)
LARGE = (
    "analytics_series",
    "analytics_rolled",
    "analytics_refusedrow",
    "analytics_residence",
    "tenants_namespace",
)


def test_no_statement_of_the_ingest_reads_a_table_from_end_to_end() -> None:
    namespace, whose = place()
    theirs = make_namespace(make_organisation("globex"), group=make_group("other"))
    foreign = row_of(Whose(str(theirs.organisation_id), str(theirs.pk)))
    reports = [usage_report([*some_rows(whose, 30), "bad", foreign], totals={str(namespace.pk): [1, 1, 1]})]
    reports.append(levels(namespace.pk, evicted_blocks=1))
    make_agent("agent-1")
    store(*reports)
    with connection.cursor() as cursor:
        for statement in MUCH:
            cursor.execute(statement)
        for table in LARGE:
            cursor.execute(f"ANALYZE {table}")
    with CaptureQueriesContext(connection) as captured:
        store(*reports)
    told = [one["sql"] for one in captured.captured_queries]
    plans = [explained(one) for one in told if one.startswith(("SELECT", "INSERT", "DELETE"))]
    assert sum("tenants_namespace" in plan for plan in plans) > 0
    assert len(plans) > 8
    for plan in plans:
        assert not re.search(rf"Seq Scan on ({'|'.join(LARGE)}|analytics_)", plan), plan


def test_series_are_found_by_their_index_however_many_are_asked_for() -> None:
    with connection.cursor() as cursor:
        cursor.execute(MUCH[0])
        cursor.execute("ANALYZE analytics_series")
        asked = [(one, f"agent-{one % 20}", "m", "bf16", "customer", 1) for one in range(100_000, 101_000)] * 5
        columns = [list(column) for column in zip(*asked, strict=True)]
        cursor.execute(f"EXPLAIN {SERIES_FIND}", columns)
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "Seq Scan" not in plan
    assert "one_series_for_each" in plan


def explained(statement: str) -> str:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {statement}")
        return "\n".join([statement[:200], *(line for (line,) in cursor.fetchall())])


# Through the door


async def told_door(one: Sender, *reports: Report, first: int = 1, **headers: str) -> Any:
    body = batch_encode(batch(*reports, first=first))
    packed = gzip.compress(body) if headers.get("content_encoding") == "gzip" else body
    return await door("reports", token=one.token, body=packed, **headers)


async def test_a_packed_batch_is_counted_and_refused_rows_are_answered() -> None:
    (one,) = await senders("agent-1")
    _, whose = await sync_to_async(place)()
    rows = [row_of(whose), row_of(whose)]
    answered = await told_door(one, usage_report([rows[0], "bad", rows[1]]), content_encoding="gzip")
    assert (answered.status, answered.told["acknowledged"]) == (200, 1)
    assert [(bad["report"], bad["row"], bad["field"]) for bad in answered.told["refused_rows"]] == [(1, 1, "row")]
    assert await sync_to_async(minutes_sums)() == sums_of(rows)
    again = await told_door(one, usage_report(rows))
    assert (again.told["acknowledged"], again.told["refused_rows"]) == (1, [])


async def test_a_bomb_is_refused_at_the_door_and_the_agent_goes_on() -> None:
    (one,) = await senders("agent-1")
    bomb = gzip.compress(b" " * (MOST_BATCH_BYTES + 1))
    answered = await door("reports", token=one.token, body=bomb, content_encoding="gzip")
    assert (answered.status, answered.code) == (413, "too_large")
    assert (await told_door(one, usage_report([]))).status == 200


async def test_what_is_much_to_read_is_read_beside_the_loop_and_what_is_little_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from controlplane.fleet import door as door_module

    read_in: list[bool] = []

    def decoded(body: bytes) -> Batch:
        read_in.append(threading.current_thread() is loop)
        return batch_decode(body)

    (one,), loop = await senders("agent-1"), threading.current_thread()
    monkeypatch.setattr(door_module, "batch_decode", decoded)
    assert (await told_door(one, usage_report([]))).status == 200
    large = Report("levels", {**levels(1).told, "namespaces": {str(n): {} for n in range(10_000)}})
    body = batch_encode(batch(large, first=2))
    for encoding in ({}, {"content_encoding": "gzip"}):
        told = gzip.compress(body) if encoding else body
        assert (await door("reports", token=one.token, body=told, **encoding)).status == 200
    assert read_in == [True, False, False]


async def test_with_too_much_waiting_an_agent_is_asked_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from controlplane.fleet import committing

    (one,) = await senders("agent-1")
    monkeypatch.setattr(committing, "MOST_WAITING", 0)
    answered = await told_door(one, usage_report([]))
    assert (answered.status, answered.code) == (503, "unavailable")
    assert int(answered.headers["retry-after"]) >= 1
    monkeypatch.undo()
    assert (await told_door(one, usage_report([]))).told["acknowledged"] == 1


async def test_rows_are_counted_for_prometheus() -> None:
    (one,) = await senders("agent-1")
    _, whose = await sync_to_async(place)()

    def counted() -> dict[str, float]:
        name = "luminet_usage_rows_total"
        return {was: REGISTRY.get_sample_value(name, {"was": was}) or 0.0 for was in ("counted", "refused")}

    before = counted()
    await told_door(one, usage_report([row_of(whose), "bad"]))
    assert {was: value - before[was] for was, value in counted().items()} == {"counted": 1, "refused": 1}


def test_one_agents_absurd_report_holds_up_no_other() -> None:
    _, whose = place()
    first, second = sender("agent-1"), sender("agent-2")
    told = {
        first.agent: batch(usage_report([{"nonsense": 1}] * 500, totals={"x" * 500: "?", "1": [2**70] * 3})),
        second.agent: batch(usage_report([row_of(whose)])),
    }
    found = batches_store(told, now=timezone.now(), usage=usage_store)
    assert len(found[first.agent].refused_rows) == 502
    assert found[second.agent].refused_rows == ()
    assert minutes_sums()["requests"] == 1


# What a journal's ranges say


def ranged(after: int, upto: int, rows: list[Row], **changes: Any) -> Report:
    return usage_report(rows, after=after, upto=upto, born=changes.pop("born", 7), **changes)


def test_a_range_is_counted_once_whichever_spool_and_number_it_comes_by() -> None:
    _, whose = place()
    agent, rows = make_agent().pk, some_rows(whose)
    for spool, first in (("spool-1", 1), ("spool-1", 2), ("spool-2", 1), ("spool-1", 1)):
        assert stored(agent, batch(ranged(0, 20, rows), first=first, spool=spool)).journal == {}
    assert minutes_sums() == sums_of(rows)
    assert RefusedRow.objects.count() == 0


def test_a_range_that_does_not_follow_on_is_not_counted_and_the_agent_hears_how_far_it_stands() -> None:
    _, whose = place()
    agent, rows = make_agent().pk, some_rows(whose)
    stored(agent, batch(ranged(0, 20, rows)))
    for after in (10, 25):
        told = batch(ranged(after, 30, rows), first=2)
        assert [stored(agent, told).journal for _ in range(2)] == [{"boot-1": 20}] * 2, "also when it is told again"
    assert stored(agent, batch(ranged(20, 30, rows), first=3)).journal == {}
    assert minutes_sums() == sums_of(rows * 2)


def test_of_a_boot_that_a_restored_database_never_heard_of_all_is_told_again() -> None:
    """The backup is from before its first report, which was acknowledged by the database that was lost."""
    _, whose = place()
    agent, rows = make_agent().pk, some_rows(whose)
    assert stored(agent, batch(ranged(20, 30, rows))).journal == {"boot-1": 0}
    assert stored(agent, batch(ranged(0, 30, rows * 2), first=2)).journal == {}
    assert minutes_sums() == sums_of(rows * 2)


def test_behind_a_range_that_is_not_counted_none_is_until_it_is() -> None:
    _, whose = place()
    agent, rows = make_agent().pk, some_rows(whose)
    told = [ranged(0, 10, rows), ranged(12, 20, rows), ranged(20, 30, rows), ranged(10, 15, rows), ranged(15, 30, rows)]
    assert stored(agent, batch(*told[:3])).journal == {"boot-1": 10}
    assert stored(agent, batch(*told[1:], first=4)).journal == {}, "what was missed came in the same batch"
    assert minutes_sums() == sums_of(rows * 3)


def test_two_processes_that_are_told_the_same_range_by_two_spools_count_it_once() -> None:
    _, whose = place()
    agent, rows = make_agent().pk, some_rows(whose)
    spools = [batch(ranged(0, 20, rows), spool=f"spool-{number}") for number in range(4)]
    assert failures(at_once(*[partial(stored, agent, one) for one in spools])) == []
    assert minutes_sums() == sums_of(rows)


def test_a_boot_id_with_another_first_record_begins_anew() -> None:
    _, whose = place()
    agent, rows = make_agent().pk, some_rows(whose)
    for first, born in enumerate((7, 8), 1):
        stored(agent, batch(ranged(0, 20, rows, born=born), first=first))
    assert minutes_sums() == sums_of(rows * 2)
    assert JournalRead.objects.values_list("upto", "born", "is_reborn").get() == (20, 8, True)


def test_what_fails_to_be_stored_moves_no_journal() -> None:
    _, whose = place()
    agent, rows = make_agent().pk, some_rows(whose)

    def fails(*_: Any) -> Any:
        usage_store(*_)
        raise OperationalError("away")

    with pytest.raises(OperationalError):
        batches_store({agent: batch(ranged(0, 20, rows))}, now=timezone.now(), usage=fails)
    assert JournalRead.objects.count() == 0
    stored(agent, batch(ranged(0, 20, rows)))
    assert minutes_sums() == sums_of(rows)


# What an engine did not live to add up


def totals_of(rows: list[Row]) -> list[int]:
    return [sum(row.counts[name] for row in rows) for name in ("requests", "prompt_tokens", "cached_tokens")]


def test_what_a_dead_boot_wrote_behind_its_last_total_is_no_difference() -> None:
    _, whose = place()
    agent, rows, more = make_agent().pk, some_rows(whose), some_rows(whose, seed=2)
    stored(agent, batch(ranged(0, 20, rows, totals={whose.namespace: totals_of(rows)})))
    assert reconcile(timezone.now()) == []
    stored(agent, batch(ranged(20, 40, more), first=2))
    assert reconcile(timezone.now()) == []


def test_what_the_ledger_has_more_than_its_engine_at_the_same_record_is_a_difference() -> None:
    _, whose = place()
    agent, rows = make_agent().pk, some_rows(whose)
    stored(agent, batch(ranged(0, 20, rows, totals={whose.namespace: totals_of(rows[1:])})))
    (found,) = reconcile(timezone.now())
    assert found.between == "engine and ledger"
    assert found.difference.prompt_tokens == -rows[0].counts["prompt_tokens"]


def test_what_the_ledger_lacks_is_a_difference_even_where_it_is_ahead() -> None:
    _, whose = place()
    agent, rows, more = make_agent().pk, some_rows(whose), some_rows(whose, 1, seed=2)
    stored(agent, batch(ranged(0, 20, rows[1:], totals={whose.namespace: [10**6, 10**9, 10**9]})))
    stored(agent, batch(ranged(20, 40, more), first=2))
    assert len(reconcile(timezone.now())) == 1


def test_a_boot_id_used_again_is_no_difference() -> None:
    _, whose = place()
    agent, rows, more = make_agent().pk, some_rows(whose), some_rows(whose, seed=2)
    stored(agent, batch(ranged(0, 50, rows, totals={whose.namespace: totals_of(rows)})))
    told = ranged(0, 20, more, born=8, totals={whose.namespace: totals_of(more)})
    stored(agent, batch(told, first=2))
    assert reconcile(timezone.now()) == []


async def test_the_door_answers_how_far_a_journal_is_counted() -> None:
    _, whose = await sync_to_async(place)()
    (one,) = await senders("agent-1")
    rows = some_rows(whose)
    told = [(await one.report(ranged(after, after + 10, rows))).told["journal"] for after in (0, 30, 10)]
    assert told == [{}, {"boot-1": 10}, {}]
