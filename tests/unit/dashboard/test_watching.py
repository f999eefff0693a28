"""The words of calculator, alerts, audit and settings, and what their forms make of what people type."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django import forms
from django.http import QueryDict
from django.template.loader import render_to_string

from controlplane.alerts.definitions import METRICS
from controlplane.analytics.money import Price
from controlplane.analytics.prices import Listed, Prices
from controlplane.dashboard.alerts.forms import LastingField, RuleForm, rule_initial, rule_mark
from controlplane.dashboard.alerts.rows import NAMES, AlertRow, headline, is_late
from controlplane.dashboard.audit.words import headline as audit_headline
from controlplane.dashboard.calculator.forms import CalculatorForm, calculator_form
from controlplane.dashboard.calculator.rows import counted_rows
from controlplane.dashboard.frame.paging import page_asked, pager
from controlplane.dashboard.settings.rows import price_rows, prices_headline
from kernels.calculator.calculating import calculate
from tenants.audit import Verdict

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)


def form_of(query: str) -> CalculatorForm:
    return calculator_form(QueryDict(query))


def told(query: str) -> Any:
    question = form_of(query).question()
    assert question is not None
    return counted_rows("the model", question, calculate(question), [])


@pytest.mark.parametrize("typed", ["131072", "131,072", "131 072", "131_072"])
def test_a_number_is_the_same_however_it_is_grouped(typed: str) -> None:
    question = form_of(f"context={typed}").question()
    assert question is not None
    assert question.context_tokens == 131_072


@pytest.mark.parametrize(("typed", "number"), [("8.03B", 8_030_000_000), ("70b", 70 * 10**9), ("350M", 350 * 10**6)])
def test_parameters_are_read_as_models_are_named(typed: str, number: int) -> None:
    question = form_of(f"parameters={typed}").question()
    assert question is not None
    assert question.shape.parameters is not None
    assert question.shape.parameters.total == number


def test_the_headline_says_what_fits_where_there_is_a_machine() -> None:
    assert told("model=llama-3.1-8b").headline == "A token of the model takes 65,536 bytes in fp8"
    found = told("model=llama-3.1-8b&accelerator=h100").headline
    assert found.startswith("One H100 80 GB SXM holds ")
    assert found.endswith(" such requests at once")


def test_the_title_names_formats_that_do_not_fit() -> None:
    rows = told("model=llama-3.1-70b&accelerator=h200&gpus=4&context=131072&requests=16")
    assert rows.fit_title == "16 requests of 131,072 tokens fit in 7 of 8 formats, not in bf16"
    assert told("model=llama-3.1-8b&accelerator=h200").fit_title == "1 request of 8,192 tokens fits in every format"


def test_the_largest_format_fills_its_bar() -> None:
    percents = {row.kv_dtype: percent for row, percent, _ in told("").rows}
    assert percents["bf16"] == 100
    assert percents["fp8"] == 50
    assert percents["int4"] == pytest.approx(28.12, abs=0.01)


def seen(**more: Any) -> dict[str, Any]:
    return {
        "id": "a", "rule": "Cold", "built_in": None, "metric": "hit_ratio", "unit": "share", "place": "acme/chat",
        "state": "firing", "value": 0.31, "has_data": True, "comparison": "below", "threshold": 0.5, "words": "w",
        "next_step": "See (`luminet stats`).", "since": NOW, "resolved_at": None, "silenced_until": None,
        "acknowledged": None, **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({}, "fires"),
        ({"built_in": "pool_full"}, "cannot wait"),
        ({"built_in": "hit_ratio_low"}, "fires"),
        ({"acknowledged": {"by": "kim", "at": NOW, "note": ""}}, "acknowledged"),
        ({"silenced_until": NOW + timedelta(hours=1)}, "silenced"),
        ({"silenced_until": NOW - timedelta(seconds=1)}, "fires"),
        ({"state": "resolved", "resolved_at": NOW}, "over"),
    ],
)
def test_an_alert_says_in_a_word_what_it_asks(more: dict[str, Any], word: str) -> None:
    assert AlertRow(seen(**more), False, NOW).state.word == word


def test_a_value_stands_against_its_threshold_in_words() -> None:
    page = alert_page(seen())
    assert "Hit rate is at 31.0 %; the rule is below 50.0 %" in page
    assert "See (luminet stats)." in page
    assert "Hit rate is at no data now;" in alert_page(seen(has_data=False))


def alert_page(alert: dict[str, Any]) -> str:
    return render_to_string("dashboard/alerts/alert.html", {"alert": AlertRow(alert, False, NOW)})


@pytest.mark.parametrize(
    ("firing", "unattended", "urgent", "said"),
    [
        (0, 0, 0, "Nothing fires"),
        (1, 1, 0, "1 alert fires: nobody looks after it"),
        (3, 3, 2, "3 alerts fire: 2 cannot wait and have nobody"),
        (3, 2, 0, "3 alerts fire: nobody looks after 2"),
        (2, 0, 0, "2 alerts fire: somebody looks after each of them"),
    ],
)
def test_the_headline_of_alerts(firing: int, unattended: int, urgent: int, said: str) -> None:
    assert headline({"firing": firing, "unattended": unattended, "urgent": urgent, "over": 0}) == said


def test_an_evaluation_is_late_after_two_minutes() -> None:
    assert not is_late(NOW, NOW + timedelta(seconds=120))
    assert is_late(NOW, NOW + timedelta(seconds=121))
    assert not is_late(None, NOW)


def test_every_metric_has_a_name_for_people() -> None:
    assert NAMES.keys() == METRICS.keys()


@pytest.mark.parametrize(("typed", "seconds"), [("5 min", 300), ("90s", 90), ("1 h 30 min", 5400), ("0 s", 0)])
def test_a_length_of_time_is_read_with_its_unit(typed: str, seconds: int) -> None:
    assert LastingField().clean(typed) == seconds


@pytest.mark.parametrize("typed", ["5", "min", "5 weeks", "-5 min", "5 min later"])
def test_a_length_of_time_without_a_unit_is_refused(typed: str) -> None:
    with pytest.raises(forms.ValidationError, match="no length of time"):
        LastingField(label="For how long").clean(typed)


RULE = {
    "id": "r", "name": "Cold", "unit": "share", "metric": "hit_ratio", "threshold": 0.55, "clears_at": 0.605,
    "for_seconds": 5400, "clear_for_seconds": 60, "least_prompt_tokens": 0, "webhook_url": None, "enabled": True,
}  # fmt: skip


def test_a_rule_sent_back_as_it_was_shown_changes_nothing() -> None:
    form = RuleForm({**rule_initial(RULE), "enabled": "on"}, is_operator=True, fixed=RULE)
    assert form.is_valid(), form.errors
    values = form.values()
    names = ("threshold", "clears_at", "for_seconds", "clear_for_seconds", "least_prompt_tokens", "enabled")
    assert {name: values[name] for name in names} == {name: RULE[name] for name in names}


def test_a_rule_is_known_again_until_something_of_it_changes() -> None:
    assert rule_mark(RULE) == rule_mark({**RULE})
    assert rule_mark(RULE) != rule_mark({**RULE, "threshold": 0.56})


def test_a_broken_chain_is_named_and_a_whole_one_says_its_head() -> None:
    whole = audit_page(Verdict(1204, "1204:ab", None))
    assert "The chain is whole: 1,204 records, each as it was written. Looked at in 0.4 s." in whole
    assert '<code class="secret head">1204:ab</code>' in whole
    broken = audit_page(Verdict(16, "16:ab", "record 17 was changed"))
    assert "The chain is broken: record 17 was changed. 16 records before it are as written." in broken
    assert '<span class="tag tag--bad">broken</span>' in broken


def audit_page(verdict: Verdict) -> str:
    return render_to_string("dashboard/audit/audit.html", {"verdict": verdict, "seconds": 0.42})


def test_the_headline_of_the_trail_counts_only_what_it_knows() -> None:
    def said(shown: int, *, is_asked: bool, has_more: bool) -> str:
        return audit_headline(1204, shown=shown, is_asked=is_asked, has_more=has_more, is_first=True)

    assert said(50, is_asked=False, has_more=True) == "1,204 things were done on this installation"
    assert said(50, is_asked=True, has_more=True) == "More than 50 records fit; the newest are shown first"
    assert said(3, is_asked=True, has_more=False) == "3 records fit"


def test_a_page_keeps_what_was_asked_for() -> None:
    pages = pager(page_asked({"page": "2"}, state="over"), range(120))
    assert (pages.words, pages.previous, pages.next) == ("51 to 100 of 120", "?state=over", "?state=over&page=3")
    assert pager(page_asked({"page": "2"}), range(120)).previous == "?"
    assert pager(page_asked({"page": "nonsense"}), []).words == "none"


def test_a_page_that_is_not_there_is_the_last_one() -> None:
    assert pager(page_asked({"page": "9"}), range(120)).words == "101 to 120 of 120"
    for nonsense in ("0", "-1", "9" * 20):
        assert pager(page_asked({"page": nonsense}), range(120)).words == "1 to 50 of 120"


def listed(model: str, day: date, *, is_example: bool = False) -> Listed:
    price = Price(model, day, "EUR", Decimal("0.2"), Decimal("0.02"), Decimal("1"), is_example=is_example)
    return Listed(price, "op", NOW)


def test_a_price_says_whether_it_holds() -> None:
    days = [date(2026, 11, 1), date(2026, 11, 20), date(2026, 12, 1)]
    rows = price_rows(Prices(1, tuple(listed("m", day) for day in days)), NOW.date())
    assert [state.word for _, state in rows] == ["over", "in force", "to come"]


def test_examples_are_counted_in_the_headline() -> None:
    day = date(2026, 11, 1)
    assert prices_headline(Prices(0, ())) == "No token has a price yet"
    assert prices_headline(Prices(1, (listed("m", day, is_example=True),))) == "1 price in EUR, an example"
    both = (listed("a", day), listed("m", day, is_example=True))
    assert prices_headline(Prices(1, both)) == "2 prices in EUR, 1 of them examples"
