"""A policy's fields as people type and read them: 5 min, 12 %, "on". From what was typed to what is meant. Pure.

In a form each field is a name, or that of its model's place and it ("m0-ttl_seconds"). Empty means: inherit. What is
not in the form at all stays.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from controlplane.dashboard.frame.words import duration, lengths_in_words
from controlplane.dashboard.home.ttl_forms import SIZES, in_words, split
from kernels.formats import OFFERED
from tenants.policy import WEEK_SECONDS, YEAR_SECONDS

Typed = Mapping[str, Sequence[str]]
Kind = Literal["seconds", "choice", "formats", "share", "number"]
NO_CAP = "none"  # in place of a unit: no amount at all
OWN = "own"
MOST_SHOWN = 40  # letters of what somebody typed, in a message
_AMOUNT = re.compile(r"[0-9]{1,9}(?:[.,][0-9]{1,9})?")
_RATIO = re.compile(r"(?<![\w.])[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?(?![\w.%]|\.\d)")


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    label: str
    kind: Kind
    hint: str
    choices: tuple[tuple[str, str], ...] = ()
    most_seconds: int = 0
    may_be_none: bool = False


FIELDS: dict[str, Field] = {
    one.name: one
    for one in (
        Field(
            "prefix_caching",
            "Prefix caching",
            "choice",
            "Off: nothing is matched and nothing kept.",
            (("on", "on"), ("off", "off")),
        ),
        Field("ttl_seconds", "Time to live", "seconds", "How long a block stays matchable.", most_seconds=WEEK_SECONDS),
        Field(
            "ttl_mode",
            "Counted from",
            "choice",
            "Sliding: every hit renews it. Absolute: it ends that long after it was made.",
            (("sliding", "sliding"), ("absolute", "absolute")),
        ),
        Field(
            "max_age_seconds",
            "At most",
            "seconds",
            "Hard cap on a block’s age, also when hits renew it.",
            most_seconds=YEAR_SECONDS,
            may_be_none=True,
        ),
        Field(
            "kv_dtype",
            "KV format",
            "choice",
            "What keys and values are kept in. Another one is a cold cache: blocks of different formats never match.",
            tuple((one, one) for one in OFFERED),
        ),
        Field(
            "request_kv_dtypes",
            "Requests may ask for",
            "formats",
            "Besides the format above; anything else is refused with 400.",
        ),
        Field(
            "reserved_share",
            "Guaranteed share",
            "share",
            "Nobody else’s blocks can push these out; what is idle is lent.",
        ),
        Field("limit_share", "Never more than", "share", "What is beyond it is evicted, its own oldest first."),
        Field("weight", "Weight", "number", "Its part of what is contended, against the weights of others."),
        Field(
            "pin_share",
            "Share for pins",
            "share",
            "How much its pins may hold; it is promised like a guaranteed share.",
        ),
        Field(
            "offload",
            "Evicted blocks go",
            "choice",
            "Where blocks go that leave the accelerator.",
            (("none", "nowhere"), ("host", "to the host’s memory"), ("disk", "to disk")),
        ),
    )
}


_PATH = re.compile(rf"(?<![\w.])policy\.(?:models\.(?P<model>\S+)\.)?(?P<field>{'|'.join(FIELDS)})(?!\w)")


class Unreadable(ValueError):
    """What was typed means nothing, or nothing that may be; says so to whoever typed it."""


class _Word:
    """Instead of a value."""


INHERITED, UNSENT = _Word(), _Word()


def read(field: Field, key: str, typed: Typed) -> Any:
    """A value, INHERITED, or UNSENT where the form did not have the field. Raises Unreadable."""
    match field.kind:
        case "seconds":
            return _seconds(field, key, typed)
        case "choice":
            return _choice(field, key, typed)
        case "formats":
            return _formats(key, typed)
    return _number(field, key, typed)


def first(typed: Typed, name: str, otherwise: str = "") -> str:
    found = typed.get(name)
    return found[-1].strip() if found else otherwise


def _seconds(field: Field, key: str, typed: Typed) -> Any:
    if key not in typed:
        return UNSENT
    amount, unit = first(typed, key), first(typed, f"{key}-unit")
    if unit == NO_CAP and field.may_be_none:
        return None
    if not amount:
        return INHERITED
    if unit not in SIZES:
        raise Unreadable(f"“{_short(unit)}” is no unit of time.")
    seconds = amount_read(amount, "amount of time: write a number, as 5 or 1.5") * SIZES[unit]
    told = f"{_short(amount)} {unit}"
    if seconds != int(seconds):
        raise Unreadable(f"{told} is no whole number of seconds.")
    if seconds < 1:
        raise Unreadable(f"{told} is less than 1 s, the least there is.")
    if seconds > field.most_seconds:
        raise Unreadable(f"{told} is more than {duration(field.most_seconds)}, the most there is.")
    return int(seconds)


def _choice(field: Field, key: str, typed: Typed) -> Any:
    if key not in typed:
        return UNSENT
    chosen = first(typed, key)
    if not chosen:
        return INHERITED
    if chosen not in dict(field.choices):
        raise Unreadable(f"“{_short(chosen)}” is none of {', '.join(dict(field.choices))}.")
    return chosen == "on" if field.name == "prefix_caching" else chosen


def _formats(key: str, typed: Typed) -> Any:
    """In the order of the formats, whatever the order of ticks: but what names the same ones stays as it was said."""
    if f"{key}-own" not in typed:
        return UNSENT
    if first(typed, f"{key}-own") != OWN:
        return INHERITED
    ticked = set(typed.get(key, ()))
    if unknown := ticked.difference(OFFERED):
        raise Unreadable(f"“{_short(min(unknown))}” is no format.")
    return [one for one in OFFERED if one in ticked]


def _number(field: Field, key: str, typed: Typed) -> Any:
    if key not in typed:
        return UNSENT
    told = first(typed, key)
    if not told:
        return INHERITED
    if field.kind == "share":
        percent = amount_read(told.removesuffix("%").rstrip(), "share: write percent, as 12 or 2.5")
        if percent > 100:
            raise Unreadable(f"{_short(told)} % is more than 100 %, all of a pool.")
        return float(percent / 100)
    weight = amount_read(told, "weight: write a number, as 1 or 0.5")
    if not Decimal("0.001") <= weight <= 1000:
        raise Unreadable(f"{_short(told)} is not between 0.001 and 1000.")
    return float(weight)


def amount_read(told: str, what: str) -> Decimal:
    """Raises Unreadable, which says what it is not."""
    if not _AMOUNT.fullmatch(told):
        raise Unreadable(f"“{_short(told)}” is no {what}.")
    return Decimal(told.replace(",", "."))


def _short(told: str) -> str:
    return told if len(told) <= MOST_SHOWN else f"{told[:MOST_SHOWN]}…"


# From values back to what stands in the form


def typed_of(field: Field, key: str, value: Any, *, unit_of: Any = INHERITED) -> dict[str, list[str]]:
    """What somebody would have typed. `unit_of`: what is inherited lends its unit, where nothing is typed."""
    match field.kind:
        case "seconds":
            return _typed_seconds(key, value, unit_of)
        case "formats":
            own = [] if value is INHERITED else list(value)
            return {f"{key}-own": ["" if value is INHERITED else OWN], key: own}
        case "choice":
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
    label = FIELDS[name].label
    return f"{label} of {model}" if model else label


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
    return dict(field.choices).get(_chosen(value), _chosen(value))


def same(field: str, one: Any, other: Any) -> bool:
    """Whether both mean the same: formats are a set, whatever their order."""
    if isinstance(one, list) and isinstance(other, list):
        return sorted(one) == sorted(other)
    return type(one) is type(other) and bool(one == other) if field == "prefix_caching" else bool(one == other)


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
    return lengths_in_words(labelled(_PATH.sub(_path_words, said)))


def _path_words(found: re.Match[str]) -> str:
    of = f" of {found['model']}" if found["model"] else ""
    return f"“{FIELDS[found['field']].label}”{of}"


def labelled(message: str) -> str:
    """Names of fields as the page calls them."""
    for one in FIELDS.values():
        message = re.sub(rf"(?<![\w.]){one.name}(?!\w)", f"“{one.label}”", message)
    return message
