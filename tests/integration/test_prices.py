"""Prices: one list with a revision, read by everybody who pays by it; what was invoiced stays as it was."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from controlplane.analytics import models
from controlplane.analytics.money import Price
from controlplane.analytics.prices import MOST_PRICES, price_list, prices_now, prices_put
from tenants.actor import SYSTEM
from tenants.errors import InvalidFields, StaleRevision
from tenants.models import AuditRecord
from tests.support.threads import at_once
from tests.web.api import Api, make_key, make_organisation, said

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
TODAY = NOON.date()


def day(days: int, of: date = TODAY) -> date:
    return of + timedelta(days=days)


def price(days: int = 0, model: str = "", asked: str = "2 0.5 8", **more: Any) -> Price:
    names = ("input", "cached_input", "output")
    numbers = dict(zip(names, map(Decimal, asked.split()), strict=True))
    return Price(**{"model": model, "valid_from": day(days), "currency": "EUR", **numbers, **more})


def put(*prices: Price, now: datetime = NOON, expected: int | None = None) -> None:
    seen = None if expected is None else frozenset({expected})
    prices_put(actor=SYSTEM, prices=prices, expected=seen, now=now)


def refused(*prices: Price, now: datetime = NOON) -> dict[str, str]:
    before = price_list()
    with pytest.raises(InvalidFields) as found:
        put(*prices, now=now)
    assert price_list() == before
    return {one.field: one.message for one in found.value.problems}


def entry(days: int = 0, **more: Any) -> dict[str, Any]:
    """As it is sent: from so many days after the real today on."""
    begins = str(day(days, of=datetime.now(UTC).date()))
    return {"valid_from": begins, "input": "2", "cached_input": "0.5", "output": "8", **more}


def body(*prices: dict[str, Any], currency: str = "EUR") -> dict[str, Any]:
    return {"currency": currency, "prices": list(prices)}


# -- the list and its revision


def test_before_the_first_there_are_none_at_revision_0(operator: Api) -> None:
    answer = operator.get("/prices")
    assert said(answer) == {"revision": 0, "currency": None, "is_example": False, "prices": []}
    assert answer["ETag"] == '"0"'


def test_what_was_put_is_what_is_read_to_the_last_digit(operator: Api) -> None:
    wanted = [
        entry(3, model="qwen3-8b", input="0.000000001", cached_input="0", output="999999999.999999999"),
        entry(0, input=7, cached_input="0.500", output="8.10"),
    ]
    put_answer = operator.put("/prices", body(*wanted), seen=0)
    assert (put_answer.status_code, put_answer["ETag"]) == (200, '"1"')
    assert put_answer.content == operator.get("/prices").content
    found = said(put_answer)
    assert (found["currency"], found["is_example"]) == ("EUR", False)
    shown = [[one[name] for name in ("model", "input", "cached_input", "output")] for one in found["prices"]]
    assert shown == [["", "7", "0.5", "8.1"], ["qwen3-8b", "0.000000001", "0", "999999999.999999999"]]
    assert found["prices"][0]["created_by"].startswith("operator@luminet.example")


def test_a_stale_or_missing_if_match_changes_nothing(operator: Api) -> None:
    operator.put("/prices", body(entry()), seen=0)
    assert operator.put("/prices", body(), seen=0).status_code == 412
    assert operator.put("/prices", body()).status_code == 428
    assert said(operator.get("/prices"))["revision"] == 1
    assert operator.get("/prices", If_None_Match='"1"').status_code == 304


def test_the_same_list_again_is_no_new_revision_and_leaves_no_record(operator: Api) -> None:
    operator.put("/prices", body(entry(), entry(model="m")), seen=0)
    records = AuditRecord.objects.count()
    again = operator.put("/prices", body(entry(model="m"), entry(input="2.000")), seen=1)
    assert (again["ETag"], AuditRecord.objects.count()) == ('"1"', records)


def test_a_repeated_put_is_done_once(operator: Api) -> None:
    answers = [operator.put("/prices", body(entry()), seen=0, Idempotency_Key="k") for _ in range(2)]
    assert answers[0].content == answers[1].content
    assert [one.status_code for one in answers] == [200, 200]
    assert AuditRecord.objects.filter(verb="prices.set").count() == 1


def test_the_trail_has_the_list_before_and_after_with_every_digit(operator: Api) -> None:
    operator.put("/prices", body(entry(input="0.123456789", cached_input="0.1")), seen=0)
    operator.put("/prices", body(), seen=1)
    first, second = AuditRecord.objects.filter(verb="prices.set").order_by("seq")
    assert (json.loads(first.before), json.loads(second.after)) == ([], [])
    assert first.after == second.before
    assert json.loads(first.after)[0]["input"] == "0.123456789"
    assert first.organisation_id is None


def test_prices_that_stay_keep_who_wrote_them(operator: Api) -> None:
    put(price(-3))
    stays = entry(valid_from=str(day(-3)))
    found = said(operator.put("/prices", body(stays, entry(1, model="m")), seen=1))["prices"]
    assert [one["created_by"].partition(" ")[0] for one in found] == [SYSTEM.name, "operator@luminet.example"]


def test_organisations_read_what_operators_read_except_who_wrote_it(operator: Api) -> None:
    operator.put("/prices", body(entry(), entry(5, input="3"), entry(model="m", is_example=True)), seen=0)
    key = Api(make_key(make_organisation("acme"), "stats:read"), Client())
    theirs, ours = said(key.get("/prices")), said(operator.get("/prices"))
    assert {one.pop("created_by") for one in theirs["prices"]} == {None}
    assert all(one.pop("created_by") for one in ours["prices"])
    assert theirs == ours
    assert (theirs["is_example"], len(theirs["prices"])) == (True, 3)
    assert key.put("/prices", body(), seen=1).status_code == 403


def test_reading_takes_the_same_questions_however_many_there_are(operator: Api, django_assert_num_queries: Any) -> None:
    operator.get("/whoami")
    with CaptureQueriesContext(connection) as none:
        operator.get("/prices")
    put(*(price(number) for number in range(300)))
    with django_assert_num_queries(len(none)):
        assert len(said(operator.get("/prices"))["prices"]) == 300


# -- what was invoiced


def test_today_and_what_is_to_come_may_be_changed_and_taken_back() -> None:
    put(price(0), price(5, "m"))
    put(price(0, asked="3 1 9"), price(6, "m"))
    put()
    assert prices_now() == []


def test_a_price_of_a_day_before_today_cannot_change_and_the_number_is_named() -> None:
    put(price(-9), now=NOON - timedelta(days=9))
    found = refused(price(-9, asked="2 0.5 9"))
    assert list(found) == ["prices.0.output"]
    assert "on 2026-11-13, which has been invoiced: input 2, cached_input 0.5, output 8" in found["prices.0.output"]
    assert list(refused(price(-9, is_example=True))) == ["prices.0.is_example"]


def test_it_cannot_be_left_out() -> None:
    put(price(-9), price(-9, "m", "3 1 9"), now=NOON - timedelta(days=9))
    assert refused() == {
        "prices": "lacks the price of every model on 2026-11-13, which has been invoiced: "
        "input 2, cached_input 0.5, output 8"
    }
    assert refused(price(-9)) == {
        "prices.0": "would change the price of m on 2026-11-13, which has been invoiced: "
        "input 3, cached_input 1, output 9"
    }


def test_a_new_one_cannot_begin_in_days_that_had_another() -> None:
    put(price(-9), now=NOON - timedelta(days=9))
    assert list(refused(price(-9), price(-1, asked="3 1 9"))) == ["prices.1"]
    assert list(refused(price(-9), price(-1, "m", asked="3 1 9"))) == ["prices.1"]
    put(price(-9), price(0, asked="3 1 9"), price(0, "m"))


def test_yesterday_is_over_at_midnight_of_utc() -> None:
    put(price(0))
    midnight = datetime(2026, 11, 23, tzinfo=UTC)
    put(price(0, asked="3 1 9"), now=midnight - timedelta(microseconds=1))
    assert list(refused(price(0), now=midnight)) == ["prices.0.input"]


@pytest.mark.parametrize("hours", [-11, 14])
def test_in_which_zone_an_operator_sits_moves_no_day(hours: int) -> None:
    """Around a change of clocks, too: days are those of UTC, and have 24 hours all."""
    put(price(-30), now=NOON - timedelta(days=30))
    midnight = datetime(2026, 11, 23, tzinfo=UTC).astimezone(timezone(timedelta(hours=hours)))
    just_before = midnight - timedelta(microseconds=1)
    put(price(-30), price(0, asked="3 1 9"), now=just_before)
    assert list(refused(price(-30), now=midnight)) == ["prices.0"]


def test_days_that_had_no_price_may_be_given_one_and_no_others() -> None:
    put(price(-3), now=NOON - timedelta(days=3))
    put(price(-9, asked="1 0 1"), price(-3))
    assert list(refused(price(-9, asked="1 0 2"), price(-3))) == ["prices.0.output"]


def test_what_says_the_same_of_every_day_may_be_written_otherwise() -> None:
    put(price(-9), now=NOON - timedelta(days=9))
    put(price(-9), price(-4), price(-2, "m"))


def test_examples_bind_nobody() -> None:
    put(price(-9, is_example=True), price(-9, "m", is_example=True), now=NOON - timedelta(days=9))
    put(price(-9, asked="5 1 6", currency="USD"))
    assert [one.currency for one in prices_now()] == ["USD"]
    assert list(refused(price(-9, currency="USD", is_example=True))) == ["prices.0.input"]  # what is none any more does


def test_a_fleet_has_one_currency_and_after_its_first_invoice_for_good() -> None:
    put(price(0))
    put(price(0, currency="USD"))
    tomorrow = NOON + timedelta(days=1)
    found = refused(price(0), now=tomorrow)
    assert found == {"currency": "EUR is another than USD, in which days before today have been invoiced"}
    assert list(refused(price(0, currency="USD"), price(3), now=tomorrow)) == ["currency"]


def test_every_price_that_would_change_the_past_is_named() -> None:
    put(price(-9), price(-9, "m"), price(-9, "n"), now=NOON - timedelta(days=9))
    found = refused(price(-9, asked="1 0 1"), price(-9, "n", asked="2 0.4 8"))
    assert list(found) == ["prices.0.input", "prices.0", "prices.1.cached_input"]


def test_as_many_as_there_may_be_are_judged_at_once() -> None:
    half = MOST_PRICES // 2
    many = [price(-half + number, f"m{number}") for number in range(half)]
    many += [price(-half + number) for number in range(half)]
    put(*many, now=NOON - timedelta(days=MOST_PRICES))
    assert len(refused(*(price(one.valid_from.toordinal() - TODAY.toordinal(), one.model, "1 0 1") for one in many)))


@pytest.mark.django_db(transaction=True)
def test_of_two_operators_at_once_one_is_told_to_look_again() -> None:
    def write(asked: str) -> Callable[[], str]:
        def deed() -> str:
            try:
                put(price(0, asked=asked), expected=0)
            except StaleRevision:
                return "stale"
            return "written"

        return deed

    assert sorted(at_once(write("2 1 3"), write("3 1 4"))) == ["stale", "written"]
    assert (price_list().revision, len(prices_now())) == (1, 1)


# -- bad input


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a float": (entry(input=0.15), "prices.0.input"),
    "a negative": (entry(input="-1"), "prices.0.input"),
    "an exponent": (entry(input="1e3"), "prices.0.input"),
    "ten digits behind the point": (entry(input="0.0000000001"), "prices.0.input"),
    "ten digits before it": (entry(output="1000000000"), "prices.0.output"),
    "not a number": (entry(input="NaN"), "prices.0.input"),
    "a comma": (entry(input="0,15"), "prices.0.input"),
    "Arabic digits": (entry(input="١"), "prices.0.input"),
    "a line break": (entry(input="1\n"), "prices.0.input"),
    "true": (entry(input=True), "prices.0.input"),
    "nothing": (entry(input=None), "prices.0.input"),
    "cached dearer than computed": (entry(cached_input="2.000000001"), "prices.0.cached_input"),
    "a time": (entry(valid_from="2036-01-01T00:00:00Z"), "prices.0.valid_from"),
    "a number for a day": (entry(valid_from=20_000), "prices.0.valid_from"),
    "no day": (entry(valid_from="2036-02-30"), "prices.0.valid_from"),
    "a model nobody could serve": (entry(model="=cmd|calc"), "prices.0.model"),
    "a model of 201 letters": (entry(model="m" * 201), "prices.0.model"),
    "its own currency": (entry(currency="USD"), "prices.0.currency"),
    "a number as a flag": (entry(is_example=1), "prices.0.is_example"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_a_price_is_refused_by_name(operator: Api, name: str) -> None:
    sent, field = BAD[name]
    answer = operator.put("/prices", body(sent), seen=0)
    assert (answer.status_code, said(answer)["errors"][0]["field"]) == (422, field)
    assert not models.Price.objects.exists()


@pytest.mark.parametrize("currency", ["eur", "EURO", "", None, 978, "€€€"])
def test_a_currency_is_three_letters(operator: Api, currency: Any) -> None:
    answer = operator.put("/prices", body(entry(), currency=currency), seen=0)
    assert (answer.status_code, said(answer)["errors"][0]["field"]) == (422, "currency")


def test_two_prices_of_one_model_and_day_are_refused(operator: Api) -> None:
    answer = operator.put("/prices", body(entry(), entry(model="m"), entry(input="3")), seen=0)
    assert [one["field"] for one in said(answer)["errors"]] == ["prices.2.valid_from"]


def test_more_than_there_may_be_are_refused(operator: Api) -> None:
    answer = operator.put("/prices", body(*(entry(number) for number in range(MOST_PRICES + 1))), seen=0)
    assert (answer.status_code, said(answer)["errors"][0]["field"]) == (422, "prices")


def test_the_database_knows_one_list_and_no_price_below_nothing() -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        models.PriceList.objects.create(pk=2)
    with pytest.raises(IntegrityError), transaction.atomic():
        models.Price.objects.create(valid_from=TODAY, currency="EUR", input=-1, cached_input=0, output=0)
