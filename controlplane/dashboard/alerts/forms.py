"""Forms for notes, silences and alert rules, with numbers in common units. Pure."""

import re
from collections.abc import Mapping
from decimal import Decimal
from hashlib import sha256
from typing import Any, Final

from django import forms

from controlplane.alerts.definitions import METRICS
from controlplane.dashboard.alerts.rows import metric_name, unit_words
from controlplane.dashboard.frame.forms import ConfirmForm, RefusableForm, typed_field
from controlplane.dashboard.frame.words import duration
from engine_agent.contracts.protocol import canonical_json

HOUR: Final = 3600
SILENCES = (
    (str(HOUR), "1 hour"),
    (str(8 * HOUR), "8 hours"),
    (str(24 * HOUR), "24 hours"),
    (str(30 * 24 * HOUR - 60), "until it is lifted, 30 days at most"),
)
PLACES = {
    "for_seconds": "lasting",
    "clear_for_seconds": "clear_for",
    "least_prompt_tokens": "least",
    "webhook_url": "webhook",
    "rotate_secret": "new_secret",
    "group": "place",
    "until": "seconds",
}
SIZES = {"s": 1, "min": 60, "h": HOUR, "d": 24 * HOUR}
_NUMBER = re.compile(r"[0-9]{1,13}(?:\.[0-9]{1,9})?")
_LASTING = re.compile(r"(?:[0-9]{1,9}\s*(?:s|min|h|d)\s*)+")
_PART = re.compile(r"([0-9]+)\s*(s|min|h|d)")


class AlertForm(RefusableForm):
    places = PLACES


class AcknowledgeForm(AlertForm):
    note = forms.CharField(
        label="What is being done about it",
        required=False,
        max_length=2000,
        help_text="Optional, at most 500 characters. It stays in the history.",
    )


class SilenceForm(AlertForm):
    seconds = forms.ChoiceField(
        label="Tell nobody for",
        choices=SILENCES,
        initial=SILENCES[0][0],
        error_messages={"invalid_choice": "Tell nobody for: “%(value)s” is none of 1, 8 or 24 hours and until lifted."},
    )


class NumberField(forms.CharField):
    def __init__(self, **kwargs: Any) -> None:
        widget = forms.TextInput(attrs={"inputmode": "decimal", "autocomplete": "off"})
        super().__init__(max_length=30, widget=widget, **kwargs)

    def clean(self, value: Any) -> Any:
        text = str(super().clean(value) or "")
        if not text:
            return None
        plain = re.sub(r"[,_\s]|%$", "", text)
        if not _NUMBER.fullmatch(plain):
            raise forms.ValidationError(f"{self.label}: “{text}” is not a number, as 50 or 0.5.")
        return Decimal(plain)


class LastingField(forms.CharField):
    """A duration typed as "5 min", "90 s" or "1 h 30 min". The unit is required."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=40, widget=forms.TextInput(attrs={"autocomplete": "off"}), **kwargs)

    def clean(self, value: Any) -> Any:
        text = str(super().clean(value) or "").lower()
        if not text:
            return None
        if not _LASTING.fullmatch(text):
            raise forms.ValidationError(f"{self.label}: “{text}” is no length of time: write it as 5 min or 90 s.")
        return sum(int(count) * SIZES[unit] for count, unit in _PART.findall(text))


class RuleForm(AlertForm):
    """A form for a rule. `seen` identifies the rule as shown, to avoid overwriting newer changes."""

    name = forms.CharField(label="Name", max_length=400, help_text="What is the matter when it fires.")
    metric = forms.ChoiceField(label="Of what")
    place = forms.CharField(label="Where", required=False, max_length=200)
    comparison = forms.ChoiceField(label="When it is", choices=[("above", "above"), ("below", "below")])
    threshold = NumberField(label="Threshold")
    lasting = LastingField(label="For how long", initial="5 min", help_text="On end, as 5 min, before it fires.")
    clears_at = NumberField(
        label="Over at", required=False, help_text="In the same unit. Empty: a tenth further back than the threshold."
    )
    clear_for = LastingField(label="Over after", initial="1 min", help_text="Back for so long on end.")
    least = NumberField(
        label="Only with so many prompt tokens",
        required=False,
        help_text="In 15 minutes; below, nothing is known. For the hit rate alone.",
    )
    webhook = forms.CharField(
        label="Webhook",
        required=False,
        max_length=2000,
        help_text="An https address that is told when it fires and when that is over. Empty: nobody is.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "inputmode": "url", "spellcheck": "false"}),
    )
    enabled = forms.BooleanField(label="On", required=False, initial=True)
    new_secret = forms.BooleanField(label="Sign with a new secret from now on", required=False)
    seen = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def __init__(self, *args: Any, is_operator: bool, fixed: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fixed = fixed
        self.is_operator = is_operator
        if fixed is not None:  # a rule's metric, place and comparison never change
            for name in ("metric", "place", "comparison"):
                del self.fields[name]
            self.fields["threshold"].help_text = f"In {unit_words(fixed['unit'])}."
            return
        del self.fields["new_secret"]
        metrics = [metric for metric in METRICS.values() if is_operator or metric.is_for_customers]
        choices = [(metric.name, f"{metric_name(metric.name)}, {unit_words(metric.unit)}") for metric in metrics]
        metric_field = self.fields["metric"]
        metric_field.choices = choices  # type: ignore[attr-defined]
        metric_field.initial = "hit_ratio"
        metric_field.error_messages["invalid_choice"] = (
            f"Of what: “%(value)s” is none of {', '.join(metric.name for metric in metrics)}."
        )
        self.fields["comparison"].error_messages["invalid_choice"] = "When it is: “%(value)s” is not above or below."
        self.fields["threshold"].help_text = "In the unit that stands beside what it is of."
        self.fields["place"].help_text = (
            "fleet, group:SLUG, an organisation as acme, or a namespace as acme/chat. Empty: the fleet."
            if is_operator
            else "Your organisation, or one of its namespaces as acme/chat."
        )

    @property
    def unit(self) -> str:
        metric = self.cleaned_data.get("metric", "") if self.fixed is None else self.fixed["metric"]
        return METRICS[metric].unit if metric in METRICS else "count"

    def values(self) -> dict[str, Any]:
        """Return the values as services take them: shares from 0 to 1, durations in seconds."""
        cleaned, divisor = self.cleaned_data, Decimal(100) if self.unit == "share" else Decimal(1)
        clears = cleaned["clears_at"]
        return {
            "name": cleaned["name"],
            "threshold": float(cleaned["threshold"] / divisor),
            "clears_at": None if clears is None else float(clears / divisor),
            "for_seconds": cleaned["lasting"],
            "clear_for_seconds": cleaned["clear_for"],
            "least_prompt_tokens": int(cleaned["least"] or 0),
            "enabled": cleaned["enabled"],
            "webhook_url": cleaned["webhook"],
        }


class DeleteForm(ConfirmForm):
    typed = typed_field(400)


def ending_form(name: str, submitted: Any = None) -> DeleteForm:
    return DeleteForm(submitted, name=name, prefix="end")


def rule_initial(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rule's values as people would type them."""
    scale = 100 if rule["unit"] == "share" else 1
    return {
        "name": rule["name"],
        "threshold": _plain(rule["threshold"] * scale),
        "clears_at": _plain(rule["clears_at"] * scale),
        "lasting": duration(rule["for_seconds"]),
        "clear_for": duration(rule["clear_for_seconds"]),
        "least": str(rule["least_prompt_tokens"] or ""),
        "webhook": rule["webhook_url"] or "",
        "enabled": rule["enabled"],
        "seen": rule_mark(rule),
    }


def rule_mark(rule: Mapping[str, Any]) -> str:
    """Return a hash that detects changes, because rules have no revision."""
    plain = {name: str(value) for name, value in rule.items()}
    return sha256(canonical_json(plain)).hexdigest()[:32]


def _plain(value: float) -> str:
    return f"{round(value, 9):.9f}".rstrip("0").rstrip(".")
