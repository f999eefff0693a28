from typing import Any

import pytest

from controlplane.dashboard.home.ttl_forms import TtlForm, within
from controlplane.dashboard.policies.form_fields import in_words, split
from tenants.bounds import SecondsRange
from tenants.errors import FieldProblem


def sent(amount: str, unit: str = "min", **more: Any) -> TtlForm:
    return TtlForm({"amount": amount, "unit": unit, "note": "", "revision": "3", **more})


@pytest.mark.parametrize(
    ("amount", "unit", "seconds"),
    [
        ("5", "min", 300),
        ("1.5", "h", 5400),
        ("1,5", "h", 5400),
        (" 90 ", "s", 90),
        ("7", "d", 604_800),
        ("0.1", "min", 6),
    ],
)
def test_an_amount_and_its_unit_are_whole_seconds(amount: str, unit: str, seconds: int) -> None:
    form = sent(amount, unit)
    assert form.is_valid(), form.errors
    assert form.cleaned_data["seconds"] == seconds


def test_what_is_no_time_to_live_is_named_with_its_bound(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str, str]] = [
        ("", "min", "This field is required."),
        ("soon", "min", "“soon” is no amount of time: write a number, as 5 or 1.5."),
        ("-5", "min", "“-5” is no amount of time: write a number, as 5 or 1.5."),
        ("٣", "min", "“٣” is no amount of time: write a number, as 5 or 1.5."),
        ("NaN", "min", "“NaN” is no amount of time: write a number, as 5 or 1.5."),
        ("1e9", "d", "“1e9” is no amount of time: write a number, as 5 or 1.5."),
        ("8", "d", "8 d is more than 7 d, the most there is."),
        ("0", "s", "0 s is less than 1 s, the least there is."),
        ("1.5", "s", "1.5 s is no whole number of seconds."),
    ]
    for amount, unit, said in cases:
        with subtests.test(msg=f"{amount!r}, {unit!r}"):
            assert sent(amount, unit).errors["amount"] == [said]


@pytest.mark.parametrize("more", [{"revision": ""}, {"revision": "-1"}, {"revision": "9" * 20}, {"unit": "week"}])
def test_what_no_form_of_ours_sends_is_refused(more: dict[str, str]) -> None:
    assert not sent("5", **more).is_valid()


@pytest.mark.parametrize(
    ("seconds", "amount", "unit"),
    [(1, "1", "s"), (90, "90", "s"), (300, "5", "min"), (5400, "90", "min"), (86_400, "24", "h"), (172_800, "2", "d")],
)
def test_what_is_in_force_is_shown_as_people_would_type_it(seconds: int, amount: str, unit: str) -> None:
    assert split(seconds) == (amount, unit)
    form = sent(amount, unit)
    assert form.is_valid()
    assert form.cleaned_data["seconds"] == seconds


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("3600 is more than 600, the most you may choose", "1 h is more than 10 min, the most you may choose"),
        (
            "90000 s is longer than max_age_seconds, which is 86400 s",
            "25 h is longer than max_age_seconds, which is 24 h",
        ),
        ("1 is less than 3.1536e+07, the least you may choose", "1 s is less than 365 d, the least you may choose"),
        ("only an operator may change this", "only an operator may change this"),
    ],
)
def test_refusals_are_said_in_peoples_units(said: str, words: str) -> None:
    assert in_words(said) == words


def test_a_refusal_stands_beside_its_field_and_others_above_the_form() -> None:
    form = sent("5")
    form.is_valid()
    form.refuse(
        [
            FieldProblem("policy.ttl_seconds", "300 is more than 60, the most you may choose"),
            FieldProblem("note", "has 501 characters, 500 is the most"),
            FieldProblem("policy.kv_dtype", "no agent can do int4"),
        ]
    )
    assert form.errors["amount"] == ["5 min is more than 1 min, the most you may choose."]
    assert form.errors["note"] == ["has 501 characters, 500 is the most."]
    assert form.non_field_errors() == ["policy.kv_dtype: no agent can do int4."]


def test_bounds_are_said_in_words() -> None:
    assert within(SecondsRange()) == "1 s to 7 d"
    assert within(SecondsRange(min=60, max=31_536_000)) == "1 min to 7 d"
