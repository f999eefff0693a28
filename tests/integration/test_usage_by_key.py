"""Numbers by API key: counted exactly once with their rows, always parts of the whole, told to their owners alone."""

import csv
import io
import random
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.analytics import by_key
from controlplane.analytics.by_key import keys_asked
from controlplane.analytics.ingest import usage_store
from controlplane.analytics.models import KeyMinute, KeyPiece, KeySeries, RefusedRow, Rolled
from controlplane.analytics.partitions import PARENTS, partitions
from controlplane.analytics.retention import days_drop, pieces_forget, retain
from controlplane.analytics.rolling import LEVELS, roll
from controlplane.analytics.stats import stats_answer
from controlplane.analytics.sums import Scope
from controlplane.analytics.windows import floored
from controlplane.fleet.models import Agent
from controlplane.fleet.recording import batches_store
from engine_agent.contracts.usage import KEY_COUNTS, Row
from engine_agent.contracts.wire import Batch, Report
from engine_agent.journal.records import Entry, Record
from engine_agent.sidecar.folding import BootFold, usage_reports
from engine_agent.sidecar.holder import JournalPage
from tenants.actor import SYSTEM
from tenants.models import ApiKey, Namespace, Organisation
from tenants.services.keys import key_create, key_revoke
from tests.database.factories import make_agent, make_namespace
from tests.support.threads import at_once, failures
from tests.unit.sidecar.journals import closed, opened
from tests.usage.agents import minute_of
from tests.usage.sums import minutes_forget, minutes_sums, store, usage_report
from tests.web.api import Api, make_key, make_organisation, said

pytestmark = pytest.mark.django_db(transaction=True)
NOW = timezone.now()
MINUTE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def _minutes(transactional_db: None) -> Iterator[None]:
    minutes_forget()  # also those of other files
    yield
    minutes_forget()


@pytest.fixture
def chat() -> Namespace:
    return make_namespace(make_organisation("acme"), "chat")


def key_of(owner: Namespace | Organisation, name: str = "production") -> ApiKey:
    organisation = owner.organisation if isinstance(owner, Namespace) else owner
    return key_create(actor=SYSTEM, organisation=organisation, name=name, scopes=["infer"])[0]


def report(
    namespace: Namespace,
    at: datetime,
    asked: dict[ApiKey | None, int],
    *,
    model: str = "m",
    untold: int = 0,
    **more: Any,
) -> Report:
    """So many requests of each key, of 100 prompt tokens each, 60 of them cached; `untold` besides."""
    minute, requests = minute_of(at.timestamp()), sum(asked.values()) + untold
    counts = {name: each * requests for name, each in zip(KEY_COUNTS, (1, 100, 60, 5), strict=True)}
    row = Row(minute, str(namespace.organisation_id), str(namespace.pk), model, "fp8", "customer", counts)
    keys = [
        [minute, str(namespace.pk), model, key and str(key.pk), number, 100 * number, 60 * number, 5 * number]
        for key, number in asked.items()
    ]
    return usage_report([row], **{"keys": keys, **more})


def told(scope: Scope, window: str = "24h", now: datetime | None = None) -> dict[UUID | None, int]:
    """Requests by key; whatever the whole is, the parts are that."""
    found = stats_answer(scope, window, now=now)
    for name in KEY_COUNTS:
        assert sum(one[name] for one in found["by_key"]) == found[name]
    return {one["id"]: one["requests"] for one in found["by_key"]}


def of(owner: Namespace, **more: Any) -> Scope:
    return Scope(owner.organisation_id, **more)


# Exactly once


def stored(agent: str, *reports: Report, first: int = 1) -> Any:
    batch = Batch(0.0, "spool-1", first, reports, None)
    return batches_store({agent: batch}, now=timezone.now(), usage=usage_store)[agent]


def test_the_same_report_five_times_counts_for_its_keys_once(chat: Namespace) -> None:
    agent, key = make_agent().pk, key_of(chat)
    for _ in range(5):
        stored(agent, report(chat, NOW, {key: 3, None: 1}))
    assert told(of(chat)) == {key.pk: 3, None: 1}


def test_split_and_overlapping_batches_count_for_their_keys_once(chat: Namespace) -> None:
    agent, key, other = make_agent().pk, key_of(chat), key_of(chat, "batch")
    reports = [report(chat, NOW - number * MINUTE, {key: number, other: 1}) for number in range(1, 6)]
    for first, last in ((1, 2), (1, 4), (2, 3), (4, 5), (1, 5)):
        stored(agent, *reports[first - 1 : last], first=first)
    assert told(of(chat)) == {key.pk: 15, other.pk: 5}


def test_many_processes_that_store_the_same_at_once_count_it_once(chat: Namespace) -> None:
    agent, key = make_agent().pk, key_of(chat)
    assert failures(at_once(*[lambda: stored(agent, report(chat, NOW, {key: 3}))] * 4)) == []
    assert told(of(chat)) == {key.pk: 3}


def journal(namespace: Namespace, keys: Sequence[ApiKey | None]) -> list[Entry]:
    """A request with each key, ended."""
    whose = {"organisation_id": str(namespace.organisation_id), "namespace_id": str(namespace.pk), "model": "m"}
    records: list[Record] = [opened(NOW.timestamp(), key_id=str(key.pk) if key else "", **whose) for key in keys]
    records += [closed(number, generated_tokens=5) for number in range(1, len(keys) + 1)]
    return [Entry(number, one) for number, one in enumerate(records, 1)]


def test_a_journal_that_is_read_again_after_a_lost_spool_counts_for_its_keys_once(chat: Namespace) -> None:
    """In other pages than before, and by the numbers of another spool."""
    agent, key = make_agent().pk, key_of(chat)
    entries = journal(chat, [key, None, key, key])
    for spool, pages in (("before", [3, 8]), ("after", [2, 5, 8])):
        fold, first = BootFold(), 1
        for last in pages:
            ranges = fold.take(JournalPage(last, entries[:last]))
            reports = usage_reports("b1", fold.born, ranges, None)
            batches_store({agent: Batch(0.0, spool, first, reports, None)}, now=NOW, usage=usage_store)
            first += len(reports)
    assert told(of(chat)) == {key.pk: 3, None: 1}
    (row,) = [one for one in stats_answer(of(chat), "24h")["by_key"] if one["id"] == key.pk]
    assert (row["prompt_tokens"], row["cached_tokens"], row["generated_tokens"]) == (3 * 512, 3 * 496, 15)


def test_an_agent_of_before_tells_no_keys_and_is_counted_as_ever(chat: Namespace) -> None:
    key = key_of(chat)
    without = report(chat, NOW, {}, untold=4)
    del without.told["keys"]  # type: ignore[attr-defined]
    assert not store(without, report(chat, NOW, {key: 2}))
    assert told(of(chat)) == {key.pk: 2, None: 4}
    assert minutes_sums(chat.pk)["requests"] == 6


def test_keys_of_others_and_of_nobody_are_refused_and_the_requests_are_counted(chat: Namespace) -> None:
    theirs = key_of(make_organisation("globex"))
    nobodys = ApiKey(organisation=chat.organisation, name="never saved")
    refused = store(report(chat, NOW, {theirs: 2, nobodys: 1}))
    assert [one["field"] for one in refused] == ["keys.0.key", "keys.1.key"]
    assert told(of(chat)) == {None: 3}
    assert told(Scope(theirs.organisation_id)) == {}
    assert RefusedRow.objects.count() == 2


def test_the_number_of_statements_depends_on_neither_keys_nor_agents(chat: Namespace) -> None:
    keys = [key_of(chat, f"key-{number}") for number in range(20)]

    def queries(agents: int, some: Sequence[ApiKey]) -> int:
        one = {f"agent-{number}": [(1, report(chat, NOW, dict.fromkeys(some, 1)))] for number in range(agents)}
        usage_store(one, NOW)  # makes the series
        with CaptureQueriesContext(connection) as asked:
            usage_store(one, NOW)
        return len(asked)

    assert queries(1, keys[:1]) == queries(5, keys)


# Windows, and what is rolled up


def rolled(now: datetime = NOW) -> None:
    """All that can be by then, level by level."""
    while roll(now, seconds=1_000.0):
        pass


def test_what_was_rolled_and_what_was_not_is_the_same(chat: Namespace) -> None:
    mail, keys, chance = (
        make_namespace(chat.organisation, "mail"),
        [key_of(chat), key_of(chat, "batch"), None],
        random.Random(3),
    )
    now = floored(NOW, 86_400)  # rows of two days, of which all can be rolled
    for number in range(60):
        at, namespace = now - timedelta(minutes=chance.randrange(1, 2_800)), chance.choice([chat, mail])
        asked = {key: chance.randrange(1, 9) for key in keys}
        assert not store(report(namespace, at, asked, model=chance.choice("mn")), agent=f"agent-{number % 3}", now=now)
    scopes = [of(chat), of(chat, namespace=mail.pk), of(chat, model="n"), of(chat, namespaces=frozenset({chat.pk}))]
    before = [told(scope, window, now) for scope in scopes for window in ("1h", "24h", "7d", "30d")]
    rolled(now + timedelta(hours=2))
    assert {piece.level for piece in KeyPiece.objects.all()} == {300, 3_600, 86_400}
    assert [told(scope, window, now) for scope in scopes for window in ("1h", "24h", "7d", "30d")] == before
    KeyMinute.objects.all().delete()  # then what is told of days is told by pieces
    assert told(of(chat), "30d", now) == before[3]


def test_a_late_part_of_a_key_is_in_the_sum_at_once_and_after_rolling(chat: Namespace) -> None:
    key, at = key_of(chat), floored(NOW, 3_600) - timedelta(hours=3)
    store(report(chat, at, {key: 1}))
    rolled()
    assert Rolled.objects.filter(level=3_600, start=at).exists()
    store(report(chat, at + MINUTE, {key: 2}), agent="agent-2")
    assert not Rolled.objects.filter(level=3_600, start=at).exists()
    assert told(of(chat)) == {key.pk: 3}
    rolled()
    assert Rolled.objects.filter(level=3_600, start=at).exists()
    assert told(of(chat)) == {key.pk: 3}


def test_minutes_of_keys_go_with_those_of_their_rows(chat: Namespace) -> None:
    key, day = key_of(chat), floored(NOW, 86_400) - timedelta(days=1)
    store(report(chat, day + MINUTE, {key: 1}))
    rolled(day + timedelta(days=2))
    assert days_drop(day + timedelta(days=4, seconds=1)) >= 1
    assert {tuple(partitions(parent)) for parent in PARENTS} == {tuple(partitions())}
    assert not KeyMinute.objects.exists()
    assert told(of(chat), "7d", day + timedelta(days=4)) == {key.pk: 1}


def test_pieces_and_series_of_keys_are_forgotten_as_others_are(chat: Namespace) -> None:
    series = KeySeries.objects.create(organisation_id=chat.organisation_id, namespace_id=chat.pk, model="m", key="k")
    for days in (8, 12):
        KeyPiece.objects.create(level=300, series=series, start=NOW - timedelta(days=days))
    pieces_forget(LEVELS[300], NOW)
    assert [one.start for one in KeyPiece.objects.all()] == [NOW - timedelta(days=8)]
    KeySeries.objects.create(agent="long-gone", organisation_id=chat.organisation_id, namespace_id=chat.pk, key="k")
    retain(NOW)
    assert list(KeySeries.objects.all()) == [series]
    assert not Agent.objects.exists()


# What people are told


def test_a_revoked_key_stays_named_and_one_that_is_gone_keeps_its_number(chat: Namespace) -> None:
    key, other = key_of(chat), key_of(chat, "batch")
    store(report(chat, NOW, {key: 3, other: 1}))
    key_revoke(actor=SYSTEM, key=key)
    ApiKey.objects.filter(pk=other.pk).delete()
    first, second = stats_answer(of(chat), "24h")["by_key"]
    assert (first["id"], first["name"], first["prefix"], first["is_revoked"]) == (
        key.pk,
        "production",
        key.prefix,
        True,
    )
    assert (second["id"], second["name"], second["prefix"], second["is_revoked"]) == (other.pk, None, None, True)
    assert not store(report(chat, NOW, {other: 4})), "its agent may tell of it still"
    assert told(of(chat))[other.pk] == 5


def test_keys_beyond_the_largest_are_together_what_is_left(chat: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_key, "MOST", 2)
    keys = [key_of(chat, f"key-{number}") for number in range(4)]
    store(report(chat, NOW, {key: 10 - number for number, key in enumerate(keys)}))
    assert told(of(chat)) == {keys[0].pk: 10, keys[1].pk: 9, None: 8 + 7}


def test_what_each_key_asked_and_when_it_last_did(chat: Namespace) -> None:
    key, idle, old = key_of(chat), key_of(chat, "idle"), key_of(chat, "old")
    store(report(chat, NOW - 5 * MINUTE, {key: 2}), report(chat, NOW - MINUTE, {key: 1}))
    day = floored(NOW, 86_400) - timedelta(days=5)
    series = KeySeries.objects.create(
        organisation_id=chat.organisation_id, namespace_id=chat.pk, model="m", key=str(old.pk)
    )
    for level, at in ((86_400, day), (3_600, day + timedelta(hours=7)), (300, day + timedelta(hours=8))):
        KeyPiece.objects.create(level=level, series=series, start=at, requests=1)
    found = keys_asked(chat.organisation_id, [key.pk, idle.pk, old.pk])
    assert (found[key.pk].counts["requests"], found[key.pk].last_at) == (3, floored(NOW - MINUTE, 60))
    assert (found[idle.pk].counts["requests"], found[idle.pk].last_at) == (0, None)
    assert (found[old.pk].counts["requests"], found[old.pk].last_at) == (0, day + timedelta(hours=7))


def test_rest_answers_by_key_and_csv_has_the_same(chat: Namespace) -> None:
    key = key_of(chat)
    store(report(chat, NOW, {key: 3}, untold=1))
    api = Api(make_key(chat.organisation, "stats:read"), Client())
    first, left = said(api.get("/orgs/acme/stats"))["by_key"]
    assert first == {
        "id": str(key.pk), "name": "production", "prefix": key.prefix, "is_revoked": False, "requests": 3,
        "prompt_tokens": 300, "cached_tokens": 180, "generated_tokens": 15, "hit_ratio": 0.6,
    }  # fmt: skip
    assert (left["id"], left["name"], left["requests"]) == (None, None, 1)
    table = list(csv.DictReader(io.StringIO(api.get("/orgs/acme/stats?format=csv").content.decode())))
    rows = [(one["name"], one["requests"]) for one in table if one["of"] == "key"]
    assert rows == [(f"production ({key.prefix}…)", "3"), ("", "1")]


def test_an_organisation_sees_its_own_keys_and_a_bound_key_what_was_asked_in_its_namespaces(chat: Namespace) -> None:
    globex = make_organisation("globex").namespaces.get(slug="default")
    mail, key, theirs = make_namespace(chat.organisation, "mail"), key_of(chat), key_of(globex)
    mailing = key_of(chat, "mailing")
    store(report(chat, NOW, {key: 3}), report(mail, NOW, {mailing: 4}), report(globex, NOW, {theirs: 5}))
    assert told(of(chat)) == {mailing.pk: 4, key.pk: 3}
    assert told(of(globex)) == {theirs.pk: 5}
    bound = Api(make_key(chat.organisation, "stats:read", namespaces=[chat]), Client())
    assert [one["id"] for one in said(bound.get("/orgs/acme/stats"))["by_key"]] == [str(key.pk)]
    assert bound.get("/orgs/globex/stats").status_code == 404
    assert "by_key" not in stats_answer(Scope(None), "24h"), "operators read it of one organisation"
