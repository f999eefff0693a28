"""Sentences on policy fields that are not enforced, shown beside whether agents are in sync. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from controlplane.dashboard.frame.words import counted
from controlplane.fleet.enforcement import NOT_REPORTED, Together
from controlplane.rollouts.enforcing import Setting, reasons_words
from engine_agent.contracts.policy_fields import LABELS
from tenants.actor import Actor

Seen = Mapping[str, Any]  # the result of fleet.views.agent_view
TITLES = {"best_effort": "Best effort", "untested": "Untested", "refused": "Not enforced"}


# For the fleet and for single agents


def fleet_words(agents: Iterable[Seen]) -> str:
    """Return the fields in force that no agent enforces, then those that only some do; empty if all are enforced."""
    by_group: dict[str, list[set[str]]] = {}
    for agent in agents:
        if agent["kind"] == "engine" and agent["models"]:
            by_group.setdefault(agent["group"], []).append(unenforced(agent))
    never_enforced = {name for fields in by_group.values() for name in set.intersection(*fields)}
    partly_enforced = {name for fields in by_group.values() for name in set.union(*fields)} - never_enforced
    return "; ".join(
        filter(None, (_fields_words(never_enforced, ""), _fields_words(partly_enforced, " on every agent")))
    )


def unenforced(agent: Seen) -> set[str]:
    return {field["field"] for field in agent["not_enforced"]}


def _fields_words(names: Collection[str], where: str) -> str:
    if not names:
        return ""
    verb = "is" if len(names) == 1 else "are"
    return f"{counted(len(names), 'field')} {verb} not enforced{where}: {labels_words(names)}"


def labels_words(names: Collection[str]) -> str:
    return ", ".join(label for name, label in LABELS.items() if name in names)


def with_fleet_words(statement: str, agents: Iterable[Seen]) -> str:
    """Return "All 3 agents are in sync; 1 field is not enforced: Offload tier"."""
    return "; ".join(filter(None, (statement, fleet_words(agents))))


def enforcement_facts(enforcement: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield how many fields an engine enforces, then each other field with the reason."""
    partial = {name: field for name, field in enforcement.items() if field["grade"] != "enforced"}
    reported = {name: field for name, field in partial.items() if field["why"] != NOT_REPORTED.why}
    if len(reported) < len(partial):
        yield "Policy fields", "it does not report which of them it enforces"
    elif enforcement:
        yield "Policy fields", f"{len(enforcement) - len(partial)} of {len(enforcement)} enforced"
    for name, field in reported.items():
        values = {value: grade for value, grade in field["values"].items() if grade["grade"] != "enforced"}
        yield LABELS[name], "; ".join(f"{value}: {_graded(grade)}" for value, grade in values.items()) or _graded(field)


def _graded(grade: Mapping[str, str]) -> str:
    return ", ".join(filter(None, (TITLES[grade["grade"]].lower(), grade["why"])))


# For a policy


def policy_words(results: Iterable[Mapping[str, Together]], actor: Actor) -> str:
    """Return the unenforced fields of a level's policy and its models, to follow the count of agents in sync."""
    shortfalls = [(name, combined) for fields in results for name, combined in fields.items() if combined.refusing]
    never_enforced = [(name, combined) for name, combined in shortfalls if combined.grade == "refused"]
    partly_enforced = [(name, combined) for name, combined in shortfalls if combined.grade != "refused"]
    parts = (_shortfall(never_enforced, "", actor), _shortfall(partly_enforced, " on every agent", actor))
    return "; ".join(filter(None, parts))


def _shortfall(results: Sequence[tuple[str, Together]], where: str, actor: Actor) -> str:
    reasons = dict.fromkeys(reasons_words(combined, actor) for _, combined in results)
    return f"{_fields_words({name for name, _ in results}, where)} ({'; '.join(reasons)})" if results else ""


def fields_words(values: Mapping[str, Any], results: Mapping[str, Together], actor: Actor) -> dict[str, str]:
    """Return each field's note.

    It is empty if the field is enforced, or only unreported by older agents though every version enforces it.
    """
    return {
        name: _field_words(Setting(name, None, values[name]), combined, actor) for name, combined in results.items()
    }


def _field_words(setting: Setting, combined: Together, actor: Actor) -> str:
    is_silent = not setting.is_optional and {*combined.reasons} == {NOT_REPORTED.why}
    if combined.grade == "enforced" or not combined.agents or is_silent:
        return ""
    title = TITLES[combined.grade]
    if combined.refusing and combined.grade != "refused":
        title = f"Enforced by {combined.enforcing} of {counted(combined.agents, 'agent')}"
    return f"{title}: {reasons_words(combined, actor)}."
