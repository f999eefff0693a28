"""Decide what a draft is refused for or warned about because agents do not enforce it, and in which words. Pure.

Only values that the level newly sets are judged; kept and inherited ones are not. A value is refused if every serving
agent refuses it. If an agent does not report, or none serves yet, enforcement is unknown, and a warning follows.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from controlplane.fleet.enforcement import NOT_REPORTED, Serving, Together, together
from controlplane.rollouts.checks import NAMED_AT_MOST, Judgement
from engine_agent.contracts.enforcement import VALUES, Graded
from engine_agent.contracts.policy_fields import FORMAT_FIELDS  # judged in checks.py, with their quality results
from engine_agent.contracts.words import listed
from tenants.actor import Actor
from tenants.drafts import Draft
from tenants.errors import FieldProblem, UnenforcedField
from tenants.policy import FIELDS, NOTHING, Values, models_naming
from tenants.preview import PreviewWarning


@dataclass(frozen=True, slots=True)
class Setting:
    """A field at a value, in general or (`model`) for one model."""

    field: str
    model: str | None
    value: Any

    @property
    def path(self) -> str:
        return f"models.{self.model}.{self.field}" if self.model else self.field

    @property
    def is_optional(self) -> bool:
        """Return whether agents of the same version may differ in this value. All of them support the first value."""
        return self.field in VALUES and self.value != VALUES[self.field][0]


def settings_of(draft: Draft) -> list[Setting]:
    """Return the values that the draft sets and the level did not have before, without formats."""
    before, after = draft.before.get("models", NOTHING), draft.after.get("models", NOTHING)
    general_settings = list(_settings(draft.before, draft.after, None))
    model_settings = (_settings(before.get(model, NOTHING), values, model) for model, values in after.items())
    return [*general_settings, *chain.from_iterable(model_settings)]


def _settings(before: Values, after: Values, model: str | None) -> Iterator[Setting]:
    for name in FIELDS:
        is_unchanged = name in before and name in after and before[name] == after[name]
        if name in after and name not in FORMAT_FIELDS and not is_unchanged:
            yield Setting(name, model, after[name])


def judge(draft: Draft, settings: Iterable[Setting], serving: Sequence[Serving], *, actor: Actor) -> Judgement:
    """Return problems and warnings for this actor to read: only operators see agents' names."""
    problems, warnings = list[FieldProblem](), list[PreviewWarning]()
    for setting in settings:
        agents = concerned((*draft.above, draft.after), setting, serving)
        result = graded(setting, agents)
        if result.agents and result.grade == "refused":
            problem = UnenforcedField(f"{draft.where}.{setting.path}", _refusal(setting, result, agents, actor))
            problems.append(problem)
        elif message := _warning(setting, result, actor):
            warnings.append(PreviewWarning("not_enforced", setting.path, message))
    return Judgement(tuple(problems), tuple(warnings))


def graded(setting: Setting, agents: Iterable[Serving]) -> Together:
    """Return the setting's grade over these agents. They are of few kinds, and each kind is graded once."""
    kinds, grades = dict[int, Graded](), dict[str, Graded]()
    for serving in agents:
        kind = id(serving.ability)
        if kind not in kinds:
            kinds[kind] = serving.ability.grade(setting.field, setting.value, setting.model)
        grades[serving.agent] = kinds[kind]
    return together(setting.field, grades)


def concerned(levels: Sequence[Values], setting: Setting, serving: Iterable[Serving]) -> list[Serving]:
    """Return the agents that the setting applies to. A general value does not apply to a model with its own."""
    if setting.model is not None:
        return [agent for agent in serving if setting.model in agent.models]
    models_with_own_value = {*models_naming(levels, {setting.field})}
    return [agent for agent in serving if not models_with_own_value.issuperset(agent.models)]


def _refusal(setting: Setting, result: Together, agents: Sequence[Serving], actor: Actor) -> str:
    explanation = f"none of the {result.agents} agents that serve this enforces it"
    if result.agents == 1:
        explanation = "the only agent that serves this does not enforce it"
    problem = f"{setting.value!r} is not enforced: {explanation} ({reasons_words(result, actor)})"
    alternatives = [Setting(setting.field, setting.model, value) for value in VALUES.get(setting.field, ())]
    possible = [alternative.value for alternative in alternatives if graded(alternative, agents).grade != "refused"]
    return f"{problem}. Use one of: {', '.join(possible)}" if possible else f"{problem}. Leave the field out"


def _warning(setting: Setting, result: Together, actor: Actor) -> str:
    """Return a warning, or an empty text.

    Older agents that do not report what every version does need none.
    """
    setting_text = f"{setting.field} {setting.value}"
    if not result.agents:
        return (
            f"No agent serves this yet: it is not known whether one enforces {setting_text}."
            if setting.is_optional
            else ""
        )
    if result.grade == "enforced" or (not setting.is_optional and {*result.reasons} == {NOT_REPORTED.why}):
        return ""
    return f"{counts_words(result)} {setting_text}; {reasons_words(result, actor)}."


def counts_words(result: Together) -> str:
    """Return for example `2 of 3 agents enforce`."""
    verb = "enforces" if result.enforcing == 1 else "enforce"
    return f"{result.enforcing} of {result.agents} {'agent' if result.agents == 1 else 'agents'} {verb}"


def reasons_words(result: Together, actor: Actor) -> str:
    """Return why agents do not enforce it. Operators also see which agents."""
    if not actor.is_operator:
        return "; ".join(result.reasons)
    return "; ".join(f"{listed(agents, NAMED_AT_MOST)}: {why}" for why, agents in result.reasons.items())
