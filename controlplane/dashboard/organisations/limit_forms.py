"""An organisation's limits and bounds in common units, as rows to read and as forms. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from django import forms
from pydantic import ValidationError

from controlplane.dashboard.organisations.forms import OrganisationsForm, revision_field
from controlplane.dashboard.policies.fields import choices_of
from controlplane.dashboard.policies.form_fields import VALUE_FIELDS, ValueField
from engine_agent.contracts.policy_fields import FIELDS, LABELS
from tenants.bounds import Bounds
from tenants.limits import Limits
from tenants.listing import Holdings
from tenants.validation import field_problems

LIMITS: Final = {
    "requests_per_minute": ("Requests a minute", "over all gateways; empty: no limit"),
    "tokens_per_minute": ("Tokens a minute", "of prompts and answers; empty: no limit"),
    "concurrent_requests": ("Requests at once", "those waiting for a seat among them; empty: no limit"),
    "max_namespaces": ("Namespaces", "that it may have"),
    "max_keys": ("Keys", "that it may have, revoked ones not counted"),
    "max_members": ("Members", "that it may have, invited ones included"),
    "max_pins": ("Pins", "that it may have, over all namespaces"),
}
HELD: Final = {"max_namespaces": "namespaces", "max_keys": "keys", "max_members": "members", "max_pins": "pins"}
RATES: Final = ("requests_per_minute", "tokens_per_minute", "concurrent_requests")


RANGES: Final = {name: VALUE_FIELDS[field.kind] for name, field in FIELDS.items() if field.kind in VALUE_FIELDS}
CHOICES: Final = {
    name: choices_of(field) for name, field in FIELDS.items() if name not in RANGES and field.kind != "switch"
}


# Rows for every reader


def limit_rows(limits: Limits, holdings: Holdings) -> list[tuple[str, int | None, str]]:
    """Return each limit's label, value and note; None means no limit."""
    return [
        (label, getattr(limits, field), f"{note.partition(';')[0]}{_there(field, holdings)}")
        for field, (label, note) in LIMITS.items()
    ]


def _there(field: str, holdings: Holdings) -> str:
    return f"; it has {getattr(holdings, HELD[field]):,}" if field in HELD else ""


def bound_rows(bounds: Bounds) -> list[tuple[str, str, bool]]:
    """Return each policy field's label and bound, and whether members may change it."""
    field_bounds = [(field, getattr(bounds, field)) for field in FIELDS]
    return [(LABELS[field], _bound_words(field, bound), bound is not None) for field, bound in field_bounds]


def _bound_words(field: str, bound: Any) -> str:
    if bound is None:
        return "operators only"
    if field in CHOICES:
        return ", ".join(bound.allowed) or "nothing"
    return _range_words(bound, RANGES[field]) if field in RANGES else "on or off"


def _range_words(bound: Any, kind: type[ValueField]) -> str:
    minimum = None if bound.min is None else kind.text(bound.min)
    maximum = None if bound.max is None else kind.text(bound.max)
    if minimum and maximum:
        return f"{minimum} to {maximum}"
    return f"at least {minimum}" if minimum else f"at most {maximum}" if maximum else "anything"


def headline(name: str, limits: Limits, bounds: Bounds) -> str:
    editable_count = sum(getattr(bounds, field) is not None for field in FIELDS)
    rate = limits.requests_per_minute
    rate_text = "may send any number of requests" if rate is None else f"may send {rate:,} requests a minute"
    return f"{name} {rate_text}; its members may change {editable_count} of {len(FIELDS)} policy fields"


# Forms for operators


class LimitsForm(OrganisationsForm):
    revision = revision_field()

    def __init__(self, *args: Any, held: Holdings, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field, (label, hint) in LIMITS.items():
            default = Limits.model_fields[field].default
            help_text = hint if field in RATES else f"{hint}{_there(field, held)}; empty: {default:,}"
            widget = forms.TextInput(attrs={"inputmode": "numeric"})
            self.fields[field] = forms.CharField(
                label=label, required=False, max_length=40, help_text=help_text, widget=widget
            )

    def clean(self) -> dict[str, Any]:
        cleaned = self.cleaned_data
        values = {field: _whole(cleaned[field]) for field in LIMITS if cleaned.get(field)}
        for field in [field for field, value in values.items() if value is None]:
            self.add_error(field, f"“{cleaned[field]}” is no whole number.")
        whole_numbers = {field: value for field, value in values.items() if value is not None}
        try:
            cleaned["limits"] = Limits.model_validate(whole_numbers)
        except ValidationError as error:
            for problem in field_problems(error.errors()):
                self.add_error(problem.field, f"{whole_numbers[problem.field]:,}: {problem.message}.")
        return cleaned


def limits_initial(stored: Mapping[str, Any], revision: int) -> dict[str, Any]:
    """Return the limits that are set; defaults stay empty."""
    stored_limits = {field: stored.get(field) for field in LIMITS}
    return {
        **{field: "" if value is None else str(value) for field, value in stored_limits.items()},
        "revision": revision,
    }


def _whole(text: str) -> int | None:
    digits = text.replace(",", "").replace(" ", "").replace("\u202f", "")
    return int(digits) if digits.isascii() and digits.isdigit() else None


class BoundsForm(OrganisationsForm):
    """A form that sets whether members may change each policy field, and within which bounds."""

    revision = revision_field()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in FIELDS:
            for name, form_field in _fields_of(field):
                self.fields[name] = form_field

    def clean(self) -> dict[str, Any]:
        cleaned = self.cleaned_data
        document = {field: bound for field in FIELDS if (bound := self._bound(field, cleaned)) is not None}
        if not self.errors:
            try:
                cleaned["bounds"] = Bounds.model_validate(document)
            except ValidationError as error:
                for problem in field_problems(error.errors()):
                    field, _, end = problem.field.partition(".")
                    name = f"{field}__{end}" if f"{field}__{end}" in self.fields else f"{field}__may"
                    self.add_error(name, f"{LABELS.get(field, field)}: {problem.message}.")
        return cleaned

    def _bound(self, field: str, cleaned: Mapping[str, Any]) -> dict[str, Any] | None:
        if not cleaned.get(f"{field}__may"):
            for end in ("min", "max"):  # values beside an unticked box are ignored
                self.errors.pop(f"{field}__{end}", None)
            return None
        if field in CHOICES:  # an empty list differs from "operators only": members may still remove what is set
            return {"allowed": cleaned.get(f"{field}__allowed", [])}
        if field not in RANGES:
            return {}
        ends = ((end, cleaned.get(f"{field}__{end}")) for end in ("min", "max"))
        return {end: value for end, value in ends if value is not None}

    @property
    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each policy field, with its inputs."""
        for field in FIELDS:
            names = {
                name: self[f"{field}__{name}"]
                for name in ("may", "min", "max", "allowed")
                if f"{field}__{name}" in self.fields
            }
            errors = [
                (f"{bound_field.auto_id}_error", bound_field.errors)
                for bound_field in names.values()
                if bound_field.errors
            ]
            hint = RANGES[field].hint.format(FIELDS[field]) if field in RANGES else ""
            yield {"field": field, "label": LABELS[field], "hint": hint, "errors": errors, **names}


def _fields_of(field: str) -> Iterator[tuple[str, forms.Field]]:
    label = LABELS[field]
    yield f"{field}__may", forms.BooleanField(label=f"{label}: members may change it", required=False)
    if field in CHOICES:
        choices = [(choice, choice) for choice in CHOICES[field]]
        yield (
            f"{field}__allowed",
            forms.MultipleChoiceField(
                label=label, required=False, choices=choices, widget=forms.CheckboxSelectMultiple
            ),
        )
    if field in RANGES:
        for end, word in (("min", "at least"), ("max", "at most")):
            yield f"{field}__{end}", RANGES[field](label=f"{label}: {word}", required=False)


def bounds_initial(bounds: Bounds, revision: int) -> dict[str, Any]:
    initial: dict[str, Any] = {"revision": revision}
    for field in FIELDS:
        bound = getattr(bounds, field)
        initial[f"{field}__may"] = bound is not None
        if field in CHOICES and bound is not None:
            initial[f"{field}__allowed"] = list(bound.allowed)
        if field in RANGES and bound is not None:
            ends = {end: getattr(bound, end) for end in ("min", "max")}
            initial |= {
                f"{field}__{end}": RANGES[field].text(value) for end, value in ends.items() if value is not None
            }
    return initial
