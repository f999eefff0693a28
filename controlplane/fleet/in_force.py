"""The policies in force by group of agents, and the fields of them that an agent does not enforce. Reads only."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.db.models import TextField
from django.db.models.functions import Cast

from controlplane.fleet.enforcement import Ability
from engine_agent.contracts.enforcement import DECLARED_FIELDS, VALUES
from tenants.models import AuditHead, Namespace, Organisation, PolicyLevel
from tenants.policy import Values, effective_values, models_naming

Chain = tuple[Values, Values, Values]


@dataclass(frozen=True, slots=True)
class InForce:
    """A field in force, in general or for one model. `value`: None if the grade does not depend on it."""

    field: str
    value: str | None = None
    model: str | None = None
    other_models: tuple[str, ...] = ()  # models with their own value, to which a general value does not apply

    def reaches(self, models: Collection[str]) -> bool:
        return self.model in models if self.model else not {*models} <= {*self.other_models}


def trail_head() -> tuple[int, bytes]:
    """Return the head of the audit trail. Values derived from policies are valid until the trail grows.

    After a restored backup, two trails may share a number; the hash distinguishes them.
    """
    seq, hash_ = AuditHead.objects.filter(pk=1).values_list("seq", "hash").first() or (0, b"")
    return seq, bytes(hash_)


def chains_in_force() -> Iterator[tuple[int, Chain]]:
    """Yield each living namespace's group and policy levels.

    Each combination comes once: thousands of namespaces are alike.
    """
    fleet = PolicyLevel.objects.filter(kind=PolicyLevel.Kind.FLEET).values_list("policy", flat=True).first() or {}
    living = Namespace.objects.filter(deleted_at=None).exclude(organisation__state=Organisation.State.DELETED)
    rows: Any = (
        living.order_by()
        .values_list(
            "group_id",
            Cast("organisation__policy_level__policy", TextField()),
            Cast("policy_level__policy", TextField()),
        )
        .distinct()
    )
    for group, organisation, namespace in rows:
        yield group, (fleet, json.loads(organisation or "{}"), json.loads(namespace or "{}"))


def fields_in_force() -> Mapping[int, Sequence[InForce]]:
    """Return the fields in force by group, with each value where the grade depends on it."""
    return _fields_at(*trail_head())


@lru_cache(maxsize=1)
def _fields_at(seq: int, hash_: bytes) -> Mapping[int, Sequence[InForce]]:
    by_group = defaultdict[int, set[InForce]](set)
    for group, chain in chains_in_force():
        by_group[group].update(_fields(chain))
    return {group: sorted(fields, key=_place) for group, fields in by_group.items()}


def _place(in_force: InForce) -> tuple[str, str]:
    return in_force.field, in_force.value or ""


def _fields(chain: Chain) -> Iterator[InForce]:
    yield from (InForce(name) for name in DECLARED_FIELDS if name not in VALUES)
    for name in VALUES:
        models = models_naming(chain, {name})
        yield InForce(name, effective_values(chain)[name], other_models=tuple(models))
        yield from (InForce(name, effective_values(chain, model)[name], model) for model in models)


def not_enforced(ability: Ability, fields: Sequence[InForce]) -> list[dict[str, Any]]:
    """Return the fields and values that an agent refuses, each once: {"field", "value", "why"}."""
    refused = {
        (in_force.field, in_force.value): graded.why
        for in_force in fields
        if in_force.reaches(ability.formats)
        and (graded := ability.grade(in_force.field, in_force.value)).grade == "refused"
    }
    return [{"field": name, "value": value, "why": why} for (name, value), why in refused.items()]


def unenforced_words(unenforced: Collection[Mapping[str, Any]]) -> str | None:
    """Return for example `it does not enforce offload disk (no disk tier)`, or None if it enforces everything."""
    descriptions = [
        f"{' '.join(filter(None, (field['field'], field['value'])))} ({field['why']})" for field in unenforced
    ]
    return f"it does not enforce {', '.join(descriptions)}" if descriptions else None
