"""Parse policy fields as typed in a form ("5 min", "12 %", "on"), and format values. Pure.

A form uses the policy's field names, with a prefix for a model's value ("m0-ttl_seconds"). An empty field means:
inherit. A field that is missing from the form stays unchanged.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from django import forms

from controlplane.dashboard.frame.words import duration, ended, lengths_in_words
from controlplane.dashboard.policies.form_fields import (
    AMOUNT_OF_TIME,
    SIZES,
    amount_read,
    in_words,
    seconds_problem,
    shortened,
    split,
)
from engine_agent.contracts.policy_fields import FIELDS, LABELS, PolicyField
from kernels.formats import OFFERED

Typed = Mapping[str, Sequence[str]]
NO_CAP = "none"  # sent as the unit: no limit at all
OWN = "own"
_RATIO = re.compile(r"(?<![\w.])[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?(?![\w.%]|\.\d)")


_NAME = re.compile(rf"(?<![\w.])(?:{'|'.join(FIELDS)})(?!\w)")
POLICY_PATH = re.compile(rf"(?<![\w.])policy\.(?:models\.(?P<model>\S+)\.)?(?P<field>{'|'.join(FIELDS)})(?!\w)")


class _Word:
    """A marker used in place of a value, such as INHERITED."""


INHERITED, UNSENT = _Word(), _Word()


def choices_of(field: PolicyField) -> tuple[str, ...]:
    """Return the choices of a field; empty for a field that is typed."""
    match field.kind:
        case "switch":
            return ("on", "off")
        case "format" | "formats":
            return OFFERED
    return field.choices


def read(field: PolicyField, key: str, typed: Typed) -> Any:
    """Return a value, INHERITED, or UNSENT if the form lacks the field. Raise ValidationError if it is invalid."""
    name = f"{key}-own" if field.kind == "formats" else key
    if name not in typed:
        return UNSENT
    text, unit = first(typed, name), first(typed, f"{key}-unit")
    if unit == NO_CAP and field.is_nullable:
        return None
    if not text:
        return INHERITED
    match field.kind:
        case "seconds":
            return _seconds(field, text, unit)
        case "switch" | "choice" | "format":
            return _choice(field, text)
        case "formats":
            return _formats(typed.get(key, ())) if text == OWN else INHERITED
        case "share":
            return _share(text)
    return _number(field, text)


def first(typed: Typed, name: str, otherwise: str = "") -> str:
    entries = typed.get(name)
    return entries[-1].strip() if entries else otherwise


def _seconds(field: PolicyField, amount: str, unit: str) -> int:
    if unit not in SIZES:
        raise forms.ValidationError(f"“{shortened(unit)}” is no unit of time.")
    seconds = amount_read(amount, AMOUNT_OF_TIME) * SIZES[unit]
    if problem := seconds_problem(seconds, field):
        raise forms.ValidationError(f"{shortened(amount)} {unit} is {problem}.")
    return int(seconds)


def _choice(field: PolicyField, chosen: str) -> bool | str:
    if chosen not in choices_of(field):
        raise forms.ValidationError(f"“{shortened(chosen)}” is none of {', '.join(choices_of(field))}.")
    return chosen == "on" if field.kind == "switch" else chosen


def _formats(ticked: Sequence[str]) -> list[str]:
    """Return the ticked formats in the order of OFFERED."""
    if unknown := set(ticked).difference(OFFERED):
        raise forms.ValidationError(f"“{shortened(min(unknown))}” is no format.")
    return [kv_format for kv_format in OFFERED if kv_format in ticked]


def _share(text: str) -> float:
    percent = amount_read(text.removesuffix("%").rstrip(), "share: write percent, as 12 or 2.5")
    if percent > 100:
        raise forms.ValidationError(f"{shortened(text)} % is more than 100 %, all of a pool.")
    return float(percent / 100)


def _number(field: PolicyField, text: str) -> float:
    number = float(amount_read(text, f"{field.label.lower()}: write a number, as 1 or 0.5"))
    minimum, maximum = field.minimum or 0.0, field.maximum or math.inf
    if not minimum <= number <= maximum:
        raise forms.ValidationError(f"{shortened(text)} is not between {minimum:g} and {maximum:g}.")
    return number


# From values back to the content of the form


def typed_of(field: PolicyField, key: str, value: Any, *, unit_of: Any = INHERITED) -> dict[str, list[str]]:
    """Return what a form shows for a value. An inherited one is empty and takes its unit from `unit_of`."""
    match field.kind:
        case "seconds":
            return _typed_seconds(key, value, unit_of)
        case "formats":
            ticked = [] if value is INHERITED else list(value)
            return {f"{key}-own": ["" if value is INHERITED else OWN], key: ticked}
        case "switch" | "choice" | "format":
            return {key: ["" if value is INHERITED else _chosen(value)]}
    if value is INHERITED:
        return {key: [""]}
    return {key: [number_text(100 * value if field.kind == "share" else value)]}


def _typed_seconds(key: str, value: Any, unit_of: Any) -> dict[str, list[str]]:
    if value is None:
        return {key: [""], f"{key}-unit": [NO_CAP]}
    if value is INHERITED:
        unit = split(unit_of)[1] if isinstance(unit_of, int) else "h"
        return {key: [""], f"{key}-unit": [unit]}
    amount, unit = split(value)
    return {key: [amount], f"{key}-unit": [unit]}


def _chosen(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def number_text(value: float) -> str:
    """Format a number in at most 10 digits: 7.000000000000001 becomes 7."""
    return f"{value:.10g}"


def percent(share: float) -> str:
    return f"{number_text(100 * share)} %"


def what_words(name: str, model: str | None) -> str:
    """Return a field's label with its model: "KV format of tiny"."""
    return f"{LABELS[name]} of {model}" if model else LABELS[name]


def value_words(name: str, value: Any) -> str:
    """Format a value with its unit: "5 min", "12 % of each pool", "int4"."""
    field = FIELDS[name]
    if value is INHERITED:
        return "inherited"
    if value is None:
        return "no cap"
    match field.kind:
        case "seconds":
            return duration(value)
        case "share":
            return f"{percent(value)} of each pool"
        case "formats":
            return ", ".join(value) or "nothing else"
        case "number":
            return number_text(value)
    return _chosen(value)


# Messages of services in the terms of the page


def problem_words(name: str, message: str) -> str:
    """Rewrite a service's message with the page's units and labels."""
    kind = FIELDS[name].kind if name in FIELDS else None
    if kind == "seconds":
        message = in_words(message)
    elif kind == "share":
        message = _RATIO.sub(lambda match: percent(float(match[0])), message)
    return ended(labelled(message.replace("null is no value here", "no cap is no choice here")))


def reason_words(reason: str) -> str:
    """Rewrite a reason from a service or an agent for people.

    "policy.models.tiny.kv_dtype" becomes "“KV format” of tiny", and large counts of seconds become minutes or hours.
    """
    return lengths_in_words(labelled(POLICY_PATH.sub(_path_words, reason)))


def _path_words(match: re.Match[str]) -> str:
    model_text = f" of {match['model']}" if match["model"] else ""
    return f"“{LABELS[match['field']]}”{model_text}"


def labelled(message: str) -> str:
    """Replace field names by their labels."""
    return _NAME.sub(lambda match: f"“{LABELS[match[0]]}”", message)
