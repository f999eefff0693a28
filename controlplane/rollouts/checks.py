"""Problems of a policy with the agents' KV formats: formats that no agent supports, or that have not passed.

Only formats that would come into force are checked; those in force already are refused by the gateways if necessary. A
group without engines refuses nothing.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from controlplane.fleet.quality import Results, Served, results_read, served_in
from engine_agent.contracts.policy_fields import FORMAT_FIELDS
from engine_agent.contracts.words import listed
from tenants.actor import Actor, ActorKind
from tenants.drafts import Draft
from tenants.errors import FieldProblem, UnenforcedField
from tenants.hooks import Judged
from tenants.levels import FLEET, Place, levels_of, namespaces_below
from tenants.models import Namespace
from tenants.policy import Below, Policy, Values, effective_values
from tenants.preview import PreviewWarning

NAMED_AT_MOST = 5
UNNAMED = "some agents"  # in texts for members


@dataclass(frozen=True, slots=True, order=True)
class Wanted:
    """A format that would come into force through one field, in general or for one model."""

    field: str
    model: str  # the model that the value is set for; empty if it is general
    kv_dtype: str

    def where(self, root: str) -> str:
        return f"{root}.models.{self.model}.{self.field}" if self.model else f"{root}.{self.field}"


@dataclass(frozen=True, slots=True)
class Judgement:
    problems: tuple[FieldProblem, ...] = ()
    warnings: tuple[PreviewWarning, ...] = ()


def formats_check(judged: Sequence[Judged]) -> Iterable[FieldProblem]:
    """Return the problems of a publish, in a few queries for any number of levels.

    The system's publishes are not checked: they restore a policy that was in force before.
    """
    asked = [one for one in judged if one.actor.kind is not ActorKind.SYSTEM and formats_differ(one.draft)]
    problems: list[FieldProblem] = []
    for is_operator in (True, False):  # members read no agent's name
        drafts = [(one.place, one.draft) for one in asked if one.actor.is_operator is is_operator]
        problems += [each for one in _judgements(drafts, names_agents=is_operator) for each in one.problems]
    return problems


def formats_preview(*, actor: Actor, place: Place, policy: Policy) -> Judgement:
    """Return the problems of a draft's formats, and warnings that are no reason to refuse it."""
    *above, level = levels_of(place)
    draft = Draft(tuple(one.policy for one in above), level.policy, policy.said())
    if not formats_differ(draft):
        return Judgement()
    return next(iter(_judgements([(place, draft)], names_agents=actor.is_operator)), Judgement())


def _judgements(asked: Sequence[tuple[Place, Draft]], *, names_agents: bool = True) -> list[Judgement]:
    if not asked:
        return []
    below = _below([place for place, _ in asked])
    served = served_in({one.group_id for each in below for one in each})
    if not served:
        return []
    results = results_read({one.model for group in served.values() for one in group})
    if not names_agents:
        served = {group: [replace(one, agent=UNNAMED) for one in each] for group, each in served.items()}
    return [formats_judge(draft, each, served, results) for (_, draft), each in zip(asked, below, strict=True)]


def _below(places: Sequence[Place]) -> list[list[Below]]:
    """Return all namespaces below each place, even with other listed places between. A namespace is below itself."""
    upper = [place for place in places if place.namespace is None]
    one_query = upper[0] if len(upper) == 1 else FLEET
    found = list(namespaces_below(one_query)) if upper else []
    by_organisation: dict[int | None, list[Below]] = {None: found}
    for one in found:
        by_organisation.setdefault(one.organisation_id, []).append(one)
    return [
        by_organisation.get(place.key[0], []) if place.namespace is None else [_itself(place.namespace)]
        for place in places
    ]


def _itself(namespace: Namespace) -> Below:
    """Return the namespace as a `Below` of itself. Its own and inherited values are in its draft."""
    organisation = namespace.organisation
    return Below(organisation.pk, organisation.slug, namespace.pk, namespace.slug, namespace.group_id, {}, {})


def formats_differ(draft: Draft) -> bool:
    return _said(draft.before) != _said(draft.after)


def _said(level: Values) -> list[tuple[str, str, object]]:
    every = [("", level), *level.get("models", {}).items()]
    return sorted((model, field, said[field]) for model, said in every for field in FORMAT_FIELDS if field in said)


def formats_judge(
    draft: Draft, below: Iterable[Below], served: Mapping[int, Sequence[Served]], results: Results
) -> Judgement:
    """Return problems and warnings. A format is a problem if no engine of a group supports it or may serve it. Pure."""
    problems, warnings = dict[FieldProblem, None](), dict[PreviewWarning, None]()
    for wanted in _wanted(draft, below, served).values():
        for one, where in wanted.items():
            told = _judged(one, where, results, draft.where)
            if isinstance(told, FieldProblem):
                problems[told] = None
            elif told is not None:
                warnings[told] = None
    return Judgement(tuple(problems), tuple(warnings))


def _wanted(
    draft: Draft, below: Iterable[Below], served: Mapping[int, Sequence[Served]]
) -> dict[int, dict[Wanted, list[Served]]]:
    """Return by group the formats that would come into force and the engines concerned.

    Each combination of levels is computed once.
    """
    found: dict[int, dict[Wanted, list[Served]]] = {}
    seen = set[tuple[Hashable, int]]()
    for one in below:
        if one.group_id not in served or (one.combination, one.group_id) in seen:
            continue
        seen.add((one.combination, one.group_id))
        ours = found.setdefault(one.group_id, {})
        news = {model: list(_new_formats(draft, one, model)) for model in {each.model for each in served[one.group_id]}}
        for each in served[one.group_id]:
            for wanted in news[each.model]:
                where = ours.setdefault(wanted, [])
                if each not in where:
                    where.append(each)
    return {group: dict(sorted(wanted.items())) for group, wanted in found.items()}


def _new_formats(draft: Draft, below: Below, model: str) -> Iterator[Wanted]:
    old, new = (effective_values(draft.chain(below, old=is_old), model) for is_old in (True, False))
    if new["kv_dtype"] != old["kv_dtype"]:
        yield Wanted("kv_dtype", _whose(draft, "kv_dtype", model), new["kv_dtype"])
    for kv_dtype in new["request_kv_dtypes"]:
        if kv_dtype not in old["request_kv_dtypes"]:
            yield Wanted("request_kv_dtypes", _whose(draft, "request_kv_dtypes", model), kv_dtype)


def _whose(draft: Draft, field: str, model: str) -> str:
    return model if field in draft.after.get("models", {}).get(model, {}) else ""


def _judged(
    wanted: Wanted, served: Sequence[Served], results: Results, root: str
) -> FieldProblem | PreviewWarning | None:
    able = [one for one in served if wanted.kv_dtype in one.formats]
    open_ones = [one for one in able if results.may_serve(one, wanted.kv_dtype)]
    where = wanted.where(root)
    if not able:
        return UnenforcedField(where, f"no agent here can do {wanted.kv_dtype}: {_formats_of(served)}")
    if not open_ones:
        return FieldProblem(where, f"has no passing quality result: {_results_of(able, wanted.kv_dtype, results)}")
    if len(able) < len(served):
        lacking = [one for one in served if one not in able]
        message = f"{_names(lacking)} cannot do {wanted.kv_dtype}: requests for it go to others, or get 400."
        return PreviewWarning("format_lacking", where.removeprefix(f"{root}."), message)
    if len(open_ones) < len(able):
        shut = [one for one in able if one not in open_ones]
        message = f"{_results_of(shut, wanted.kv_dtype, results)}. Requests for it go to others, or get 400."
        return PreviewWarning("format_unproven", where.removeprefix(f"{root}."), message)
    return None


def _formats_of(served: Sequence[Served]) -> str:
    """Return a text with each agent's formats, over all its models."""
    by_agent: dict[str, set[str]] = {}
    for one in served:
        by_agent.setdefault(one.agent, set()).update(one.formats)
    named = [f"{agent} can do {', '.join(sorted(formats)) or 'nothing'}" for agent, formats in by_agent.items()]
    return listed(named, NAMED_AT_MOST, "; ")


def _results_of(served: Sequence[Served], kv_dtype: str, results: Results) -> str:
    said = list(dict.fromkeys(results.why_not(one, kv_dtype) for one in served))
    return listed(said, NAMED_AT_MOST, "; ")


def _names(served: Sequence[Served]) -> str:
    return listed(list(dict.fromkeys(one.agent for one in served)), NAMED_AT_MOST)
