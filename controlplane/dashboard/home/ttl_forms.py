"""The form for a time to live: in the units people think in, and what is wrong in the same. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django import forms

from controlplane.dashboard.frame.words import UNITS, duration
from controlplane.dashboard.policies.form_fields import seconds_problem
from engine_agent.contracts.policy_fields import FIELDS as POLICY_FIELDS
from engine_agent.contracts.policy_fields import LABELS, WEEK_SECONDS
from tenants.bounds import SecondsRange
from tenants.errors import FieldProblem

SIZES = {name: size for size, name in reversed(UNITS)}
WORDS = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days"}
FIELDS = {"policy.ttl_seconds": "amount", "note": "note"}
_AMOUNT = re.compile(r"[0-9]{1,9}(?:[.,][0-9]{1,6})?")
_SECONDS = re.compile(r"\b[0-9]+(?:\.[0-9]+)?(?:e\+?[0-9]+)?\b(?: s\b)?")


class TtlForm(forms.Form):
    """`revision`: which one the page has shown. What was published since is not overwritten unseen."""

    amount = forms.CharField(
        label=LABELS["ttl_seconds"], max_length=20, widget=forms.TextInput(attrs={"inputmode": "decimal", "size": 6})
    )
    unit = forms.ChoiceField(choices=list(WORDS.items()), widget=forms.Select(attrs={"aria-label": "Unit"}))
    note = forms.CharField(label="Why", required=False, help_text="Optional. It stays in the history.")
    revision = forms.IntegerField(min_value=0, max_value=2**31 - 1, widget=forms.HiddenInput)

    def clean_amount(self) -> Decimal:
        typed: str = self.cleaned_data["amount"]
        if not _AMOUNT.fullmatch(typed):
            raise forms.ValidationError(f"“{typed}” is no amount of time: write a number, as 5 or 1.5.")
        return Decimal(typed.replace(",", "."))

    def clean(self) -> dict[str, Any]:
        told: dict[str, Any] = self.cleaned_data
        if "amount" in told and "unit" in told:
            seconds = told["amount"] * SIZES[told["unit"]]
            problem = seconds_problem(seconds, POLICY_FIELDS["ttl_seconds"])
            if problem:
                self.add_error("amount", f"{told['amount']:f} {told['unit']} is {problem}.")
            told["seconds"] = int(seconds)
        return told

    def refuse(self, problems: Iterable[FieldProblem]) -> None:
        """What a service has against it, beside the field that it is about."""
        for one in problems:
            field = FIELDS.get(one.field)
            said = _sentence(one.message if one.field == "note" else in_words(one.message))
            self.add_error(field, said if field else f"{one.field}: {said}")


def _sentence(message: str) -> str:
    return message if message.endswith((".", "!", "?")) else f"{message}."


def in_words(message: str) -> str:
    """What is said in seconds, as people say it: "604801 is more than 86400, …" is "7 d 1 s is more than 24 h, …"."""
    return _SECONDS.sub(lambda found: duration(int(float(found[0].removesuffix(" s")))), message)


def split(seconds: int) -> dict[str, str]:
    """As people would type it: 300 is 5 minutes, 5,400 is 90 minutes, and a day 24 hours."""
    fitting = [(size, name) for size, name in UNITS if seconds % size == 0 and (name != "d" or seconds >= 2 * size)]
    size, name = fitting[0]
    return {"amount": str(seconds // size), "unit": name}


@dataclass(frozen=True, slots=True)
class Ttl:
    """A form in its place. `revision` is always that of the page, whatever was sent."""

    action: str
    slug: str
    what: str
    form: TtlForm
    revision: int
    hint: str
    whom: str = ""  # gets it as soon as it is published, where that is known

    @property
    def is_tried(self) -> bool:
        return self.form.is_bound


def ttl_form(slug: str, *, seconds: int, tried: TtlForm | None) -> TtlForm:
    """As it is in force, or as somebody has just sent it. Its ids are its own on a page of many."""
    form = tried or TtlForm(initial=split(seconds))
    form.auto_id = f"ttl-{slug}-%s"
    if form.is_bound:  # the page opens there, however far down it lies
        form.fields["note" if "note" in form.errors else "amount"].widget.attrs["autofocus"] = True
    return form


def within(bound: SecondsRange) -> str:
    least, most = duration(bound.min or 1), duration(min(bound.max or WEEK_SECONDS, WEEK_SECONDS))
    return f"{least} to {most}"
