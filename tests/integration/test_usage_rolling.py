"""Pieces are sums of all there is, at any moment: also while rows still come, and when days of minutes go."""

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from controlplane.analytics import rolling, tasks
from controlplane.analytics.hours import hours_share
from controlplane.analytics.models import (
    EngineTotal,
    LedgerEntry,
    Minute,
    Piece,
    PoolMinute,
    RefusedRow,
    Residence,
    Rolled,
    Series,
)
from controlplane.analytics.partitions import AHEAD_DAYS, partitions, partitions_ensure
from controlplane.analytics.retention import days_drop, is_day_rolled, pieces_forget, retain
from controlplane.analytics.rolling import LEVELS, ROLLING_LOCK, Level, due, roll, spans_roll
from controlplane.analytics.windows import floored
from controlplane.database.locks import alone
from engine_agent.contracts.usage import Row
from tenants.models import Namespace
from tests.database.factories import make_agent, make_namespace
from tests.support.threads import at_once, failures, while_held
from tests.usage.agents import Whose, minute_of, row_of, rows_by_chance
from tests.usage.sums import minutes_forget, minutes_sums, piece_sums, read_sums, store, sums_of, usage_report
from tests.web.api import make_organisation

pytestmark = pytest.mark.django_db(transaction=True)
NOW = timezone.now()
DAY = floored(NOW, 86_400) - timedelta(days=1)
LATER = DAY + timedelta(days=2, hours=2)  # when all of that day is over for long
FOREVER = 1_000.0


@pytest.fixture(autouse=True)
def _minutes(transactional_db: None) -> Iterator[None]:
    minutes_forget()  # also those of other files
    yield
    minutes_forget()


def place(slug: str = "acme") -> tuple[Namespace, Whose]:
    namespace = make_namespace(make_organisation(slug), "chat-2")
    return namespace, Whose(str(namespace.organisation_id), str(namespace.pk))


def rows_of_an_hour(whose: Sequence[Whose], count: int, *, seed: int = 1, hour: int = 10) -> list[Row]:
    start = int(DAY.timestamp()) + hour * 3_600
    return rows_by_chance(random.Random(seed), whose, count, minutes=range(start, start + 3_600, 60), models=2)


def hour_roll(hour: int = 10) -> None:
    """Its parts and itself."""
    start = DAY + timedelta(hours=hour)
    for seconds in (60, 300):
        assert spans_roll(LEVELS[seconds], parts_of(start, seconds)) == 3_600 // seconds
    assert span_roll(LEVELS[3_600], start)


def span_roll(level: Level, start: datetime) -> bool:
    """One by itself."""
    return spans_roll(level, [start]) == 1


def parts_of(start: datetime, seconds: int) -> list[datetime]:
    return [start + timedelta(seconds=offset) for offset in range(0, 3_600, seconds)]


def sums_at(level: int, start: datetime, namespace: int | None = None) -> Any:
    with connection.cursor() as cursor:
        return piece_sums(cursor, level, start, namespace)


# Rolling


def test_pieces_of_every_level_are_sums_of_the_rows_of_all_agents() -> None:
    (one, whose), (two, others) = place(), place("globex")
    rows = [rows_of_an_hour([whose, others], 60, seed=seed) for seed in range(3)]
    for number, some in enumerate(rows):
        store(usage_report(some), agent=f"agent-{number}")
    hour_roll()
    everything = [row for some in rows for row in some]
    start = DAY + timedelta(hours=10)
    for namespace in (one, two):
        theirs = [row for row in everything if row.namespace == str(namespace.pk)]
        assert sums_at(3_600, start, namespace.pk) == sums_of(theirs)
    assert sums_at(3_600, start) == sums_of(everything)
    first = [row for row in everything if row.minute < start.timestamp() + 300]
    assert sums_at(300, start) == sums_of(first)
    minute = int(start.timestamp()) + 120
    of_minute = [row for row in everything if row.minute == minute]
    assert sums_at(60, datetime.fromtimestamp(minute, UTC)) == sums_of(of_minute)
    assert not Piece.objects.filter(level=60).exclude(series__namespace_id=0).exists()


def test_models_and_kinds_have_pieces_of_their_own() -> None:
    _, whose = place()
    at = (DAY + timedelta(hours=10)).timestamp()
    store(usage_report([row_of(whose, at=at), row_of(whose, at=at, kind="probe"), row_of(whose, at=at, kind="pin")]))
    hour_roll()
    found = Piece.objects.filter(level=3_600, series__namespace_id=0).values_list("series__kind", "requests")
    assert sorted(found) == [("customer", 1), ("pin", 1), ("probe", 1)]


def test_a_piece_that_is_rolled_anew_replaces_what_was_there() -> None:
    namespace, whose = place()
    start = DAY + timedelta(hours=10)
    for rounds in (1, 2, 3):
        store(usage_report([row_of(whose, at=start.timestamp())]))
        hour_roll()
        assert sums_at(3_600, start, namespace.pk)["requests"] == rounds
    assert Piece.objects.filter(level=3_600).count() == 2  # the namespace's and the fleet's
    assert Series.objects.count() == 3


def test_rolling_again_costs_no_numbers_of_series() -> None:
    _, whose = place()
    store(usage_report([row_of(whose, at=(DAY + timedelta(hours=10)).timestamp())]))
    for _ in range(5):
        hour_roll()
    last = Series.objects.order_by("pk").last()
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval(pg_get_serial_sequence('analytics_series', 'id'))")
        assert last is not None
        assert cursor.fetchone() == (last.pk + 1,)


def test_an_hour_is_not_rolled_while_a_part_of_it_is_not() -> None:
    _, whose = place()
    hour_roll()
    late = row_of(whose, at=(DAY + timedelta(hours=10, minutes=7)).timestamp())
    store(usage_report([late]))
    assert not span_roll(LEVELS[3_600], DAY + timedelta(hours=10))
    assert not Rolled.objects.filter(level=3_600).exists()
    assert span_roll(LEVELS[300], DAY + timedelta(hours=10, minutes=5))
    assert span_roll(LEVELS[3_600], DAY + timedelta(hours=10))
    assert sums_at(3_600, DAY + timedelta(hours=10)) == sums_of([late])


def test_late_rows_are_in_every_answer_at_once_and_in_the_pieces_after_the_next_roll() -> None:
    namespace, whose = place()
    rows = rows_of_an_hour([whose], 30)
    store(usage_report(rows))
    hour_roll()
    late = rows_of_an_hour([whose], 5, seed=9)
    store(usage_report(late))
    end = DAY + timedelta(days=1)
    assert read_sums(DAY, end, namespace.pk) == sums_of(rows + late)
    assert read_sums(DAY, end) == sums_of(rows + late)
    hour_roll()
    assert sums_at(3_600, DAY + timedelta(hours=10), namespace.pk) == sums_of(rows + late)


def test_a_whole_day_is_rolled_by_the_task_and_is_exact() -> None:
    namespace, whose = place()
    rows = [row for hour in (0, 11, 23) for row in rows_of_an_hour([whose], 10, hour=hour)]
    store(usage_report(rows))
    partitions_ensure([DAY.date()])
    for _ in range(3):  # what hours and days are made of comes first
        roll(LATER, seconds=FOREVER)
    assert is_day_rolled(DAY.date())
    assert sums_at(86_400, DAY, namespace.pk) == sums_of(rows)
    assert sums_at(86_400, DAY) == sums_of(rows)
    assert read_sums(DAY, DAY + timedelta(days=1), namespace.pk) == sums_of(rows)
    assert due(LEVELS[86_400], LATER) == []


def test_nothing_is_due_before_it_is_over_and_a_while_has_passed() -> None:
    partitions_ensure([DAY.date()])
    for level in (LEVELS[60], LEVELS[300]):
        over = DAY + timedelta(seconds=level.seconds + level.after_seconds)
        assert due(level, over - timedelta(seconds=1)) == []
        assert due(level, over) == [DAY]


def test_a_run_ends_when_its_time_is_over_and_the_next_goes_on() -> None:
    partitions_ensure([DAY.date()])
    now = DAY + timedelta(minutes=20)
    assert roll(now, seconds=0.0) == 0
    assert roll(now, seconds=FOREVER) > 20
    assert roll(now, seconds=FOREVER) == 0


def test_one_rolls_at_a_time() -> None:
    partitions_ensure([DAY.date()])

    def other() -> Any:
        with alone(ROLLING_LOCK) as is_alone:
            return is_alone, at_once(lambda: roll(DAY + timedelta(minutes=20)))

    assert at_once(other) == [(True, [0])]
    assert roll(DAY + timedelta(minutes=20), seconds=FOREVER) > 0


def test_an_hour_that_is_written_to_waits_for_the_next_run() -> None:
    partitions_ensure([DAY.date()])
    start = int(DAY.timestamp())
    held = while_held(lambda: hours_share([start]), lambda: roll(DAY + timedelta(minutes=2), seconds=FOREVER))
    assert held[1] == 0
    assert roll(DAY + timedelta(minutes=2), seconds=FOREVER) > 0


def test_a_span_that_takes_long_lets_go_of_its_hour_and_has_its_time_after_three_tries(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    partitions_ensure([DAY.date()])
    slow = "SELECT CASE WHEN current_setting('statement_timeout') = '50ms' AND %(level)s = 60 THEN pg_sleep(12) END"
    monkeypatch.setattr(rolling, "MOST_HELD", "50ms")
    monkeypatch.setattr(rolling, "ROLL_FLEET_MINUTES", (slow,))
    assert [rolling._rolled(LEVELS[60], [DAY]) for _ in range(4)] == [0, 0, 0, 1]
    assert [one.levelname for one in caplog.records if one.name == "luminet.analytics"].count("ERROR") == 1
    assert not rolling._failed


def test_who_writes_waits_while_an_hour_is_rolled_and_unmarks_it_then() -> None:
    """Between two transactions: a mark is never set over rows that it does not know."""
    namespace, whose = place()
    rows = [rows_of_an_hour([whose], 4, seed=seed) for seed in range(6)]
    store(usage_report(rows[0]))

    def told(some: list[Row], agent: str) -> Any:
        return lambda: store(usage_report(some), agent=agent)

    deeds = [told(some, f"agent-{number}") for number, some in enumerate(rows[1:])]
    assert failures(at_once(*deeds, hour_roll_tried, hour_roll_tried)) == []
    expected = sums_of([row for some in rows for row in some])
    assert read_sums(DAY, DAY + timedelta(days=1), namespace.pk) == expected
    assert read_sums(DAY, DAY + timedelta(days=1)) == expected


def hour_roll_tried() -> None:
    start = DAY + timedelta(hours=10)
    for seconds in (60, 300):
        for part in parts_of(start, seconds):
            rolling._rolled(LEVELS[seconds], [part])
    rolling._rolled(LEVELS[3_600], [start])


def test_whoever_reads_while_rows_come_and_are_rolled_sees_whole_transactions() -> None:
    """Every transaction brings ten requests of a thousand tokens: any other sum was never true."""
    namespace, whose = place()
    end = DAY + timedelta(days=1)

    def writes(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(6):
            minutes = [DAY.timestamp() + 36_000 + 60 * chance.randrange(60) for _ in range(10)]
            rows = [row_of(whose, at=at, prompt_tokens=1_000, cached_tokens=0) for at in minutes]
            store(usage_report(rows), agent=f"agent-{seed}")

    def reads() -> list[tuple[int, int]]:
        found = [read_sums(DAY, end, namespace.pk) for _ in range(3)]
        found += [read_sums(DAY, end) for _ in range(3)]
        return [(one["requests"], one["prompt_tokens"]) for one in found]

    outcomes = at_once(lambda: writes(1), lambda: writes(2), reads, hour_roll_tried)
    assert failures(outcomes) == []
    assert all(requests % 10 == 0 and tokens == requests * 1_000 for requests, tokens in outcomes[2])
    assert read_sums(DAY, end, namespace.pk)["requests"] == 120


# Retention


def day_rolled(*days: date) -> None:
    """As if: every span of these days."""
    rows = []
    for day in days:
        start = datetime(day.year, day.month, day.day, tzinfo=UTC)
        for level in LEVELS.values():
            offsets = range(0, 86_400, level.seconds)
            rows += [Rolled(level=level.seconds, start=start + timedelta(seconds=one)) for one in offsets]
    Rolled.objects.bulk_create(rows, batch_size=2_000, ignore_conflicts=True)


def test_a_day_of_minutes_goes_after_three_days_and_only_when_it_is_rolled() -> None:
    day = DAY.date()
    partitions_ensure([day, day + timedelta(days=1)])
    over = DAY + timedelta(days=4, seconds=1)
    assert days_drop(over) == 0
    day_rolled(day, day + timedelta(days=1))
    assert days_drop(over - timedelta(seconds=2)) == 0
    assert days_drop(over) == 1
    assert partitions() == [day + timedelta(days=1)]


@pytest.mark.parametrize("level", [300, 3_600, 86_400])
def test_a_day_with_one_span_unmarked_is_not_rolled(level: int) -> None:
    day_rolled(DAY.date())
    Rolled.objects.filter(pk=Rolled.objects.filter(level=level).latest("start").pk).delete()
    assert not is_day_rolled(DAY.date())


def test_what_is_gone_is_never_rolled_again() -> None:
    namespace, whose = place()
    rows = rows_of_an_hour([whose], 10)
    store(usage_report(rows))
    for _ in range(3):
        roll(LATER, seconds=FOREVER)
    over = DAY + timedelta(days=4, hours=1)
    assert days_drop(over) >= 1
    Rolled.objects.filter(level=300, start__lt=DAY + timedelta(hours=12)).delete()
    roll(over, seconds=1.0)
    assert sums_at(86_400, DAY, namespace.pk) == sums_of(rows)
    assert sums_at(3_600, DAY + timedelta(hours=10), namespace.pk) == sums_of(rows)


def test_a_day_that_somebody_reads_is_dropped_by_the_next_run_and_nobody_waits_long() -> None:
    day = DAY.date()
    partitions_ensure([day])
    day_rolled(day)
    over = DAY + timedelta(days=4, seconds=1)
    assert while_held(lambda: Minute.objects.count(), lambda: days_drop(over))[1] == 0
    assert days_drop(over) == 1


def test_retention_while_rows_come_loses_none_of_them() -> None:
    namespace, whose = place()
    old = [DAY.date() - timedelta(days=number) for number in (7, 6, 5)]
    partitions_ensure(old)
    day_rolled(*old)
    rows = [rows_of_an_hour([whose], 10, seed=seed) for seed in range(6)]
    deeds = [
        lambda some=some, seed=seed: store(usage_report(some), agent=f"a-{seed}") for seed, some in enumerate(rows)
    ]
    outcomes = at_once(*deeds, lambda: retain(NOW), lambda: retain(NOW))
    assert failures(outcomes) == []
    retain(NOW)
    assert set(old).isdisjoint(partitions())
    assert minutes_sums(namespace.pk) == sums_of([row for some in rows for row in some])


def piece_of(level: int, start: datetime, series: Series) -> None:
    Piece.objects.create(level=level, start=start, series=series, requests=1)
    Rolled.objects.get_or_create(level=level, start=start)


@pytest.mark.parametrize("level", LEVELS)
def test_pieces_go_with_their_marks_when_their_time_is_over(level: int) -> None:
    series = Series.objects.create(organisation_id=0, namespace_id=0, kind="customer")
    kept_from = floored(NOW - timedelta(days=LEVELS[level].kept_days), 86_400)
    day_rolled((kept_from - timedelta(days=1)).date())
    piece_of(level, kept_from - timedelta(seconds=level), series)
    piece_of(level, kept_from, series)
    assert pieces_forget(LEVELS[level], NOW) == 1
    assert Piece.objects.get().start == kept_from
    assert list(Rolled.objects.filter(level=level).values_list("start", flat=True)) == [kept_from]


def test_pieces_that_were_not_added_up_yet_stay_however_old() -> None:
    series = Series.objects.create(organisation_id=0, namespace_id=0, kind="customer")
    old = floored(NOW - timedelta(days=30), 86_400)
    day_rolled(old.date())
    Rolled.objects.filter(level=3_600, start=old).delete()
    piece_of(300, old, series)
    assert pieces_forget(LEVELS[300], NOW) == 0
    Rolled.objects.create(level=3_600, start=old)
    assert pieces_forget(LEVELS[300], NOW) == 1


def test_books_are_kept_for_their_time_and_what_agents_hold_as_long_as_they_are_there() -> None:
    make_agent("agent-1")
    for days in (0, 100):
        at = NOW - timedelta(days=days)
        LedgerEntry.objects.create(day=at.date(), agent="agent-1", boot="b", namespace_id=1)
        PoolMinute.objects.create(agent="agent-1", minute=at, boot="b")
        RefusedRow.objects.create(agent="agent-1", report=1, row=1, field="f", problem="p", at=at)
        total = {"requests": 1, "prompt_tokens": 1, "cached_tokens": 1, "upto": 1, "at": at}
        EngineTotal.objects.create(agent="agent-1", boot=f"b-{days}", namespace_id=1, **total)
        Residence.objects.create(agent="agent-1", namespace_id=days, boot="b", at=at)
    Residence.objects.create(agent="gone", namespace_id=1, boot="b", at=NOW)
    retain(NOW)
    for model in (LedgerEntry, PoolMinute, RefusedRow, EngineTotal):
        assert model._default_manager.count() == 1
    assert set(Residence.objects.values_list("agent", "namespace_id")) == {("agent-1", 0), ("agent-1", 100)}
    today = NOW.date()
    assert [today + timedelta(days=ahead) for ahead in range(AHEAD_DAYS + 1)] == partitions()


def test_series_of_agents_that_are_gone_go_with_their_last_minute() -> None:
    _, whose = place()
    make_agent("agent-1")
    for agent in ("agent-1", "gone"):
        store(usage_report([row_of(whose, at=DAY.timestamp())]), agent=agent, now=DAY)
    Series.objects.create(agent="", organisation_id=1, namespace_id=1, kind="customer")
    retain(NOW)
    assert set(Series.objects.values_list("agent", flat=True)) == {"agent-1", "gone", ""}
    minutes_forget()
    retain(NOW)
    assert set(Series.objects.values_list("agent", flat=True)) == {"agent-1", ""}


def test_the_tasks_are_on_the_schedule() -> None:
    for name, task in (("roll", tasks.roll), ("retain", tasks.retain)):
        assert settings.CELERY_BEAT_SCHEDULE[name]["task"] == task.name


# No table is read from end to end

MANY = """
INSERT INTO analytics_minute (series_id, minute, requests, times)
SELECT series.id, %(start)s::timestamptz + minute * interval '1 minute', 1, '{{4294967297}}'
FROM generate_series(0, 1439) AS minute, analytics_series AS series ORDER BY minute
"""


def test_rolling_reads_of_minutes_and_pieces_what_it_needs_and_no_more() -> None:
    partitions_ensure([DAY.date()])
    Series.objects.bulk_create(
        Series(
            agent=f"agent-{one % 4}", organisation_id=1, namespace_id=one, model="m", kv_dtype="bf16", kind="customer"
        )
        for one in range(1, 61)
    )
    with connection.cursor() as cursor:
        cursor.execute(MANY.format(), {"start": DAY})
        cursor.execute("VACUUM ANALYZE analytics_minute")
    for place_ in range(24):
        span_roll(LEVELS[300], DAY + timedelta(hours=place_))
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE analytics_piece")
    start = DAY + timedelta(hours=5)
    for level in (LEVELS[60], LEVELS[300], LEVELS[3_600]):
        end = start + timedelta(seconds=level.seconds)
        span = {"level": level.seconds, "source": level.source, "step": f"{level.seconds} s"}
        values = {**span, "first": start, "end": end, "starts": [start]}
        for statement in rolling._statements(level):
            plan = explained(statement, values)
            assert "Seq Scan on analytics_minute" not in plan, plan
            assert "Seq Scan on analytics_piece" not in plan, plan


def explained(statement: str, values: dict[str, Any]) -> str:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {statement}", values)
        return "\n".join(line for (line,) in cursor.fetchall())


def test_minutes_begin_where_they_are_told_to() -> None:
    """What the tests of this file stand on."""
    assert minute_of(DAY.timestamp()) == DAY.timestamp()
