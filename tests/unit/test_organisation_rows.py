import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.template.loader import render_to_string

from controlplane.analytics.invoices import Invoice, Line
from controlplane.analytics.money import Cost, Price, Tokens
from controlplane.analytics.owned import Owned
from controlplane.dashboard.frame.paging import PAGE, Asked, asked, pager
from controlplane.dashboard.organisations import front_rows, key_rows, list_rows, member_words
from controlplane.dashboard.organisations.limit_forms import BoundsForm, bound_rows
from controlplane.dashboard.policies.form_fields import DurationField, NumberField, PercentField
from tenants.bounds import BUILT_IN_BOUNDS, Bounds, SecondsRange
from tenants.limits import Limits
from tenants.listing import Listed
from tenants.models import Organisation

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
DAY = 86_400
COUNTS = {"requests": 40, "prompt_tokens": 1000, "cached_tokens": 683, "generated_tokens": 5}


def owned(covered: int = DAY, **more: int) -> Owned:
    counts = {**COUNTS, **more}
    return Owned(NOW, DAY, covered, {1: counts} if any(counts.values()) else {}, {1: 2048})


# Amounts


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("300", 300),
        (" 5 min ", 300),
        ("5min", 300),
        ("1 h 30 min", 5400),
        ("7 D", 604_800),
        ("2 days", 172_800),
        ("90 s", 90),
    ],
)
def test_lengths_of_time_are_read_as_people_write_them(text: str, seconds: int) -> None:
    assert DurationField().clean(text) == seconds


def test_what_is_no_length_of_time_is_named(subtests: pytest.Subtests) -> None:
    problem = "is no length of time: write 300, 5 min or 24 h"
    for text in ("soon", "-5", "5 fortnights", "1.5 h", "5 min or so", "٣", "1e9"):
        with subtests.test(msg=text), pytest.raises(ValidationError, match=problem):
            DurationField().clean(text)


def test_what_is_written_is_read_as_the_same(subtests: pytest.Subtests) -> None:
    cases: list[int] = [1, 59, 60, 90, 3600, 5400, DAY, 2 * DAY, 604_800]
    for seconds in cases:
        with subtests.test(msg=repr(seconds)):
            assert DurationField().clean(DurationField.text(seconds)) == seconds


@pytest.mark.parametrize("share", [0, 0.001, 0.07, 0.125, 0.29, 0.57, 1])
def test_a_share_is_written_in_percent_and_read_as_the_same(share: float) -> None:
    assert PercentField().clean(PercentField.text(share)) == share


@pytest.mark.parametrize("text", ["a tenth", "-1", "1e2", "12 %%"])
def test_what_is_no_percentage_or_number_is_named(text: str) -> None:
    with pytest.raises(ValidationError, match="is no percentage"):
        PercentField().clean(text)
    with pytest.raises(ValidationError, match="is no number"):
        NumberField().clean(text)


def test_an_unticked_bound_is_not_read() -> None:
    typed = {"revision": "1", "ttl_seconds__max": "soon", "weight__may": "on", "weight__max": "2.5"}
    form = BoundsForm(typed)
    assert form.is_valid(), form.errors
    assert form.cleaned_data["bounds"].model_dump(exclude_none=True) == {"weight": {"max": 2.5}}
    form = BoundsForm({**typed, "ttl_seconds__may": "on"})
    assert list(form.errors) == ["ttl_seconds__max"]


def test_nothing_typed_is_no_bound() -> None:
    for field in (DurationField, PercentField, NumberField):
        assert field(required=False).clean(" ") is None


# Pages


def test_pages_keep_what_was_looked_for() -> None:
    of = asked({"find": " a&b ", "order": "-hit", "page": "2"}, orders=("name", "-hit"))
    found = pager(of, range(2 * PAGE + 1))
    assert found.words == "51 to 100 of 101"
    assert list(found) == [*range(50, 100)]
    assert found.previous == "?find=a%26b&order=-hit"
    assert found.next == "?find=a%26b&order=-hit&page=3"
    assert pager(of, []).words == "none"
    assert not pager(of, range(PAGE)).has_others


# The list


def test_the_list_says_on_what_its_numbers_stand() -> None:
    assert "last 24 h" in list_rows.measured(DAY, DAY)
    assert list_rows.measured(DAY, 0) == "Nothing has been counted in the last 24 h"
    assert "17 min of the last 24 h" in list_rows.measured(DAY, 17 * 60 + 5)


@pytest.mark.parametrize(
    ("total", "suspended", "said"),
    [
        (0, 0, "There is no organisation yet"),
        (1, 0, "The only organisation is active"),
        (1, 1, "0 of 1 organisation are active"),
        (1003, 0, "All 1,003 organisations are active"),
        (3, 2, "1 of 3 organisations is active"),
    ],
)
def test_the_headline_of_the_list_is_a_fact(total: int, suspended: int, said: str) -> None:
    assert list_rows.headline(total, suspended, Asked()) == said


def test_a_column_is_ordered_by_and_then_the_other_way_round() -> None:
    heads = {head.label: head for head in list_rows.heads(Asked(order="-hit", find="a", page=3))}
    assert (heads["Hit rate, 24 h"].address, heads["Hit rate, 24 h"].direction) == ("?find=a&order=hit", "descending")
    assert (heads["Organisation"].address, heads["Organisation"].direction) == ("?find=a&order=name", "")
    assert heads["Namespaces"].address == ""


def test_names_are_ordered_as_people_read_them() -> None:
    rows = [Listed(1, "b", "beta", "active"), Listed(2, "a", "Alpha", "active"), Listed(3, "c", "Gamma", "suspended")]
    assert [row.pk for row in list_rows.ordered(rows, "name", {})] == [2, 1, 3]
    assert next(row.pk for row in list_rows.ordered(rows, "-state", {})) == 3


# The front page


def organisation(**more: Any) -> Organisation:
    return Organisation(slug="acme", name="Acme", **more)


def test_the_front_pages_headline_says_what_matters_most() -> None:
    acme = organisation()
    assert front_rows.headline(acme, owned(), 2) == "Acme has 68.3 % of its prompt tokens served from cache, over 24 h"
    assert front_rows.headline(acme, owned(600), 2).endswith("over 10 min of 24 h")
    assert front_rows.headline(acme, owned(requests=3), 2) == "Acme has had 3 requests in the last 24 h so far"
    nothing = owned(requests=0, prompt_tokens=0, cached_tokens=0, generated_tokens=0)
    assert front_rows.headline(acme, nothing, 1) == "Acme has 1 namespace and no request in the last 24 h"
    suspended = organisation(state="suspended")
    assert front_rows.headline(suspended, owned(), 2) == "Acme is suspended: its keys are refused"


def test_limits_are_one_line() -> None:
    assert front_rows.limits_line(Limits()) == "no limit on requests or tokens"
    limits = Limits(requests_per_minute=1200, concurrent_requests=8)
    assert front_rows.limits_line(limits) == "1,200 requests a minute, 8 requests at once"


def line(model: str, price: Price | None, *, day: int = 1) -> Line:
    cost = None if price is None else Cost(Decimal("1.005"), Decimal("0.5"))
    return Line(date(2026, 11, day), None, model, 10, Tokens(100, 50, 7), price, cost, is_open=False)


def invoice(*lines: Line) -> Invoice:
    return Invoice("acme", date(2026, 11, 1), date(2026, 11, 24), NOW, lines)


def price(*, is_example: bool) -> Price:
    one = Decimal(1)
    return Price("", date(2026, 1, 1), "EUR", one, one, one, is_example=is_example)


def month(*lines: Line) -> str:
    """Return the text of the page."""
    found = invoice(*lines)
    context = {"month": found, "models": list(front_rows.model_lines(found))}
    page = render_to_string("dashboard/organisations/_month.html", context)
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_a_month_adds_up_days_and_says_what_its_amounts_are_worth() -> None:
    real = month(line("m", price(is_example=False)), line("m", price(is_example=False), day=2))
    assert real.startswith("November comes to EUR 2.01 so far; caching saved EUR 1.00 1 November to 24 November 2026, ")
    assert real.endswith("Amount m 20 200 100 14 EUR 2.01")
    example = month(line("m", price(is_example=True)), line("n", None))
    assert example.startswith("At example prices, November comes to EUR 1.01")
    assert "nobody is charged these amounts. Without a price, and not in the sum: n." in example
    assert example.endswith("m 10 100 50 7 EUR 1.01 n 10 100 50 7 no price")
    assert month().startswith("Nothing to pay for in November so far")


# Keys and members


@pytest.mark.parametrize(
    ("ends_in", "is_suspended", "word"),
    [
        (None, False, "works"),
        (timedelta(days=40), False, "works"),
        (timedelta(days=3, hours=1), False, "ends in 3 days"),
        (timedelta(hours=5), False, "ends within a day"),
        (timedelta(0), False, "expired"),
        (timedelta(0), True, "expired"),
        (None, True, "refused: suspended"),
    ],
)
def test_a_keys_state_is_what_would_happen_to_a_request(
    ends_in: timedelta | None, is_suspended: bool, word: str
) -> None:
    ends = None if ends_in is None else NOW + ends_in
    assert key_rows.state(ends, is_suspended=is_suspended, now=NOW).word == word


@pytest.mark.parametrize(
    ("api", "gateway", "said"),
    [
        (None, None, (None, "")),
        (NOW, None, (NOW, "at the REST API")),
        (None, NOW, (NOW, "at a gateway")),
        (NOW - timedelta(days=1), NOW, (NOW, "at a gateway")),
        (NOW, NOW - timedelta(days=1), (NOW, "at the REST API")),
    ],
)
def test_a_key_was_last_used_where_it_was_used_later(
    api: datetime | None, gateway: datetime | None, said: tuple[datetime | None, str]
) -> None:
    assert key_rows.last_used(api, gateway) == said


def test_a_key_whose_namespaces_are_gone_is_for_none() -> None:
    assert key_rows.bound_words(None, {}) == "all, later ones too"
    assert key_rows.bound_words([1, 2], {1: "chat"}) == "chat"
    assert key_rows.bound_words([9], {1: "chat"}) == "none that is left"
    assert key_rows.bound_words([*range(8)], {one: f"n{one}" for one in range(8)}) == "n0, n1, n2, n3, n4 and 3 more"


@pytest.mark.parametrize(
    ("total", "invited", "said"),
    [
        (0, 0, "Nobody belongs to this organisation yet"),
        (1, 0, "One member, who has joined"),
        (1, 1, "1 member invited, not joined yet"),
        (5, 0, "5 members, all of them joined"),
        (5, 4, "1 of 5 members has joined"),
    ],
)
def test_the_headline_of_members_says_who_has_joined(total: int, invited: int, said: str) -> None:
    assert member_words.headline(total, invited, "") == said


# Bounds


def test_bounds_read_as_what_members_may_choose() -> None:
    rows = {label: words for label, words, _ in bound_rows(BUILT_IN_BOUNDS)}
    assert rows["TTL"] == "1 s to 7 d"
    assert rows["Prefix caching"] == "on or off"
    assert rows["Weight"] == "operators only"
    for bound, said in (
        (SecondsRange(), "anything"),
        (SecondsRange(min=60), "at least 1 min"),
        (SecondsRange(max=60), "at most 1 min"),
    ):
        assert {label: words for label, words, _ in bound_rows(Bounds(ttl_seconds=bound))}["TTL"] == said
