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

    def refuse(self, field_problems: Iterable[FieldProblem]) -> None:
        """Add a service's problems to their fields."""
        for field_problem in field_problems:
            key, name = self._place(field_problem.field)
            message = problem_words(name, field_problem.message)
            if key == "" and name not in ("", NOTE):
                message = f"{field_problem.field.removeprefix('policy.')}: {message}"
            if message not in self.problems.setdefault(key, []):
                self.problems[key].append(message)

    def _place(self, field: str) -> tuple[str, str]:
        path = field.removeprefix("policy.")
        if path in FIELDS:
            return path, path
        if path == NOTE or path.startswith(ROLLOUT):
            return path.split(".")[0], NOTE
        for section in self.models:
            for name in section.fields:
                if path == f"{MODELS}.{section.name}.{name}":
                    return section.at(name), name
        return "", path


def form_of(level: Values, above: Sequence[Values]) -> Form:
    """Return the form with the published values."""
    return Form(typed_level(level, above), dict(level))


def typed_level(level: Values, above: Sequence[Values]) -> dict[str, list[str]]:
    typed: dict[str, list[str]] = {MODELS: ["shown"]}
    inherited = effective_values(above)
    for name, policy_field in FIELDS.items():
        typed |= typed_of(policy_field, name, level.get(name, INHERITED), unit_of=inherited[name])
    for number, (model, model_values) in enumerate(sorted(level.get(MODELS, {}).items())):
        typed |= _typed_model(f"m{number}", model, model_values)
    return typed


def _typed_model(key: str, model: str, model_values: Values) -> dict[str, list[str]]:
    typed = {key: [model], f"{key}-has": [name for name in FIELDS if name in model_values]}
    for name in typed[f"{key}-has"]:
        typed |= typed_of(FIELDS[name], f"{key}-{name}", model_values[name])
    return typed


def models_in(typed: Typed) -> list[ModelPlace]:
    sections = []
    for number in range(MAX_MODELS + 1):
        key = f"m{number}"
        if key in typed:
            field_names = [name for name in FIELDS if name in typed.get(f"{key}-has", ())]
            sections.append(ModelPlace(key, first(typed, key), tuple(field_names)))
    return sections


# What was sent


def form_sent(typed: Typed, level: Values) -> Form:
    """Parse a submitted form. A field that cannot be parsed keeps its published value."""
    problems: Problems = {}
    policy_values = dict(_said(typed, "", FIELDS, level, problems))
    models = level.get(MODELS, {}) if MODELS not in typed else _models(typed, level.get(MODELS, {}), problems)
    if models or MODELS in level:
        policy_values[MODELS] = dict(models)
    return Form(typed, policy_values, problems)


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
    for section in models_in(typed):
        if not _MODEL.fullmatch(section.name):
            problems.setdefault(section.key, []).append(f"“{section.name[:40]}” {NO_NAME}.")
            continue
        if section.name in models:
            problems.setdefault(section.key, []).append(f"{section.name} is named twice: say all of it in one place.")
            continue
        previous_values = before.get(section.name, {})
        model_values = dict(_said(typed, f"{section.key}-", section.fields, previous_values, problems))
        if model_values or (section.name in before and not previous_values):
            models[section.name] = model_values
    if len(models) > MAX_MODELS:
        problems.setdefault("", []).append(f"{len(models)} models have values of their own; {MAX_MODELS} is the most.")
    return models


# Buttons that only change what the form shows


def pressed(typed: Typed, above: Sequence[Values]) -> dict[str, list[str]]:
    """Return the form after the buttons "Inherit", "Remove" and "Add"."""
    edited = {name: list(values) for name, values in typed.items()}
    if key := first(typed, "inherit"):
        _inherit(edited, key, above)
    if key := first(typed, "drop"):
        _drop(edited, key)
    if key := first(typed, "add"):
        _add(edited, key)
    return edited


def _inherit(typed: dict[str, list[str]], key: str, above: Sequence[Values]) -> None:
    if key in FIELDS:
        typed.update(typed_of(FIELDS[key], key, INHERITED, unit_of=effective_values(above)[key]))


def _drop(typed: dict[str, list[str]], key: str) -> None:
    model_key, dash, name = key.partition("-")
    if dash:
        typed[f"{model_key}-has"] = [
            field_name for field_name in typed.get(f"{model_key}-has", []) if field_name != name
        ]
    elif re.fullmatch(r"m\d{1,2}", model_key):
        for removed_key in [
            typed_key for typed_key in typed if typed_key == model_key or typed_key.startswith(f"{model_key}-")
        ]:
            del typed[removed_key]


def _add(typed: dict[str, list[str]], key: str) -> None:
    """Add a field to a model, or a model with its first field."""
    name = first(typed, f"{key}-new")
    if name not in FIELDS:
        return
    if key == "model":
        model = first(typed, "model-name")
        existing = next((section for section in models_in(typed) if section.name == model), None)
        key = _free(typed) if existing is None else existing.key
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
    for section in form.models:
        for name in {*section.fields, *models.get(section.name, {})}:
            if section.at(name) in form.problems or _model_value(form.said, section.name, name) != _model_value(
                old, section.name, name
            ):
                _take_of_model(typed, form.typed, section, name)
        if section.key in form.problems:
            typed[_free(typed)] = [section.name]
    for model in set(models).difference(section.name for section in form.models):
        for model_key in [new_section.key for new_section in models_in(typed) if new_section.name == model]:
            _drop(typed, model_key)
    return form_sent(typed, new)


def _model_value(level: Values, model: str, name: str) -> Any:
    return level.get(MODELS, {}).get(model, {}).get(name, INHERITED)


def _take(typed: dict[str, list[str]], source: Typed, key: str, target_key: str) -> None:
    for suffix in ("", "-unit", "-own"):
        if f"{key}{suffix}" in source:
            typed[f"{target_key}{suffix}"] = list(source[f"{key}{suffix}"])
        elif suffix == "" and f"{key}-own" in source:
            typed[target_key] = []  # a form without any tick sends nothing


def _take_of_model(typed: dict[str, list[str]], source: Typed, section: ModelPlace, name: str) -> None:
    model_key = next(
        (typed_section.key for typed_section in models_in(typed) if typed_section.name == section.name), None
    ) or _free(typed)
    if not model_key:
        return
    typed.setdefault(model_key, [section.name])
    field_names = typed.setdefault(f"{model_key}-has", [])
    if name not in section.fields:
        typed[f"{model_key}-has"] = [field_name for field_name in field_names if field_name != name]
        return
    if name not in field_names:
        field_names.append(name)
    _take(typed, source, section.at(name), f"{model_key}-{name}")
