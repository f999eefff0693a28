"""What a gateway says of why prompts miss, before it is believed: bounded, and of the form that is stored and shown."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from controlplane.analytics.rows import Problem, shown

MOST_FINDINGS: Final = 32
MOST_PARTINGS: Final = 64
MOST: Final = 2**40


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST


def _is_ratio(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1


def _is_place(value: Any) -> bool:
    return type(value) is str and len(value) == 16 and set(value) <= set("0123456789abcdef")


_FINDING: Final[Mapping[str, Callable[[Any], bool]]] = {
    "place": _is_place,
    **dict.fromkeys(("token", "length_tokens", "longest_tokens", "recurring_tokens", "distinct", "seen"), _is_count),
    **dict.fromkeys(("share", "recurs", "hit_ratio_now", "hit_ratio_then"), _is_ratio),
    "spans": lambda value: value == [],
}
_PARTING: Final[Mapping[str, Callable[[Any], bool]]] = {"token": _is_count, "until": _is_count, "share": _is_ratio}
_WHOLE: Final[Mapping[str, Callable[[Any], bool]]] = {
    "prompts": _is_count,
    "tokens": _is_count,
    "hit_ratio_now": _is_ratio,
    "hit_ratio_then": _is_ratio,
    "findings": lambda value: type(value) is list and len(value) <= MOST_FINDINGS,
    "partings": lambda value: type(value) is list and len(value) <= MOST_PARTINGS,
}


def diagnostics_problem(field: str, told: Any) -> Problem | None:
    """What is wrong with what was found of one namespace."""
    problem = _problem(field, told, _WHOLE)
    if problem is not None:
        return problem
    parts = [("findings", _FINDING), ("partings", _PARTING)]
    found = (_problem(f"{field}.{name}.{n}", one, form) for name, form in parts for n, one in enumerate(told[name]))
    return next(filter(None, found), None)


def _problem(field: str, told: Any, form: Mapping[str, Callable[[Any], bool]]) -> Problem | None:
    if type(told) is not dict or told.keys() != form.keys():
        return Problem(field, f"must be an object of {', '.join(form)}")
    wrong = next((name for name, is_good in form.items() if not is_good(told[name])), None)
    return Problem(f"{field}.{wrong}", f"has a value it cannot have: {shown(told[wrong])}") if wrong else None
