"""A policy's fields as people type and read them: 5 min, 12 %, "on". From what was typed to what is meant. Pure.

In a form each field is a name, or that of its model's place and it ("m0-ttl_seconds"). Empty means: inherit. What is
not in the form at all stays.
"""

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from django import forms

from controlplane.dashboard.frame.words import duration, lengths_in_words
from controlplane.dashboard.home.ttl_forms import SIZES, in_words, split
from controlplane.dashboard.policies.form_fields import seconds_problem, shortened
from engine_agent.contracts.policy_fields import FIELDS, LABELS, PolicyField
from kernels.formats import OFFERED

Typed = Mapping[str, Sequence[str]]
NO_CAP = "none"  # in place of a unit: no amount at all
OWN = "own"
_AMOUNT = re.compile(r"[0-9]{1,9}(?:[.,][0-9]{1,9})?")
_RATIO = re.compile(r"(?<![\w.])[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?(?![\w.%]|\.\d)")


_NAME = re.compile(rf"(?<![\w.])(?:{'|'.join(FIELDS)})(?!\w)")
POLICY_PATH = re.compile(rf"(?<![\w.])policy\.(?:models\.(?P<model>\S+)\.)?(?P<field>{'|'.join(FIELDS)})(?!\w)")


class _Word:
    """Instead of a value."""


INHERITED, UNSENT = _Word(), _Word()


def choices_of(field: PolicyField) -> tuple[str, ...]:
    """The words to choose from; none where something is typed."""
    match field.kind:
        case "switch":
            return ("on", "off")
        case "format" | "formats":
            return OFFERED
    return field.choices


def read(field: PolicyField, key: str, typed: Typed) -> Any:
    """A value, INHERITED, or UNSENT where the form did not have the field. Raises ValidationError."""
    match field.kind:
        case "seconds":
            return _seconds(field, key, typed)
        case "switch" | "choice" | "format":
            return _choice(field, key, typed)
        case "formats":
            return _formats(key, typed)
    return _number(field, key, typed)


def first(typed: Typed, name: str, otherwise: str = "") -> str:
    found = typed.get(name)
    return found[-1].strip() if found else otherwise


def _seconds(field: PolicyField, key: str, typed: Typed) -> Any:
    if key not in typed:
        return UNSENT
    amount, unit = first(typed, key), first(typed, f"{key}-unit")
    if unit == NO_CAP and field.is_nullable:
        return None
    if not amount:
        return INHERITED
    if unit not in SIZES:
        raise forms.ValidationError(f"“{shortened(unit)}” is no unit of time.")
    seconds = amount_read(amount, "amount of time: write a number, as 5 or 1.5") * SIZES[unit]
    told = f"{shortened(amount)} {unit}"
    if problem := seconds_problem(seconds, field):
        raise forms.ValidationError(f"{told} is {problem}.")
    return int(seconds)


def _choice(field: PolicyField, key: str, typed: Typed) -> Any:
    if key not in typed:
        return UNSENT
    chosen = first(typed, key)
    if not chosen:
        return INHERITED
    if chosen not in choices_of(field):
        raise forms.ValidationError(f"“{shortened(chosen)}” is none of {', '.join(choices_of(field))}.")
    return chosen == "on" if field.kind == "switch" else chosen


def _formats(key: str, typed: Typed) -> Any:
    """In the order of the formats, whatever the order of ticks: but what names the same ones stays as it was said."""
    if f"{key}-own" not in typed:
        return UNSENT
    if first(typed, f"{key}-own") != OWN:
        return INHERITED
    ticked = set(typed.get(key, ()))
    if unknown := ticked.difference(OFFERED):
        raise forms.ValidationError(f"“{shortened(min(unknown))}” is no format.")
    return [one for one in OFFERED if one in ticked]


def _number(field: PolicyField, key: str, typed: Typed) -> Any:
    if key not in typed:
        return UNSENT
    told = first(typed, key)
    if not told:
        return INHERITED
    if field.kind == "share":
        percent = amount_read(told.removesuffix("%").rstrip(), "share: write percent, as 12 or 2.5")
        if percent > 100:
            raise forms.ValidationError(f"{shortened(told)} % is more than 100 %, all of a pool.")
        return float(percent / 100)
    number = float(amount_read(told, f"{field.label.lower()}: write a number, as 1 or 0.5"))
    least, most = field.minimum or 0.0, field.maximum or math.inf
    if not least <= number <= most:
        raise forms.ValidationError(f"{shortened(told)} is not between {least:g} and {most:g}.")
    return number


def amount_read(told: str, what: str) -> Decimal:
    """Raises ValidationError, which says what it is not."""
    if not _AMOUNT.fullmatch(told):
        raise forms.ValidationError(f"“{shortened(told)}” is no {what}.")
    return Decimal(told.replace(",", "."))


# From values back to what stands in the form


def typed_of(field: PolicyField, key: str, value: Any, *, unit_of: Any = INHERITED) -> dict[str, list[str]]:
    """What somebody would have typed. `unit_of`: what is inherited lends its unit, where nothing is typed."""
    match field.kind:
        case "seconds":
            return _typed_seconds(key, value, unit_of)
        case "formats":
            own = [] if value is INHERITED else list(value)
            return {f"{key}-own": ["" if value is INHERITED else OWN], key: own}
        case "switch" | "choice" | "format":
            return {key: ["" if value is INHERITED else _chosen(value)]}
    if value is INHERITED:
        return {key: [""]}
    return {key: [number_text(100 * value if field.kind == "share" else value)]}


def _typed_seconds(key: str, value: Any, unit_of: Any) -> dict[str, list[str]]:
    if value is None:
        return {key: [""], f"{key}-unit": [NO_CAP]}
    if value is INHERITED:
        unit = split(unit_of)["unit"] if isinstance(unit_of, int) else "h"
        return {key: [""], f"{key}-unit": [unit]}
    told = split(value)
    return {key: [told["amount"]], f"{key}-unit": [told["unit"]]}


def _chosen(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def number_text(value: float) -> str:
    """As short as it can be said: 12, 2.5, and 7 of what a float calls 7.000000000000001."""
    return f"{value:.10g}"


def percent(share: float) -> str:
    return f"{number_text(100 * share)} %"


def what_words(name: str, model: str | None) -> str:
    """A field as pages call it: "KV format of tiny"."""
    return f"{LABELS[name]} of {model}" if model else LABELS[name]


def value_words(name: str, value: Any) -> str:
    """With its unit: "5 min", "12 % of each pool", "int4"."""
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


# What services say, as it is said on the page


def problem_words(name: str, message: str) -> str:
    """What is said in seconds and shares, in the units of the page, and of fields, by their labels."""
    field = FIELDS.get(name)
    if field is None:
        said = message
    elif field.kind == "seconds":
        said = in_words(message)
    elif field.kind == "share":
        said = _RATIO.sub(lambda found: percent(float(found[0])), message)
    else:
        said = message
    said = labelled(said.replace("null is no value here", "no cap is no choice here"))
    return said if said.endswith((".", "!", "?")) else f"{said}."


def reason_words(said: str) -> str:
    """Why something of a policy is as it is, told by services and agents: "policy.models.tiny.kv_dtype" is "KV format"
    of tiny, and many seconds are minutes and hours."""
    return lengths_in_words(labelled(POLICY_PATH.sub(_path_words, said)))


def _path_words(found: re.Match[str]) -> str:
    of = f" of {found['model']}" if found["model"] else ""
    return f"“{LABELS[found['field']]}”{of}"


def labelled(message: str) -> str:
    """Names of fields as the page calls them."""
    return _NAME.sub(lambda found: f"“{LABELS[found[0]]}”", message)
