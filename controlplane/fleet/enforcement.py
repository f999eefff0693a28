"""Grades of enforcement: of one serving agent for a policy field and value, and of several agents together.

An agent serves if it is an engine with a model and is not revoked.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.db.models import TextField
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import Cast

from controlplane.fleet.models import Agent
from engine_agent.contracts.enforcement import (
    DECLARED_FIELDS,
    DERIVED_FIELDS,
    ENFORCED,
    VALUES,
    Grade,
    Graded,
    grade_read,
)

NOT_REPORTED = Graded("untested", "it does not report what it enforces: its version is older")
NO_MODEL = Graded("untested", "it serves no model yet")
WEAKEST_FIRST: tuple[Grade, ...] = ("untested", "best_effort", "enforced")
ROUTED_FIELDS = DERIVED_FIELDS  # gateways send these requests to agents that can, so an agent that cannot does no harm
READ = ("enforcement", "models", "kv_dtypes", "computed_as")
MOST_TEXTS = 256  # a fleet has few kinds of agents


@dataclass(frozen=True, slots=True)
class Ability:
    """The part of an agent's description that its grades depend on."""

    enforcement: Mapping[str, Any]  # as enforcement_encode writes it
    formats: Mapping[str, Collection[str]]  # by model
    computed_as: Mapping[str, str]

    def grade(self, field: str, value: Any, model: str | None = None) -> Graded:
        """Return the grade of a field at a value. Pass `model` if the value is that model's own."""
        if field in DERIVED_FIELDS:
            return self._grade_of_format(value, model)
        return grade_read(self.enforcement, field, value) or NOT_REPORTED

    def _grade_of_format(self, kv_dtype: str, model: str | None) -> Graded:
        formats = {kv_format for name, known in self.formats.items() for kv_format in known if model in (None, name)}
        if not formats:
            return NO_MODEL
        if kv_dtype not in formats:
            return Graded("refused", f"it cannot do {kv_dtype}")
        if kv_dtype in self.computed_as:
            return Graded("best_effort", f"{kv_dtype} is computed as {self.computed_as[kv_dtype]}")
        return ENFORCED


@dataclass(frozen=True, slots=True)
class Serving:
    """One engine that serves the namespaces of a group."""

    agent: str
    group_id: int
    is_draining: bool
    ability: Ability

    @property
    def models(self) -> Collection[str]:
        return self.ability.formats.keys()


@dataclass(frozen=True, slots=True)
class Together:
    """The grade of a field over all agents that serve it: how many enforce it, and why the others do not."""

    grade: Grade
    agents: int
    enforcing: int
    refusing: int  # 0 where another agent can serve instead, because then a refusal does no harm
    reasons: Mapping[str, tuple[str, ...]]  # reason: agents


def together(field: str, grades: Mapping[str, Graded]) -> Together:
    """Combine the agents' grades: refused only if all refuse; if some refuse and others do not, best effort."""
    agent_grades = [graded.grade for graded in grades.values()]
    reasons: dict[str, tuple[str, ...]] = {}
    for agent, graded in grades.items():
        if graded.why:
            reasons[graded.why] = (*reasons.get(graded.why, ()), agent)
    grade = _grade_together(field, agent_grades)
    refusing = 0 if field in ROUTED_FIELDS and grade != "refused" else agent_grades.count("refused")
    return Together(grade, len(agent_grades), agent_grades.count("enforced"), refusing, reasons)


def _grade_together(field: str, grades: Sequence[Grade]) -> Grade:
    capable = [grade for grade in grades if grade != "refused"]
    if not capable:
        return "refused" if grades else "untested"
    weakest = min(capable, key=WEAKEST_FIRST.index)
    if len(capable) == len(grades) or field in ROUTED_FIELDS:
        return weakest
    return "untested" if {*capable} == {"untested"} else "best_effort"


def ability_of(about: Mapping[str, Any]) -> Ability:
    default_formats = about.get("kv_dtypes") or ()
    formats = {model["name"]: tuple(model.get("kv_dtypes") or default_formats) for model in about.get("models") or ()}
    return Ability(about.get("enforcement") or {}, formats, about.get("computed_as") or {})


def enforcement_view(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return every policy field with its grade on one engine and, if it is graded by value, with each value's grade."""
    ability = ability_of(about)
    formats = list(dict.fromkeys(kv_format for known in ability.formats.values() for kv_format in known))
    declared = {name: _shown(name, ability, VALUES.get(name, ())) for name in DECLARED_FIELDS}
    return {**{name: _shown(name, ability, formats) for name in DERIVED_FIELDS}, **declared}


def _shown(name: str, ability: Ability, values: Collection[str]) -> dict[str, Any]:
    if not values:
        graded = NO_MODEL if name in DERIVED_FIELDS else ability.grade(name, None)
        return {"grade": graded.grade, "why": graded.why, "values": {}}
    by_value = {value: ability.grade(name, value) for value in values}
    combined = together(name, by_value)
    grades_by_value = {value: {"grade": graded.grade, "why": graded.why} for value, graded in by_value.items()}
    return {"grade": combined.grade, "why": "; ".join(combined.reasons), "values": grades_by_value}


def serving_in(group_ids: Iterable[int] | None) -> list[Serving]:
    """Return the engines that serve these groups, or all groups for None, in one query."""
    rows: Any = Agent.objects.filter(kind="engine", revoked_at=None).order_by("pk")
    if group_ids is not None:
        rows = rows.filter(group__in=set(group_ids))
    texts = [Cast(KeyTransform(name, "about"), TextField()) for name in READ]
    return [
        Serving(agent, group_id, is_draining, ability)
        for agent, group_id, is_draining, *about in rows.values_list("pk", "group_id", "is_draining", *texts)
        if (ability := _ability_read(*about)).formats
    ]


@lru_cache(maxsize=MOST_TEXTS)
def _ability_read(*about: str | None) -> Ability:
    return ability_of({name: json.loads(text) for name, text in zip(READ, about, strict=True) if text is not None})
