"""The editor's form of a policy: one level's values as typed text, and the typed text as values. Pure.

Models with values of their own have numbered keys: `m0` is the first model's name, `m0-has` the fields shown for it,
and `m0-ttl_seconds` a typed value. Buttons that only change what is shown are fields of the form, too.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.core.exceptions import ValidationError

from controlplane.dashboard.policies.fields import (
    INHERITED,
    UNSENT,
    Typed,
    first,
    problem_words,
    read,
    typed_of,
)
from engine_agent.contracts.policy_fields import FIELDS
from tenants.errors import FieldProblem
from tenants.policy import MAX_MODELS, MODEL_PATTERN, Values, effective_values

MODELS = "models"  # marks a form that shows models: models missing from it are removed
NOTE = "note"
ROLLOUT = "rollout"
BUTTONS = ("inherit", "drop", "add")  # these only change what the form shows
NO_NAME = "is no name of a model: 1 to 200 letters, digits and . _ : / @ + -, first a letter or digit"
_MODEL = re.compile(MODEL_PATTERN)
Problems = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class ModelPlace:
    """One model and the fields that the form shows for it."""

    key: str
    name: str
    fields: tuple[str, ...]

    def at(self, name: str) -> str:
        return f"{self.key}-{name}"


@dataclass(frozen=True, slots=True)
class Form:
    """The typed text, the values it means, and the problems by field, or under "" for no single field."""

    typed: Typed
    said: dict[str, Any]
    problems: Problems = field(default_factory=dict)

    @property
    def models(self) -> list[ModelPlace]:
        return models_in(self.typed)

    def refuse(self, told: Iterable[FieldProblem]) -> None:
        """Add a service's problems to their fields."""
        for one in told:
            key, name = self._place(one.field)
            said = problem_words(name, one.message)
            if key == "" and name not in ("", NOTE):
                said = f"{one.field.removeprefix('policy.')}: {said}"
            if said not in self.problems.setdefault(key, []):
                self.problems[key].append(said)

    def _place(self, told: str) -> tuple[str, str]:
        path = told.removeprefix("policy.")
        if path in FIELDS:
            return path, path
        if path == NOTE or path.startswith(ROLLOUT):
            return path.split(".")[0], NOTE
        for one in self.models:
            for name in one.fields:
                if path == f"{MODELS}.{one.name}.{name}":
                    return one.at(name), name
        return "", path


def form_of(level: Values, above: Sequence[Values]) -> Form:
    """Return the form with the published values."""
    return Form(typed_level(level, above), dict(level))


def typed_level(level: Values, above: Sequence[Values]) -> dict[str, list[str]]:
    typed: dict[str, list[str]] = {MODELS: ["shown"]}
    inherited = effective_values(above)
    for name, one in FIELDS.items():
        typed |= typed_of(one, name, level.get(name, INHERITED), unit_of=inherited[name])
    for number, (model, said) in enumerate(sorted(level.get(MODELS, {}).items())):
        typed |= _typed_model(f"m{number}", model, said)
    return typed


def _typed_model(key: str, model: str, said: Values) -> dict[str, list[str]]:
    typed = {key: [model], f"{key}-has": [name for name in FIELDS if name in said]}
    for name in typed[f"{key}-has"]:
        typed |= typed_of(FIELDS[name], f"{key}-{name}", said[name])
    return typed


def models_in(typed: Typed) -> list[ModelPlace]:
    found = []
    for number in range(MAX_MODELS + 1):
        key = f"m{number}"
        if key in typed:
            has = [name for name in FIELDS if name in typed.get(f"{key}-has", ())]
            found.append(ModelPlace(key, first(typed, key), tuple(has)))
    return found


# What was sent


def form_sent(typed: Typed, level: Values) -> Form:
    """Parse a submitted form. A field that cannot be parsed keeps its published value."""
    problems: Problems = {}
    said = dict(_said(typed, "", FIELDS, level, problems))
    models = level.get(MODELS, {}) if MODELS not in typed else _models(typed, level.get(MODELS, {}), problems)
    if models or MODELS in level:
        said[MODELS] = dict(models)
    return Form(typed, said, problems)


def _said(
    typed: Typed, prefix: str, names: Iterable[str], before: Values, problems: Problems
) -> Iterator[tuple[str, Any]]:
    for name in names:
        key, old = f"{prefix}{name}", before.get(name, INHERITED)
        try:
            value = read(FIELDS[name], key, typed)
        except ValidationError as error:
            problems.setdefault(key, []).extend(error.messages)
            value = UNSENT
        if value is UNSENT or FIELDS[name].is_same(value, old):
            value = old
        if value is not INHERITED:
            yield name, value


def _models(typed: Typed, before: Values, problems: Problems) -> dict[str, Any]:
    models: dict[str, Any] = {}
    for one in models_in(typed):
        if not _MODEL.fullmatch(one.name):
            problems.setdefault(one.key, []).append(f"“{one.name[:40]}” {NO_NAME}.")
            continue
        if one.name in models:
            problems.setdefault(one.key, []).append(f"{one.name} is named twice: say all of it in one place.")
            continue
        own = before.get(one.name, {})
        said = dict(_said(typed, f"{one.key}-", one.fields, own, problems))
        if said or (one.name in before and not own):
            models[one.name] = said
    if len(models) > MAX_MODELS:
        problems.setdefault("", []).append(f"{len(models)} models have values of their own; {MAX_MODELS} is the most.")
    return models


# Buttons that only change what the form shows


def pressed(typed: Typed, above: Sequence[Values]) -> dict[str, list[str]]:
    """Return the form after the buttons "Inherit", "Remove" and "Add"."""
    found = {name: list(values) for name, values in typed.items()}
    if key := first(typed, "inherit"):
        _inherit(found, key, above)
    if key := first(typed, "drop"):
        _drop(found, key)
    if key := first(typed, "add"):
        _add(found, key)
    return found


def _inherit(typed: dict[str, list[str]], key: str, above: Sequence[Values]) -> None:
    if key in FIELDS:
        typed.update(typed_of(FIELDS[key], key, INHERITED, unit_of=effective_values(above)[key]))


def _drop(typed: dict[str, list[str]], key: str) -> None:
    place, dash, name = key.partition("-")
    if dash:
        typed[f"{place}-has"] = [one for one in typed.get(f"{place}-has", []) if one != name]
    elif re.fullmatch(r"m\d{1,2}", place):
        for known in [one for one in typed if one == place or one.startswith(f"{place}-")]:
            del typed[known]


def _add(typed: dict[str, list[str]], key: str) -> None:
    """Add a field to a model, or a model with its first field."""
    name = first(typed, f"{key}-new")
    if name not in FIELDS:
        return
    if key == "model":
        model = first(typed, "model-name")
        known = next((one for one in models_in(typed) if one.name == model), None)
        key = _free(typed) if known is None else known.key
        if not model or not key:
            return
        typed[key] = [model]
        typed["model-name"] = [""]
    elif key not in typed:
        return
    if name not in typed.setdefault(f"{key}-has", []):
        typed[f"{key}-has"].append(name)
        typed.update(typed_of(FIELDS[name], f"{key}-{name}", INHERITED))
    typed[f"{key}-new"] = [""]


def _free(typed: Mapping[str, Any]) -> str:
    return next((f"m{number}" for number in range(MAX_MODELS + 1) if f"m{number}" not in typed), "")


# A newer revision was published meanwhile


def rebased(form: Form, old: Values, new: Values, above: Sequence[Values]) -> Form:
    """Rebase the form onto a newer revision: changed fields stay, others take the new values."""
    typed = typed_level(new, above)
    for name in FIELDS:
        if name in form.problems or form.said.get(name, INHERITED) != old.get(name, INHERITED):
            _take(typed, form.typed, name, name)
    models = old.get(MODELS, {})
    for one in form.models:
        for name in {*one.fields, *models.get(one.name, {})}:
            if one.at(name) in form.problems or _model_value(form.said, one.name, name) != _model_value(
                old, one.name, name
            ):
                _take_of_model(typed, form.typed, one, name)
        if one.key in form.problems:
            typed[_free(typed)] = [one.name]
    for model in set(models).difference(one.name for one in form.models):
        for place in [each.key for each in models_in(typed) if each.name == model]:
            _drop(typed, place)
    return form_sent(typed, new)


def _model_value(level: Values, model: str, name: str) -> Any:
    return level.get(MODELS, {}).get(model, {}).get(name, INHERITED)


def _take(typed: dict[str, list[str]], source: Typed, key: str, to: str) -> None:
    for suffix in ("", "-unit", "-own"):
        if f"{key}{suffix}" in source:
            typed[f"{to}{suffix}"] = list(source[f"{key}{suffix}"])
        elif suffix == "" and f"{key}-own" in source:
            typed[to] = []  # a form without any tick sends nothing


def _take_of_model(typed: dict[str, list[str]], source: Typed, one: ModelPlace, name: str) -> None:
    place = next((each.key for each in models_in(typed) if each.name == one.name), None) or _free(typed)
    if not place:
        return
    typed.setdefault(place, [one.name])
    has = typed.setdefault(f"{place}-has", [])
    if name not in one.fields:
        typed[f"{place}-has"] = [each for each in has if each != name]
        return
    if name not in has:
        has.append(name)
    _take(typed, source, one.at(name), f"{place}-{name}")
