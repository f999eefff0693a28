"""The form for a rollout (all at once, or in steps under guards), and the text of the publish button. Pure."""

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from django import forms
from pydantic import ValidationError

from controlplane.dashboard.frame.words import counted, duration
from controlplane.dashboard.policies.fields import Typed, first, number_text
from controlplane.dashboard.policies.form_fields import SIZES, WORDS, amount_read, split
from controlplane.rollouts.spec import MOST_STEPS, Guards, RolloutSpec, Step
from controlplane.rollouts.stepping import Candidate, reached_at
from engine_agent.contracts.policy_fields import WEEK_SECONDS

DEFAULT: Final = RolloutSpec(strategy="canary")
BAKE, BAKE_UNIT = split(DEFAULT.bake_seconds)
SHOWN: Final = "guards"  # marks a form that shows the guards: a tick that it does not send is off
NAMES: Final = {  # names in the page, where they differ
    "bake_unit": "bake-unit",
    "hit_ratio_drop": "guard-hit",
    "ttft_p95_rise": "guard-ttft",
    "error_ratio": "guard-errors",
    "min_requests": "guard-requests",
    "integrity": "guard-integrity",
}
MOST_REQUESTS: Final = 1_000_000
_STEPS = re.compile(r"[0-9]{1,3}(?:[ ,;→>%-]+[0-9]{1,3}){0,30}[ %]*")
_AMOUNT = re.compile(r"[0-9]{1,6}")


class ShareField(forms.Field):
    """A bound in percent; an empty one is not compared. `most`: the largest, in percent."""

    def __init__(self, default: float | None, label: str, unit: str, hint: str, most: int = 100) -> None:
        initial = "" if default is None else number_text(100 * default)
        super().__init__(required=False, label=label, help_text=f"{hint}; empty: not compared", initial=initial)
        self.unit, self.most = unit, most

    def to_python(self, value: Any) -> float | None:
        if not value:
            return None
        amount = amount_read(value.removesuffix("%").rstrip(), f"bound: write {self.unit}, as 5 or 2.5, or nothing")
        if amount > self.most:
            typed = f"{number_text(float(amount))} {self.unit}"
            raise forms.ValidationError(f"{typed} is more than {self.most:,}, the most there is.")
        return float(amount / 100)


class RequestsField(forms.Field):
    unit = "requests"

    def to_python(self, value: Any) -> int:
        if not value:
            return DEFAULT.guards.min_requests
        amount = amount_read(value, "number of requests: write a whole one, as 20")
        if amount != int(amount) or not Decimal(1) <= amount <= MOST_REQUESTS:
            raise forms.ValidationError(f"{number_text(float(amount))} is no whole number from 1 to {MOST_REQUESTS:,}.")
        return int(amount)


class RolloutForm(forms.Form):
    """A canary rollout; unbound, a rollout to all agents at once. `spec` is None if the form is invalid."""

    steps = forms.Field(required=False, initial=", ".join(map(str, DEFAULT.stages)))
    bake = forms.Field(required=False, initial=BAKE)
    bake_unit = forms.Field(required=False, initial=BAKE_UNIT)
    hit_ratio_drop = ShareField(
        DEFAULT.guards.hit_ratio_drop, "Hit rate may be lower by", "points", "its own cold start is left out"
    )
    ttft_p95_rise = ShareField(
        DEFAULT.guards.ttft_p95_rise, "First token’s p95 may be longer by", "%", "of what the others take", 10_000
    )
    error_ratio = ShareField(
        DEFAULT.guards.error_ratio, "Requests that fail may be more by", "points", "of all requests"
    )
    min_requests = RequestsField(
        required=False,
        label="Compared from",
        help_text=f"on either side, before anything is decided; empty: {DEFAULT.guards.min_requests}",
        initial=str(DEFAULT.guards.min_requests),
    )
    integrity = forms.BooleanField(required=False)
    spec: RolloutSpec | None = None

    def add_prefix(self, field_name: str) -> str:
        return NAMES.get(field_name, field_name)

    @property
    def units(self) -> list[tuple[str, str, bool]]:
        return [(value, label, value == self["bake_unit"].value()) for value, label in WORDS.items()]

    @property
    def bounds(self) -> list[forms.BoundField]:
        """Return the guards with a numeric bound."""
        return [self[name] for name, field in self.fields.items() if hasattr(field, "unit")]

    def clean(self) -> dict[str, Any]:
        cleaned = self.cleaned_data
        steps, bake = _steps(cleaned["steps"]), _bake(cleaned["bake"], cleaned["bake_unit"])
        if not self.errors:
            guards = Guards(**{name: cleaned[name] for name in Guards.model_fields})
            try:
                self.spec = RolloutSpec(strategy="canary", steps=steps, bake_seconds=bake, guards=guards)
            except ValidationError as error:
                raise forms.ValidationError(_told(error)) from None
        return cleaned


def rollout_form(typed: Typed) -> RolloutForm:
    """Return the form as submitted, or with its defaults. All at once, other fields are not checked."""
    names = {name: NAMES.get(name, name) for name in RolloutForm.base_fields}
    values: dict[str, Any] = {
        name: first(typed, key, RolloutForm.base_fields[name].initial) for name, key in names.items()
    }
    values["integrity"] = names["integrity"] in typed if SHOWN in typed else DEFAULT.guards.integrity
    if first(typed, "strategy") != "canary":
        form = RolloutForm(initial=values)
        form.spec = RolloutSpec()
        return form
    form = RolloutForm({names[name]: value for name, value in values.items()})
    form.full_clean()
    return form


def _steps(typed: str) -> list[Step]:
    if not _STEPS.fullmatch(typed):
        raise forms.ValidationError("Steps are shares of the engines in percent, as 25, 50, 100.")
    shares: list[Step] = [int(digits) for digits in re.findall(r"[0-9]+", typed)]
    if len(shares) > MOST_STEPS:
        raise forms.ValidationError(f"{len(shares)} steps are more than {MOST_STEPS}, the most there are.")
    return shares


def _bake(amount: str, unit: str) -> int:
    if not _AMOUNT.fullmatch(amount) or unit not in SIZES:
        raise forms.ValidationError("How long each step bakes is a whole number with its unit, as 60 s.")
    seconds = int(amount) * SIZES[unit]
    if not 1 <= seconds <= WEEK_SECONDS:
        raise forms.ValidationError(f"Each step bakes from 1 s to {duration(WEEK_SECONDS)}, not {amount} {unit}.")
    return seconds


def _told(error: ValidationError) -> str:
    first_error = error.errors()[0]
    if "steps" in first_error["loc"]:
        return "Each step is a share of the engines from 1 to 100 %."
    message = str(first_error["msg"]).removeprefix("Value error, ").removeprefix("steps: ")
    return f"Of the steps, {message} %." if message[-1].isdigit() else f"Of the steps, {message}."


def button_words(revision: int, spec: RolloutSpec | None, candidates: Sequence[Candidate]) -> str:
    """Return "Publish revision 7 to 1 of 4 engines first"."""
    begin = f"Publish revision {revision}"
    if not candidates or spec is None:
        return begin
    engines = {candidate.agent for candidate in candidates if candidate.kind == "engine"}
    if spec.strategy == "canary" and len(spec.stages) > 1 and engines:
        first_engines = reached_at(spec.stages, 0, candidates, (), seed="") & engines
        return f"{begin} to {len(first_engines)} of {counted(len(engines), 'engine')} first"
    return f"{begin} to {counted(len(candidates), 'agent')}{' at once' if len(candidates) > 1 else ''}"
