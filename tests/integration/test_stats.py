"""What is stored, added up: exact whatever is rolled, the same for all who ask, and each sees only what is theirs."""

import csv
import io
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer

from controlplane.analytics import selectors
from controlplane.analytics.columns import CACHE_KIND, MISSED_COLUMN
from controlplane.analytics.models import Piece, Residence, Rolled
from controlplane.analytics.selectors import Scope, database_now
from controlplane.analytics.stats import covered_seconds, live_message, series_answer, stats_answer
from controlplane.analytics.windows import window_of
from controlplane.cli import main
from engine_agent.contracts.wire import MISSED
from tenants.consistent_reads import consistent_read
from tenants.models import Namespace, Organisation
from tests.database.factories import make_namespace
from tests.usage.rows import NOW, Counted, counts, days, rolled, store, ttft
from tests.web.api import Api, make_key, make_organisation, said

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)
FLEET = Scope(None)


@pytest.fixture
def chat() -> Namespace:
    return make_organisation("acme", "chat").namespaces.get(slug="chat")


@pytest.fixture
def globex() -> Namespace:
    return make_organisation("globex").namespaces.get(slug="default")


def of(owner: Namespace, *, namespace: int | None = None, model: str | None = None) -> Scope:
    return Scope(owner.organisation_id, namespace, model)


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def test_a_window_adds_up_what_began_in_it_and_nothing_before(chat: Namespace) -> None:
    first = ago(24 * 60)
    store(Counted(chat, first - MINUTE), Counted(chat, first), Counted(chat, ago(5)), Counted(chat, NOW))
    found = stats_answer(of(chat), "24h", now=NOW)
    assert (found["requests"], found["prompt_tokens"], found["cached_tokens"]) == (3, 300, 180)
    assert (found["hit_ratio"], found["window_seconds"], found["as_of"]) == (0.6, 86_400, NOW)
    assert (found["from"], found["to"]) == (first.replace(second=0), NOW)


def test_what_was_rolled_and_what_was_not_is_the_same(chat: Namespace, globex: Namespace) -> None:
    rows = [
        Counted(one, ago(minutes), counts(minutes, 100 * minutes, minutes, failed=1), ttft(minutes, 3), model=model)
        for minutes in range(1, 3_000, 41)
        for one, model in ((chat, "m"), (chat, "n"), (globex, "m"))
    ]
    store(*rows)
    before = everything(chat)
    hour = NOW.replace(minute=0, second=0)
    for level, start, end in (
        (60, ago(90), ago(30)),
        (300, hour - timedelta(hours=9), hour - timedelta(hours=7)),
        (3_600, hour - timedelta(hours=20), hour - timedelta(hours=4)),
        (86_400, NOW - days(2), NOW - days(1)),
    ):
        rolled(level, start, end)
        assert everything(chat) == before


def everything(chat: Namespace) -> list[Any]:
    """Of every scope, window and series, as far as pieces could make a difference."""
    scopes = [FLEET, Scope(None, model="n"), of(chat), of(chat, namespace=chat.pk), of(chat, model="m")]
    answers: list[Any] = [stats_answer(one, name, now=NOW) for one in scopes for name in ("1h", "24h", "7d", "30d")]
    answers += [series_answer(one, "24h", step, now=NOW) for one in scopes for step in ("1m", "7m", "1h", "5h")]
    answers += [live_counts(one) for one in scopes]
    today = NOW.date()
    answers.append(selectors.totals_by_day_and_model(of(chat), today - timedelta(days=2), today))
    return answers


def live_counts(scope: Scope) -> Any:
    return selectors.totals_counts(scope, window_of("24h", NOW))


def test_a_piece_that_is_not_rolled_any_more_is_not_believed(chat: Namespace) -> None:
    hour = NOW.replace(minute=0, second=0) - timedelta(hours=3)
    store(Counted(chat, hour))
    rolled(3_600, hour, hour + timedelta(hours=1))
    store(Counted(chat, hour + MINUTE))  # late: whoever stores it takes the hour's mark away
    assert stats_answer(of(chat), "24h", now=NOW)["requests"] == 1
    Rolled.objects.all().delete()
    assert stats_answer(of(chat), "24h", now=NOW)["requests"] == 2


def test_the_points_of_a_series_are_together_what_stats_says(chat: Namespace) -> None:
    store(*(Counted(chat, ago(minutes), counts(minutes)) for minutes in range(0, 1_500, 13)))
    whole = stats_answer(of(chat), "24h", now=NOW)
    for step in ("1m", "7m", "1h", "1d", None):
        found = series_answer(of(chat), "24h", step, now=NOW)
        assert sum(one["requests"] for one in found["points"]) == whole["requests"]
        assert {one["at"].second for one in found["points"]} == {0}
    assert [one["hit_ratio"] for one in series_answer(of(chat), "1h", "30m", now=NOW)["points"]][-1] is not None


def test_probes_and_pins_are_nobodys_numbers(chat: Namespace) -> None:
    store(Counted(chat, ago(1)), Counted(chat, ago(1), kind="probe"), Counted(chat, ago(1), kind="pin"))
    assert stats_answer(of(chat), "24h", now=NOW)["requests"] == 1
    assert stats_answer(FLEET, "24h", now=NOW)["requests"] == 1
    window = window_of("24h", NOW)
    assert selectors.totals(of(chat), window, kinds=["probe"]).counts["requests"] == 1
    assert selectors.totals(FLEET, window, kinds=["customer", "probe", "pin"]).counts["requests"] == 3


def test_blocks_that_left_are_counted_beside_requests_and_not_as_such(chat: Namespace) -> None:
    store(
        Counted(chat, ago(3), {"evicted_blocks": 7, "expired_blocks": 2}, model="", kind=CACHE_KIND, kv_dtype=""),
        Counted(chat, ago(3)),
    )
    found = stats_answer(of(chat), "24h", now=NOW)
    assert found["blocks_left"] == {"expired": 2, "evicted": 7, "quota": 0, "purged": 0}
    assert found["requests"] == 1
    assert [one["model"] for one in found["by_model"]] == ["m"]


def test_missed_tokens_have_every_reason(chat: Namespace) -> None:
    missed = {MISSED_COLUMN[reason]: number for number, reason in enumerate(MISSED, start=1)}
    store(Counted(chat, ago(1), counts(**missed)), Counted(chat, ago(2), counts(**missed)))
    found = stats_answer(of(chat), "24h", now=NOW)["missed_tokens_by_reason"]
    assert found == {reason: 2 * number for number, reason in enumerate(MISSED, start=1)}


def test_without_tokens_there_is_no_ratio(chat: Namespace) -> None:
    found = stats_answer(of(chat), "24h", now=NOW)
    assert (found["requests"], found["hit_ratio"], found["covered_seconds"]) == (0, None, 0)
    assert (found["by_namespace"], found["by_model"], found["resident_bytes"]) == ([], [], 0)
    assert set(found["ttft_ms"].values()) == {None}
    assert found["saved"] == {"tokens": 0, "seconds": None, "money": None}


def test_the_window_before_ends_where_this_one_begins(chat: Namespace) -> None:
    first = ago(24 * 60)
    store(Counted(chat, first), Counted(chat, first - MINUTE, counts(5, 500, 100)), Counted(chat, first - days(1)))
    before = stats_answer(of(chat), "24h", now=NOW)["before"]
    assert (before["to"], before["from"]) == (first.replace(second=0), first.replace(second=0) - days(1))
    assert (before["requests"], before["prompt_tokens"], before["cached_tokens"]) == (6, 600, 160)


def test_how_much_of_the_window_before_was_counted_is_told(chat: Namespace) -> None:
    """Or everybody's second day would be held against the minutes of their first."""
    began = ago(24 * 60).replace(second=0)
    store(Counted(chat, NOW), Counted(chat, began - 3 * MINUTE))
    assert stats_answer(of(chat), "24h", now=NOW)["before"]["covered_seconds"] == 180
    assert live_message(f"org/{chat.organisation_id}", now=NOW)["covered_seconds_before"] == 180
    store(Counted(chat, began - days(1)))
    assert stats_answer(of(chat), "24h", now=NOW)["before"]["covered_seconds"] == 86_400
    assert live_message("fleet", now=NOW)["covered_seconds_before"] == 86_400


def test_hits_are_compared_with_misses_of_the_same_length(chat: Namespace) -> None:
    many = ttft(20, 30, cached=80) | ttft(100, 25) | ttft(2_000, 90, prompt=50_000)
    store(Counted(chat, ago(1), counts(145), many))
    found = stats_answer(of(chat), "24h", now=NOW)
    short, *_, long = (one for one in found["ttft_by_length"] if one["hits"] or one["misses"])
    assert (short["prompt_tokens_up_to"], short["hits"], short["misses"]) == (256, 30, 25)
    assert (long["hits"], long["misses"], long["miss_p50"]) == (0, 90, None)
    assert found["ttft_ms"]["hit_p50"] == pytest.approx(20, rel=0.02)
    assert found["ttft_ms"]["miss_p50"] == pytest.approx(100, rel=0.02)
    assert found["ttft_ms"]["p99"] == pytest.approx(2_000, rel=0.02)
    assert found["saved"]["seconds"] == pytest.approx(30 * 0.080, rel=0.05)


def test_namespaces_and_models_each_have_their_part(chat: Namespace) -> None:
    mail = make_namespace(chat.organisation, "mail")
    store(Counted(chat, ago(1)), Counted(chat, ago(1), model="n"), Counted(mail, ago(1), counts(9, 900, 0)))
    Residence.objects.create(agent="agent-1", namespace_id=mail.pk, boot="b", resident_bytes=4_096, at=NOW)
    Residence.objects.create(agent="agent-2", namespace_id=mail.pk, boot="c", resident_bytes=4, at=NOW)
    found = stats_answer(of(chat), "24h", now=NOW)
    assert [(one["namespace"], one["requests"], one["resident_bytes"]) for one in found["by_namespace"]] == [
        ("mail", 9, 4_100),
        ("chat", 2, 0),
    ]
    assert [(one["model"], one["requests"]) for one in found["by_model"]] == [("m", 10), ("n", 1)]
    assert found["resident_bytes"] == 4_100
    of_one = stats_answer(of(chat, model="n"), "24h", now=NOW)
    assert (of_one["requests"], of_one["resident_bytes"]) == (1, None)
    assert stats_answer(of(chat, namespace=mail.pk), "24h", now=NOW)["requests"] == 9


def test_the_fleet_is_everybody_and_each_of_them(chat: Namespace, globex: Namespace) -> None:
    store(Counted(chat, ago(1)), Counted(globex, ago(1), counts(4, 400, 0)))
    found = stats_answer(FLEET, "24h", now=NOW)
    assert [(one["organisation"], one["requests"]) for one in found["by_organisation"]] == [("globex", 4), ("acme", 1)]
    assert found["requests"] == 5
    assert "by_namespace" not in found


def test_the_numbers_of_a_deleted_namespace_stay_and_say_so(chat: Namespace) -> None:
    store(Counted(chat, ago(1)))
    Namespace.objects.filter(pk=chat.pk).update(deleted_at=NOW)
    (row,) = stats_answer(of(chat), "24h", now=NOW)["by_namespace"]
    assert (row["namespace"], row["is_deleted"], row["requests"]) == ("chat", True, 1)


@pytest.mark.parametrize("is_fleet", [False, True])
def test_three_minutes_of_a_day_are_called_that(chat: Namespace, is_fleet: bool) -> None:
    scope = FLEET if is_fleet else of(chat)
    first = ago(3).replace(second=0)
    store(Counted(chat, first), Counted(chat, ago(1)))
    assert stats_answer(scope, "24h", now=NOW)["covered_seconds"] == 195
    for level in (60, 300, 3_600, 86_400):  # however coarse the pieces are that say so
        rolled(level, first, first + MINUTE)
        assert selectors.first_minute(scope, now=NOW) == first


def test_pieces_alone_say_since_when_there_are_numbers(chat: Namespace) -> None:
    """Their minutes are gone."""
    old = NOW.replace(minute=20, second=0) - days(20)
    store(Counted(chat, old))
    rolled(86_400, old, old + MINUTE)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM analytics_minute")
    Piece.objects.filter(level=300).delete()
    Rolled.objects.filter(level=300).delete()
    assert selectors.first_minute(of(chat)) == old.replace(minute=0)
    assert stats_answer(of(chat), "24h", now=NOW)["covered_seconds"] == 86_400
    assert stats_answer(of(chat), "30d", now=NOW)["requests"] == 1


def test_a_window_that_began_before_the_first_number_is_not_covered_by_more_than_it_has() -> None:
    window = window_of("1h", NOW)
    assert covered_seconds(window, None) == 0
    assert covered_seconds(window, NOW - days(40)) == 3_600
    assert covered_seconds(window, NOW + MINUTE) == 0


def test_now_is_the_databases(chat: Namespace) -> None:
    before = database_now()
    found = stats_answer(of(chat), "24h")
    assert before <= found["as_of"] <= database_now()


@pytest.mark.parametrize("is_fleet", [False, True])
def test_what_sockets_tell_is_what_the_api_answers(chat: Namespace, is_fleet: bool) -> None:
    now = database_now()
    store(Counted(chat, now), Counted(chat, now - days(1.5), counts(2, 200, 20)))
    message = live_message("fleet" if is_fleet else f"org/{chat.organisation_id}")
    answer = stats_answer(FLEET if is_fleet else of(chat), "24h")
    for name in ("requests", "prompt_tokens", "cached_tokens", "hit_ratio", "window_seconds"):
        assert message[name] == answer[name]
    assert (message["requests"], message["hit_ratio"], message["hit_ratio_before"]) == (1, 0.6, 0.1)
    assert (message["type"], message["saved_tokens"]) == ("stats", 60)
    assert message["seq"] == int(datetime.fromisoformat(message["as_of"]).timestamp() * 1_000)
    assert json.loads(json.dumps(message)) == message


@pytest.mark.parametrize("name", ["24h", "30d"])
def test_it_takes_as_many_questions_whatever_there_is(chat: Namespace, name: str) -> None:
    store(Counted(chat, ago(1)), Counted(chat, ago(100)))
    rolled(3_600, ago(120), ago(60))
    few = [queries(scope, name) for scope in (FLEET, of(chat))]
    more = [make_namespace(chat.organisation, f"x{number}") for number in range(20)]
    store(*(Counted(one, ago(minutes), model=f"m{minutes}") for one in more for minutes in range(2, 200, 40)))
    rolled(3_600, ago(240), ago(60))
    assert [queries(scope, name) for scope in (FLEET, of(chat))] == few


def queries(scope: Scope, name: str) -> int:
    with CaptureQueriesContext(connection) as asked:
        stats_answer(scope, name, now=NOW)
    return len(asked)


# Over REST


@pytest.fixture
def acme_key(chat: Namespace) -> Api:
    return Api(make_key(chat.organisation, "stats:read"), Client())


def test_the_answer_has_the_members_of_the_contract(chat: Namespace, acme_key: Api) -> None:
    store(Counted(chat, timezone.now()))
    found = said(acme_key.get("/orgs/acme/stats"))
    contract = {
        "window_seconds", "from", "to", "as_of", "requests", "prompt_tokens", "cached_tokens", "hit_ratio", "ttft_ms",
        "saved", "missed_tokens_by_reason", "resident_bytes", "by_namespace", "by_model",
        "by_key",
    }  # fmt: skip
    assert contract <= set(found)
    assert {"p50", "p95", "p99", "hit_p50", "miss_p50"} == set(found["ttft_ms"])
    assert {"tokens", "seconds", "money"} == set(found["saved"])
    assert (found["requests"], found["to"]) == (1, found["as_of"])


def test_a_key_bound_to_namespaces_sees_those_alone(chat: Namespace) -> None:
    mail = make_namespace(chat.organisation, "mail")
    store(Counted(chat, timezone.now()), Counted(mail, timezone.now(), counts(9)))
    bound = Api(make_key(chat.organisation, "stats:read", namespaces=[chat]), Client())
    found = said(bound.get("/orgs/acme/stats"))
    assert (found["requests"], [one["namespace"] for one in found["by_namespace"]]) == (1, ["chat"])
    points = said(bound.get("/orgs/acme/stats/series"))["points"]
    assert sum(one["requests"] for one in points) == 1
    theirs, absent = (bound.get(f"/orgs/acme/stats?namespace={slug}") for slug in ("mail", "nowhere"))
    assert [theirs.status_code, absent.status_code] == [404, 404]
    assert said(theirs)["detail"] == said(absent)["detail"]
    assert said(bound.get("/orgs/acme/stats?namespace=chat"))["requests"] == 1


@pytest.mark.parametrize("query", ["namespace=nowhere", "namespace=default"])
def test_a_namespace_of_another_organisation_is_not_there(globex: Namespace, query: str) -> None:
    Organisation.objects.filter(pk=globex.organisation_id).update(slug="globex")
    acme = make_organisation("acme")
    Namespace.objects.filter(organisation=acme).update(deleted_at=timezone.now())
    answer = Api(make_key(acme), Client()).get(f"/orgs/acme/stats?{query}")
    assert answer.status_code == 404


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("window=25h", "window"),
        ("window=", "window"),
        ("format=xml", "format"),
        ("namespace=No%20Slug", "namespace"),
        ("model=%20", "model"),
    ],
)
def test_a_bad_parameter_is_refused_by_name(acme_key: Api, query: str, field: str) -> None:
    for path in ("stats", "stats/series"):
        answer = acme_key.get(f"/orgs/acme/{path}?{query}")
        assert (answer.status_code, said(answer)["errors"][0]["field"]) == (422, field)


@pytest.mark.parametrize("step", ["0m", "5s", "-1h", "1.5h", "99999999999d", "window=7d&step=1m", "1m&window=30d"])
def test_a_bad_step_is_refused_by_name(acme_key: Api, step: str) -> None:
    query = step if step.startswith("window") else f"step={step}"
    answer = acme_key.get(f"/orgs/acme/stats/series?{query}")
    assert (answer.status_code, said(answer)["errors"][0]["field"]) == (422, "step")


def test_a_step_has_no_meaning_without_a_series(acme_key: Api) -> None:
    assert acme_key.get("/orgs/acme/stats?step=5m").status_code == 400


def test_the_tag_stays_until_the_numbers_move(chat: Namespace, acme_key: Api) -> None:
    now = timezone.now()
    store(Counted(chat, now))
    first = acme_key.get("/orgs/acme/stats")
    assert (first["Cache-Control"], first["Vary"]) == ("private, max-age=1", "Authorization")
    again = acme_key.get("/orgs/acme/stats", If_None_Match=first["ETag"])
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", first["ETag"])
    store(Counted(chat, now, agent="agent-2"))
    moved = acme_key.get("/orgs/acme/stats", If_None_Match=first["ETag"])
    assert moved.status_code == 200
    assert moved["ETag"] != first["ETag"]


def table(answer: Any) -> Iterator[dict[str, str]]:
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    return csv.DictReader(io.StringIO(answer.content.decode()))


def test_csv_has_a_row_for_all_for_each_part_and_for_the_window_before(chat: Namespace, acme_key: Api) -> None:
    store(Counted(chat, timezone.now(), model="=cmd|'/c calc'!A1"))
    rows = list(table(acme_key.get("/orgs/acme/stats?format=csv")))
    assert [(one["of"], one["name"], one["requests"]) for one in rows] == [
        ("total", "", "1"),
        ("namespace", "chat", "1"),
        ("model", "'=cmd|'/c calc'!A1", "1"),
        ("key", "", "1"),  # of which no key is known
        ("before", "", "0"),
    ]
    assert (rows[0]["hit_ratio"], rows[-1]["hit_ratio"]) == ("0.6", "")


def test_a_series_as_csv_has_a_row_for_each_point(chat: Namespace, acme_key: Api) -> None:
    store(Counted(chat, timezone.now()))
    rows = list(table(acme_key.get("/orgs/acme/stats/series?window=1h&format=csv")))
    points = said(acme_key.get("/orgs/acme/stats/series?window=1h"))["points"]
    assert abs(len(rows) - len(points)) <= 1  # a minute may have begun between the two
    assert sum(int(one["requests"]) for one in rows) == 1


def test_operators_read_the_fleet_by_organisation(chat: Namespace, globex: Namespace, operator: Api) -> None:
    store(Counted(chat, timezone.now()), Counted(globex, timezone.now(), counts(2, 20, 1), model="n"))
    found = said(operator.get("/fleet/stats"))
    assert (found["requests"], [one["organisation"] for one in found["by_organisation"]]) == (3, ["acme", "globex"])
    assert said(operator.get("/fleet/stats?model=n"))["requests"] == 2
    assert sum(one["requests"] for one in said(operator.get("/fleet/stats/series?step=1h"))["points"]) == 3
    rows = list(table(operator.get("/fleet/stats?format=csv")))
    assert [one["of"] for one in rows] == ["total", "organisation", "organisation", "model", "model", "before"]


# On the command line, and beside what writes


@pytest.fixture
def luminet(
    live_server: LiveServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """What a command says to somebody who may read acme's numbers."""
    monkeypatch.setenv("LUMINET_URL", live_server.url)
    chat = make_organisation("acme", "chat").namespaces.get(slug="chat")
    now = database_now()
    store(Counted(chat, now, counts(3, 3_000, 2_100, missed_cold=900), ttft(20, 30, cached=80) | ttft(100, 25)))
    monkeypatch.setenv("LUMINET_TOKEN", make_key(chat.organisation, "stats:read"))

    def run(*arguments: str) -> str:
        assert main(arguments) == 0
        return capsys.readouterr().out

    return run


@pytest.mark.django_db(transaction=True)
def test_the_command_says_it_for_people(luminet: Callable[..., str]) -> None:
    said_to_people = luminet("stats", "acme")
    for words in ("s of 24 h", "70.0 % of prompt tokens", "3,000 prompt, 2,100 of them cached", "cold", "900", "chat"):
        assert words in said_to_people
    assert "for prompts as long" in said_to_people
    assert "not enough misses" in luminet("stats", "acme/default", "--window", "1h")


@pytest.mark.django_db(transaction=True)
def test_the_command_says_it_for_programs(luminet: Callable[..., str]) -> None:
    assert json.loads(luminet("stats", "acme", "--namespace", "chat", "--json"))["cached_tokens"] == 2_100
    rows = list(csv.DictReader(io.StringIO(luminet("stats", "acme", "--csv"))))
    assert (rows[0]["of"], rows[0]["cached_tokens"]) == ("total", "2100")


@pytest.mark.django_db(transaction=True)
def test_all_of_an_answer_is_of_one_moment_while_rows_come_in(chat: Namespace) -> None:
    store(Counted(chat, ago(5)))
    with consistent_read():
        before = stats_answer(of(chat), "24h", now=NOW)
        in_another_thread(lambda: store(Counted(chat, ago(4))))
        after = stats_answer(of(chat), "24h", now=NOW)
    assert (before["requests"], after["requests"]) == (1, 1)
    assert stats_answer(of(chat), "24h", now=NOW)["requests"] == 2


def in_another_thread(work: Callable[[], None]) -> None:
    """With a connection of its own, that ends with it."""

    def run() -> None:
        try:
            work()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as beside:
        beside.submit(run).result()
