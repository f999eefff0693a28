"""The form for a TTL, which accepts common units and uses them in its errors. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django import forms

from controlplane.dashboard.frame.words import duration, ended
from controlplane.dashboard.policies.form_fields import (
    AMOUNT_OF_TIME,
    SIZES,
    WORDS,
    amount_read,
    in_words,
    seconds_problem,
    split,
)
from engine_agent.contracts.policy_fields import FIELDS as POLICY_FIELDS
from engine_agent.contracts.policy_fields import LABELS, WEEK_SECONDS
from tenants.bounds import SecondsRange
from tenants.errors import FieldProblem

FIELDS = {"policy.ttl_seconds": "amount", "note": "note"}


class TtlForm(forms.Form):
    """A form for a TTL. `revision` is the one shown: publishing fails if a newer one exists."""

    amount = forms.CharField(
        label=LABELS["ttl_seconds"], max_length=20, widget=forms.TextInput(attrs={"inputmode": "decimal", "size": 6})
    )
    unit = forms.ChoiceField(choices=list(WORDS.items()), widget=forms.Select(attrs={"aria-label": "Unit"}))
    note = forms.CharField(label="Why", required=False, help_text="Optional. It stays in the history.")
    revision = forms.IntegerField(min_value=0, max_value=2**31 - 1, widget=forms.HiddenInput)

    def clean_amount(self) -> Decimal:
        return amount_read(self.cleaned_data["amount"], AMOUNT_OF_TIME)

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = self.cleaned_data
        if "amount" in cleaned and "unit" in cleaned:
            seconds = cleaned["amount"] * SIZES[cleaned["unit"]]
            problem = seconds_problem(seconds, POLICY_FIELDS["ttl_seconds"])
            if problem:
                self.add_error("amount", f"{cleaned['amount']:f} {cleaned['unit']} is {problem}.")
            cleaned["seconds"] = int(seconds)
        return cleaned

    def refuse(self, problems: Iterable[FieldProblem]) -> None:
        """Add a service's problems to their fields."""
        for problem in problems:
            field = FIELDS.get(problem.field)
            message = ended(problem.message if problem.field == "note" else in_words(problem.message))
            self.add_error(field, message if field else f"{problem.field}: {message}")


@dataclass(frozen=True, slots=True)
class Ttl:
    """A form on its page. `revision` is always the page's, even after an outdated submission."""

    action: str
    slug: str
    what: str
    form: TtlForm
    revision: int
    hint: str
    whom: str = ""  # " to 3 agents": the agents that get it once published, if known

    @property
    def is_tried(self) -> bool:
        return self.form.is_bound


def ttl_form(slug: str, *, seconds: int, tried: TtlForm | None) -> TtlForm:
    """Return the form with the value in force, or as submitted. Its ids are unique on the page."""
    amount, unit = split(seconds)
    form = tried or TtlForm(initial={"amount": amount, "unit": unit})
    form.auto_id = f"ttl-{slug}-%s"
    if form.is_bound:  # scroll to the refused form, however far down it is
        form.fields["note" if "note" in form.errors else "amount"].widget.attrs["autofocus"] = True
    return form


def within(bound: SecondsRange) -> str:
    minimum, maximum = duration(bound.min or 1), duration(min(bound.max or WEEK_SECONDS, WEEK_SECONDS))
    return f"{minimum} to {maximum}"
