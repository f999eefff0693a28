"""Grades of enforcement for policy fields, and how an engine declares them. Standard library.

An engine declares a grade for every field except those graded by the formats that it reports. A field that is graded by
value has a grade for each value. Readers ignore unknown fields and grades: a field that an engine does not declare is
`untested`, never `enforced`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, get_args

from engine_agent.contracts.policy_fields import FIELDS, names

Grade = Literal["enforced", "best_effort", "refused", "untested"]

GRADES: tuple[Grade, ...] = get_args(Grade)
DERIVED_FIELDS = names(lambda field: field.enforcer == "formats")
DECLARED_FIELDS = names(lambda field: field.enforcer != "formats")
VALUES: Mapping[str, tuple[str, ...]] = {
    name: FIELDS[name].choices for name in names(lambda field: field.is_graded_by_value)
}
LONGEST_WHY = 200


class IncompleteDeclaration(ValueError):
    """A backend's declaration omits a field or a value, or names an unknown one."""

    def __init__(self, declaration: str, missing: set[str], unknown: set[str]) -> None:
        super().__init__(f"{declaration}: missing {sorted(missing)}, unknown {sorted(unknown)}")


@dataclass(frozen=True, slots=True)
class Graded:
    """A grade and, unless it is `enforced`, the reason as a clause: "no host pool"."""

    grade: Grade
    why: str = ""


ENFORCED = Graded("enforced")
Enforcement = Mapping[str, Graded | Mapping[str, Graded]]
NOTHING_DECLARED: Enforcement = MappingProxyType({})


def declared(fields: Enforcement) -> Enforcement:
    """Return the declaration, checked: it must have every field, and every value of fields that are graded by value."""
    _complete("enforcement", {*fields}, {*DECLARED_FIELDS})
    for name, values in VALUES.items():
        graded = fields[name]
        _complete(name, {*graded} if isinstance(graded, Mapping) else set(), {*values})
    return MappingProxyType(dict(fields))


def _complete(declaration: str, names: set[str], expected: set[str]) -> None:
    if names != expected:
        raise IncompleteDeclaration(declaration, expected - names, names - expected)


def enforcement_encode(enforcement: Enforcement) -> dict[str, Any]:
    """Return the JSON form: {field: {"grade", "why"}} or {field: {"values": {value: {"grade", "why"}}}}."""
    return {
        name: {"values": {value: _encode(grade) for value, grade in graded.items()}}
        if isinstance(graded, Mapping)
        else _encode(graded)
        for name, graded in enforcement.items()
    }


def _encode(graded: Graded) -> dict[str, str]:
    return {"grade": graded.grade, "why": graded.why}


def enforcement_decode(document: Any) -> Enforcement:
    """Return the known part of a declaration. A newer engine may declare more; an older one declares nothing."""
    if not isinstance(document, Mapping):
        return NOTHING_DECLARED
    declared: dict[str, Graded | Mapping[str, Graded]] = {}
    for name in DECLARED_FIELDS:
        entry = document.get(name)
        values = entry.get("values") if isinstance(entry, Mapping) else None
        if isinstance(values, Mapping):
            grades = {value: _decode(values[value]) for value in VALUES.get(name, ()) if value in values}
            declared[name] = {value: graded for value, graded in grades.items() if graded is not None}
        elif (graded := _decode(entry)) is not None:
            declared[name] = graded
    return declared


def grade_read(document: Any, field: str, value: Any = None) -> Graded | None:
    """Return one field's or value's grade without decoding the rest, or None if it is not declared."""
    entry = document.get(field) if isinstance(document, Mapping) else None
    values = entry.get("values") if isinstance(entry, Mapping) else None
    return _decode(values.get(value) if isinstance(values, Mapping) else entry)


def _decode(entry: Any) -> Graded | None:
    if not isinstance(entry, Mapping) or entry.get("grade") not in GRADES:
        return None
    why = entry.get("why")
    return Graded(entry["grade"], _printable(why) if isinstance(why, str) else "")


def _printable(why: str) -> str:
    return "".join(letter for letter in why[:LONGEST_WHY] if letter.isprintable())
