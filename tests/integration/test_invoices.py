"""Invoices: their lines' tokens are the counters', whatever these are read from, and their amounts are exact."""

import csv
import io
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.analytics import invoices, selectors
from controlplane.analytics.ingest import usage_store
from controlplane.analytics.invoices import DELETED, invoice
from controlplane.analytics.models import Piece, Price, Rolled
from controlplane.common.csv_text import csv_text
from engine_agent.contracts.usage import Row, row_document
from engine_agent.contracts.wire import Report
from tenants.actor import SYSTEM
from tenants.errors import InvalidFields
from tenants.models import Namespace
from tenants.services.namespaces import namespace_delete
from tenants.services.organisations import organisation_delete, remains_remove
from tests.database.factories import make_namespace
from tests.usage.rows import Counted, counts, rolled, store
from tests.web.api import Api, make_key, make_organisation, said

pytestmark = pytest.mark.django_db
DAY = 86_400


@pytest.fixture
def chat() -> Namespace:
    return make_organisation("acme", "chat").namespaces.get(slug="chat")


def midnight(days_ago: int = 0) -> datetime:
    now = timezone.now().astimezone(UTC)
    return now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=days_ago)


def price(days_ago: int = 900, model: str = "", asked: str = "2 0.5 8", **more: Any) -> None:
    names = ("input", "cached_input", "output")
    numbers = dict(zip(names, map(Decimal, asked.split()), strict=True))
    begins = midnight(days_ago).date()
    Price.objects.create(**{"model": model, "valid_from": begins, "currency": "EUR"}, **numbers, **more)


def tokens(prompt: int, cached: int, generated: int, *, requests: int = 1) -> dict[str, int]:
    return counts(requests, prompt, cached, generated_tokens=generated)


def days(first_ago: int, last_ago: int = 0) -> tuple[date, date]:
    return midnight(first_ago).date(), midnight(last_ago).date()


def shown(chat: Namespace, first_ago: int = 0, last_ago: int = 0, **more: Any) -> list[tuple[Any, ...]]:
    """How many days ago, where, which model, and the three counts of each line."""
    found = invoice(chat.organisation, *days(first_ago, last_ago), **more)
    today = midnight().date()
    return [
        ((today - one.day).days, one.namespace, one.model, one.tokens.prompt, one.tokens.cached, one.tokens.generated)
        for one in found.lines
    ]


# -- lines are the counters


def test_a_line_is_a_day_of_a_namespace_and_a_model(chat: Namespace) -> None:
    default = Namespace.objects.get(organisation=chat.organisation, slug="default")
    store(
        Counted(chat, midnight(1), tokens(10, 4, 1)),
        Counted(chat, midnight(1) + timedelta(minutes=1_439), tokens(20, 0, 2)),  # the day's last minute
        Counted(chat, midnight(1), tokens(40, 4, 3), agent="agent-2"),
        Counted(chat, midnight(1), tokens(80, 4, 4), kv_dtype="fp8"),
        Counted(chat, midnight(1), tokens(5, 5, 5), model="n"),
        Counted(default, midnight(0), tokens(7, 0, 6)),
    )
    assert shown(chat, 1) == [
        (1, "chat", "m", 150, 12, 10),
        (1, "chat", "n", 5, 5, 5),
        (0, "default", "m", 7, 0, 6),
    ]
    assert shown(chat, 1, 1, by="model") == [(1, None, "m", 150, 12, 10), (1, None, "n", 5, 5, 5)]
    assert shown(chat, 2, 2) == []


def test_probes_pins_and_other_organisations_are_on_nobodys_invoice(chat: Namespace) -> None:
    theirs = make_organisation("globex").namespaces.get()
    store(
        Counted(chat, midnight(), tokens(1, 0, 0)),
        Counted(chat, midnight(), tokens(2, 0, 0), kind="probe"),
        Counted(chat, midnight(), tokens(4, 0, 0), kind="pin"),
        Counted(chat, midnight(), {"evicted_blocks": 8}, kind="cache", model="", kv_dtype=""),
        Counted(theirs, midnight(), tokens(16, 0, 0)),
    )
    assert shown(chat) == [(0, "chat", "m", 1, 0, 0)]


def test_it_is_the_same_from_minutes_and_from_every_size_of_piece(chat: Namespace) -> None:
    start = midnight(2)
    store(*(Counted(chat, start + timedelta(minutes=7 * one), tokens(100 + one, one, 1)) for one in range(200)))
    wanted = shown(chat, 3)
    assert len(wanted) == 1
    for level, at in ((300, start), (3_600, start + timedelta(hours=5)), (3_600, start), (DAY, start)):
        rolled(level, at, at + timedelta(seconds=level))
        assert shown(chat, 3) == wanted


def test_a_day_is_read_from_its_piece_when_all_else_is_gone(chat: Namespace) -> None:
    store(Counted(chat, midnight(700) + timedelta(hours=3), tokens(1_000_000, 400_000, 10)))
    rolled(DAY, midnight(700), midnight(699))
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM analytics_minute")
    Piece.objects.filter(level__lt=DAY).delete()
    Rolled.objects.filter(level__lt=DAY).delete()
    assert shown(chat, 799, 690) == [(700, "chat", "m", 1_000_000, 400_000, 10)]


rows = st.lists(
    st.tuples(
        st.integers(0, 3 * 1_440 - 1),  # minutes before the end of today
        st.sampled_from(["chat", "default"]),
        st.sampled_from(["m", "n"]),
        st.integers(0, 10**15),
        st.integers(0, 10**15),
        st.integers(0, 10**15),
    ),
    max_size=12,
    unique_by=lambda one: one[:3],
)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows, st.sets(st.integers(0, 71), max_size=3))
def test_lines_add_up_to_the_counters_and_amounts_to_brute_force(
    chat: Namespace, told: list[tuple[Any, ...]], hours: set[int]
) -> None:
    with transaction.atomic():
        price(3, "", "0.123456789 0.000000001 7")
        price(1, "m", "3 1 4")
        places = {one.slug: one for one in chat.organisation.namespaces.all()}
        end = midnight(-1)
        store(
            *(
                Counted(places[slug], end - timedelta(minutes=ago + 1), tokens(more + cached, cached, out), model=model)
                for ago, slug, model, more, cached, out in told
            )
        )
        for ago in {told[number % len(told)][0] // 60 for number in hours} if told else hours:
            rolled(3_600, end - timedelta(hours=ago + 1), end - timedelta(hours=ago))
        found = invoice(chat.organisation, *days(2))
        assert found.tokens.prompt == sum(one[3] + one[4] for one in told)
        assert found.tokens.cached == sum(one[4] for one in told)
        assert found.tokens.generated == sum(one[5] for one in told)
        wanted, saved = Fraction(0), Fraction(0)
        for ago, _, model, more, cached, out in told:
            is_new = model == "m" and ago < 2 * 1_440
            paid = (3, 1, 4) if is_new else (Fraction("0.123456789"), Fraction("0.000000001"), 7)
            wanted += Fraction(more * paid[0] + cached * paid[1] + out * paid[2], 10**6)
            saved += Fraction(cached * (paid[0] - paid[1]), 10**6)
        assert found.cost is not None
        assert (Fraction(found.cost.amount), Fraction(found.cost.saved)) == (wanted, saved)
        transaction.set_rollback(True)


def test_what_agents_reported_is_what_is_invoiced(chat: Namespace) -> None:
    """Taken in as an agent tells it, in parts and in any order."""
    now = timezone.now()
    told, wanted = list[Row](), Counter[tuple[date, str]]()
    for number in range(60):
        at = int((now - timedelta(minutes=(number * 797) % 2_800)).timestamp()) // 60 * 60
        model, missed = "mn"[number % 2], 1_000 + number
        some = {"requests": 1, "prompt_tokens": missed + 7, "cached_tokens": 7, "generated_tokens": 3}
        owner, namespace = str(chat.organisation_id), str(chat.pk)
        told.append(Row(at, owner, namespace, model, "bf16", "customer", some, {"cold": missed}))
        wanted[datetime.fromtimestamp(at, UTC).date(), model] += missed + 7
    for number, rows_of_one in enumerate((told[:25], told[25:26], told[26:]), 1):
        ingest(number, rows_of_one, now)
    found = invoice(chat.organisation, *days(3), by="model")
    assert {(one.day, one.model): one.tokens.prompt for one in found.lines} == wanted
    totals = selectors.totals_by_day_and_model(selectors.Scope(chat.organisation_id), *days(3))
    assert {key: one["prompt_tokens"] for key, one in totals.items()} == wanted


def ingest(number: int, told: list[Row], now: datetime) -> None:
    documents = [row_document(one) for one in told]
    report = Report("usage", {"boot": "b1", "upto": number, "rows": documents, "totals": {}, "lost": 0})
    with transaction.atomic():
        refused = usage_store({"agent-1": [(number, report)]}, now)
    assert not any(refused.values())


# -- money


def test_a_change_of_prices_in_the_middle_pays_each_day_as_it_was(chat: Namespace) -> None:
    price(5, asked="2 0.5 8")
    price(1, asked="4 1 8")
    price(0, "m", asked="1 0 0", is_example=True)
    store(*(Counted(chat, midnight(ago), tokens(2_000_000, 1_000_000, 0)) for ago in (2, 1, 0)))
    found = invoice(chat.organisation, *days(9))
    assert [one.cost and str(one.cost.amount.normalize()) for one in found.lines] == ["2.5", "5", "1"]
    assert [one.price and one.price.is_example for one in found.lines] == [False, False, True]
    assert found.cost is not None
    assert (found.cost.amount, found.cost.saved, found.is_example) == (Decimal("8.5"), Decimal("5.5"), True)


def test_a_line_without_a_price_has_no_amount_and_is_said_to_have_none(chat: Namespace) -> None:
    price(0, "m")
    rows = [Counted(chat, midnight(ago), tokens(1_000_000, 0, 0), model=one) for ago in (1, 0) for one in "mn"]
    store(*rows)
    found = invoice(chat.organisation, *days(1))
    assert [one.cost is None for one in found.lines] == [True, True, False, True]
    assert (found.without_price, found.currency) == (["m", "n"], "EUR")
    assert found.cost is not None
    assert found.cost.amount == 2
    only_yesterday = invoice(chat.organisation, *days(1, 1))
    assert (only_yesterday.cost, only_yesterday.currency) == (None, None)
    assert only_yesterday.tokens.prompt == 2_000_000


def test_a_billion_billion_tokens_are_counted_to_the_last(chat: Namespace) -> None:
    price(asked="999999999.999999999 0.000000001 1")
    store(Counted(chat, midnight(), tokens(10**18 + 7, 10**18 - 1, 1)))
    found = invoice(chat.organisation, *days(0))
    assert found.cost is not None
    wanted = 8 * Fraction("999999999.999999999") + (10**18 - 1) * Fraction("0.000000001") + 1
    assert Fraction(found.cost.amount) == wanted / 10**6


@pytest.mark.parametrize("changed", [date(2026, 3, 29), date(2026, 10, 25), date(2026, 3, 8), date(2026, 11, 1)])
def test_a_day_on_which_clocks_change_has_24_hours(chat: Namespace, changed: date) -> None:
    start = datetime(changed.year, changed.month, changed.day, tzinfo=UTC)
    hours = [start + timedelta(hours=one, minutes=59) for one in range(-1, 25)]
    store(*(Counted(chat, at, tokens(1, 0, 0)) for at in hours))
    with timezone.override("Europe/Berlin"), connection.cursor() as cursor:
        cursor.execute("SET LOCAL TIME ZONE 'America/New_York'")
        found = invoice(chat.organisation, changed - timedelta(days=1), changed + timedelta(days=1))
    assert [one.requests for one in found.lines] == [1, 24, 1]
    assert [one.day for one in found.lines] == [changed + timedelta(days=one) for one in (-1, 0, 1)]


# -- whose, and how far


def test_deleted_namespaces_stay_on_the_invoice(chat: Namespace) -> None:
    acme = chat.organisation
    mail = make_namespace(acme, "mail")
    store(Counted(chat, midnight(), tokens(1, 0, 0)), Counted(mail, midnight(), tokens(2, 0, 0)))
    namespace_delete(actor=SYSTEM, namespace=mail, expected=None)
    assert shown(chat) == [(0, "chat", "m", 1, 0, 0), (0, "mail", "m", 2, 0, 0)]
    again = make_namespace(acme, "mail")  # of the same name: to who pays it is the same
    store(Counted(again, midnight(), tokens(4, 0, 0)))
    assert shown(chat)[1:] == [(0, "mail", "m", 6, 0, 0)]
    remains_remove()
    assert not Namespace.objects.filter(pk=mail.pk).exists()
    assert shown(chat) == [(0, DELETED, "m", 2, 0, 0), (0, "chat", "m", 1, 0, 0), (0, "mail", "m", 4, 0, 0)]


def test_of_a_deleted_organisation_there_is_nothing_to_ask_for_and_nothing_is_lost(
    chat: Namespace, operator: Api
) -> None:
    store(Counted(chat, midnight(), tokens(1, 0, 0)))
    organisation = chat.organisation
    organisation_delete(actor=SYSTEM, organisation=organisation, expected=None)
    assert operator.get("/orgs/acme/invoice").status_code == 404
    assert invoice(organisation, *days(0)).tokens.prompt == 1
    make_organisation("acme")  # whoever comes after it has their own numbers
    assert said(operator.get("/orgs/acme/invoice"))["lines"] == []


def test_days_are_checked_by_name(operator: Api, chat: Namespace) -> None:
    today = midnight().date()
    asked = {
        "from=2026-11-22T00:00:00Z": "from",
        "from=20000": "from",
        "to=yesterday": "to",
        f"from={today}&to={today - timedelta(days=1)}": "to",
        f"from={today - timedelta(days=400)}": "to",
        f"from={today - timedelta(days=800)}&to={today - timedelta(days=700)}": "from",
        "by=agent": "by",
        "format=xml": "format",
        "month=2026-11": "month",
    }
    found = {query: operator.get(f"/orgs/acme/invoice?{query}") for query in asked}
    assert {query: said(one)["errors"][0]["field"] for query, one in found.items()} == asked
    assert {one.status_code for one in found.values()} == {400, 422}
    for query in (
        f"from={today - timedelta(days=399)}",
        f"from={days(799)[0]}&to={days(700)[0]}",
        "to=2999-12-31&from=2999-12-01",
    ):
        assert operator.get(f"/orgs/acme/invoice?{query}").status_code == 200, query


def test_more_lines_than_anybody_reads_are_refused(chat: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invoices, "MOST_LINES", 1)
    store(Counted(chat, midnight(), tokens(1, 0, 0)))
    assert len(shown(chat)) == 1
    store(Counted(chat, midnight(), tokens(1, 0, 0), model="n"))
    with pytest.raises(InvalidFields, match="to: makes 2 lines"):
        shown(chat)


def test_it_takes_the_same_questions_however_much_there_is(
    chat: Namespace, operator: Api, django_assert_num_queries: Any
) -> None:
    store(Counted(chat, midnight(), tokens(1, 0, 0)))
    operator.get("/whoami")
    with CaptureQueriesContext(connection) as few:
        operator.get("/orgs/acme/invoice")
    others = [make_namespace(chat.organisation, f"n{number}") for number in range(20)]
    store(*(Counted(one, midnight(ago), tokens(1, 0, 0)) for one in others for ago in range(9)))
    price()
    with django_assert_num_queries(len(few)):
        found = said(operator.get(f"/orgs/acme/invoice?from={midnight(9).date()}"))
    assert len(found["lines"]) == 181


# -- as it is answered


def test_the_answer_says_what_is_open_what_is_an_example_and_what_is_exact(operator: Api, chat: Namespace) -> None:
    price(asked="0.15 0.015 0.6", is_example=True)
    store(*(Counted(chat, midnight(ago), tokens(5_000, 3_000, 500, requests=3)) for ago in (9, 0)))
    found = said(operator.get(f"/orgs/acme/invoice?from={midnight(9).date()}"))
    assert (found["organisation"], found["currency"], found["is_example"]) == ("acme", "EUR", True)
    assert (found["is_open"], [one["is_open"] for one in found["lines"]]) == (True, [False, True])
    assert (found["from"], found["to"]) == (str(midnight(9).date()), str(midnight().date()))
    line = {name: found["lines"][0][name] for name in ("amount", "amount_rounded", "saved", "saved_rounded")}
    assert line == {
        "amount": "0.000645", "amount_rounded": "0.00065", "saved": "0.000405", "saved_rounded": "0.00041"
    }  # fmt: skip
    assert found["totals"] == {
        "requests": 6, "prompt_tokens": 10_000, "cached_tokens": 6_000, "generated_tokens": 1_000,
        "amount": "0.00129", "amount_rounded": "0.0013", "saved": "0.00081", "saved_rounded": "0.00081",
    }  # fmt: skip
    assert found["may_change_from"] == str(midnight(2).date())
    over = said(operator.get(f"/orgs/acme/invoice?from={midnight(9).date()}&to={midnight(5).date()}"))
    assert (over["is_open"], over["may_change_from"]) == (False, None)


def test_without_any_day_named_it_is_this_month_so_far(operator: Api, chat: Namespace) -> None:
    found = said(operator.get("/orgs/acme/invoice"))
    assert (found["from"], found["to"]) == (str(midnight().date().replace(day=1)), str(midnight().date()))
    assert (found["lines"], found["totals"]["amount"], found["currency"]) == ([], "0", None)


def test_csv_has_the_same_lines_and_no_formula(operator: Api, chat: Namespace) -> None:
    price(asked="0.15 0.015 0.6")
    store(
        Counted(chat, midnight(), tokens(5_000, 3_000, 500), model="=HYPERLINK(1)"),
        Counted(chat, midnight(), tokens(1, 0, 0), model='a,"b"'),
    )
    answer = operator.get("/orgs/acme/invoice?format=csv")
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    today = midnight().date()
    name = f"invoice-acme-{today.replace(day=1)}-{today}.csv"
    assert answer["Content-Disposition"] == f'attachment; filename="{name}"'
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert [one["model"] for one in rows] == ["'=HYPERLINK(1)", 'a,"b"']
    lines = said(operator.get("/orgs/acme/invoice"))["lines"]
    for row, line in zip(rows, lines, strict=True):
        for field in ("day", "namespace", "prompt_tokens", "cached_tokens", "generated_tokens", "amount", "saved"):
            assert row[field] == str(line[field])
    assert (rows[0]["currency"], rows[0]["is_open"], rows[0]["is_example"]) == ("EUR", "true", "false")


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "  =1", "\n=1"])
def test_text_that_a_spreadsheet_would_compute_stays_text(text: str) -> None:
    (_, row) = csv.reader(io.StringIO(csv_text(["a"], [[text]]), newline=""))
    assert row == [f"'{text}"]


def test_members_keys_read_their_own_invoice_and_bound_ones_none(chat: Namespace) -> None:
    make_organisation("globex")
    whole = Api(make_key(chat.organisation, "stats:read"), Client())
    bound = Api(make_key(chat.organisation, "stats:read", namespaces=[chat]), Client())
    assert whole.get("/orgs/acme/invoice").status_code == 200
    assert whole.get("/orgs/globex/invoice").status_code == 404
    assert bound.get("/orgs/acme/invoice").status_code == 403
    assert Api(make_key(chat.organisation, "policy:write"), Client()).get("/orgs/acme/invoice").status_code == 403
