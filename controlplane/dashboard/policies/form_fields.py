"""Durations, percentages and numbers as people type them: parsing, formatting and Django form fields."""

import re
from decimal import Decimal
from typing import Any, ClassVar, Final

from django import forms

from controlplane.dashboard.frame.words import UNITS, duration
from engine_agent.contracts.policy_fields import Kind, PolicyField

SIZES: Final = {name: size for size, name in reversed(UNITS)}
WORDS: Final = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days"}
NAMES: Final = {
    "": 1,
    "m": 60,
    **SIZES,
    **{WORDS[name]: size for name, size in SIZES.items()},
    **{WORDS[name].removesuffix("s"): size for name, size in SIZES.items()},
}
AMOUNT_OF_TIME: Final = "amount of time: write a number, as 5 or 1.5"
MOST_LETTERS: Final = 40  # characters of typed text that are parsed or quoted
_AMOUNT = re.compile(r"[0-9]{1,9}(?:[.,][0-9]{1,9})?")
_SECONDS = re.compile(r"\b[0-9]+(?:\.[0-9]+)?(?:e\+?[0-9]+)?\b(?: s\b)?")
_TERM = re.compile(r"([0-9]{1,9})\s*([a-z]*)\s*")
_PERCENT = re.compile(r"([0-9]{1,3}(?:[.,][0-9]{1,6})?)\s*%?")
_NUMBER = re.compile(r"[0-9]{1,6}(?:[.,][0-9]{1,6})?")


class ValueField(forms.Field):
    """A text field for a number. `hint` may name a policy field's bounds."""

    hint: ClassVar[str]
    problem: ClassVar[str]

    def __init__(self, **options: Any) -> None:
        super().__init__(widget=forms.TextInput(attrs={"size": 8, "maxlength": MOST_LETTERS}), **options)

    def to_python(self, value: Any) -> Any:
        text = str(value or "").strip()
        if not text:
            return None
        number = self.read(text) if len(text) <= MOST_LETTERS else None
        if number is None:
            raise forms.ValidationError(f"“{shortened(text)}” {self.problem}")
        return number

    @staticmethod
    def read(typed: str) -> float | None:
        raise NotImplementedError

    @staticmethod
    def text(value: float) -> str:
        raise NotImplementedError


class DurationField(ValueField):
    """A field for whole seconds, typed as 300, 5 min or 1 h 30 min."""

    hint = "as 5 min or 24 h; empty: open"
    problem = "is no length of time: write 300, 5 min or 24 h."

    @staticmethod
    def read(typed: str) -> float | None:
        remaining, seconds = typed.lower(), 0
        while remaining:
            term = _TERM.match(remaining)
            if term is None or term[2] not in NAMES:
                return None
            seconds += int(term[1]) * NAMES[term[2]]
            remaining = remaining[term.end() :]
        return seconds

    @staticmethod
    def text(value: float) -> str:
        return duration(int(value))


class PercentField(ValueField):
    """A field for a share from 0 to 1, typed in percent."""

    hint = "in percent of each agent's pool; empty: open"
    problem = "is no percentage: write 12 or 12.5 %."

    @staticmethod
    def read(typed: str) -> float | None:
        percentage = _PERCENT.fullmatch(typed)
        return None if percentage is None else round(float(percentage[1].replace(",", ".")) / 100, 9)

    @staticmethod
    def text(value: float) -> str:
        return f"{round(value * 100, 7):g} %"


class NumberField(ValueField):
    hint = "a number from {0.minimum:g} to {0.maximum:g}; empty: open"
    problem = "is no number: write 1 or 2.5."

    @staticmethod
    def read(typed: str) -> float | None:
        return float(typed.replace(",", ".")) if _NUMBER.fullmatch(typed) else None

    @staticmethod
    def text(value: float) -> str:
        return f"{value:g}"


VALUE_FIELDS: Final[dict[Kind, type[ValueField]]] = {
    "seconds": DurationField,
    "share": PercentField,
    "number": NumberField,
}


def seconds_problem(seconds: Decimal, field: PolicyField) -> str | None:
    """Return why the field cannot have this value, for after "is"; None if it can."""
    if seconds != int(seconds):
        return "no whole number of seconds"
    if field.minimum is not None and seconds < field.minimum:
        return f"less than {duration(int(field.minimum))}, the least there is"
    if field.maximum is not None and seconds > field.maximum:
        return f"more than {duration(int(field.maximum))}, the most there is"
    return None


def shortened(typed: str) -> str:
    return typed if len(typed) <= MOST_LETTERS else f"{typed[:MOST_LETTERS]}…"


def amount_read(typed: str, expected: str) -> Decimal:
    """Parse a number, or raise ValidationError that names what was `expected`."""
    if not _AMOUNT.fullmatch(typed):
        raise forms.ValidationError(f"“{shortened(typed)}” is no {expected}.")
    return Decimal(typed.replace(",", "."))


def split(seconds: int) -> tuple[str, str]:
    """Return amount and unit as people would type them: 300 is 5 min, 5,400 is 90 min, and a day is 24 h."""
    fitting = [(size, name) for size, name in UNITS if seconds % size == 0 and (name != "d" or seconds >= 2 * size)]
    size, name = fitting[0]
    return str(seconds // size), name


def in_words(message: str) -> str:
    """Rewrite seconds in a message: "604801 is more than 86400, …" becomes "7 d 1 s is more than 24 h, …"."""
    return _SECONDS.sub(lambda match: duration(int(float(match[0].removesuffix(" s")))), message)
