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
    levels = [level for level in judged if level.actor.kind is not ActorKind.SYSTEM and formats_differ(level.draft)]
    problems: list[FieldProblem] = []
    for is_operator in (True, False):  # members read no agent's name
        drafts = [(level.place, level.draft) for level in levels if level.actor.is_operator is is_operator]
        problems += [
            problem for judgement in _judgements(drafts, names_agents=is_operator) for problem in judgement.problems
        ]
    return problems


def formats_preview(*, actor: Actor, place: Place, policy: Policy) -> Judgement:
    """Return the problems of a draft's formats, and warnings that are no reason to refuse it."""
    *ancestors, level = levels_of(place)
    draft = Draft(tuple(ancestor.policy for ancestor in ancestors), level.policy, policy.said())
    if not formats_differ(draft):
        return Judgement()
    return next(iter(_judgements([(place, draft)], names_agents=actor.is_operator)), Judgement())


def _judgements(drafts: Sequence[tuple[Place, Draft]], *, names_agents: bool = True) -> list[Judgement]:
    if not drafts:
        return []
    namespaces_by_draft = _below([scope for scope, _ in drafts])
    served = served_in({namespace.group_id for namespaces in namespaces_by_draft for namespace in namespaces})
    if not served:
        return []
    results = results_read({engine.model for group in served.values() for engine in group})
    if not names_agents:
        served = {group: [replace(engine, agent=UNNAMED) for engine in engines] for group, engines in served.items()}
    return [
        formats_judge(draft, namespaces, served, results)
        for (_, draft), namespaces in zip(drafts, namespaces_by_draft, strict=True)
    ]


def _below(scopes: Sequence[Place]) -> list[list[Below]]:
    """Return all namespaces below each place, even with other listed places between. A namespace is below itself."""
    upper_scopes = [scope for scope in scopes if scope.namespace is None]
    root_scope = upper_scopes[0] if len(upper_scopes) == 1 else FLEET
    namespaces = list(namespaces_below(root_scope)) if upper_scopes else []
    by_organisation: dict[int | None, list[Below]] = {None: namespaces}
    for namespace in namespaces:
        by_organisation.setdefault(namespace.organisation_id, []).append(namespace)
    return [
        by_organisation.get(scope.key[0], []) if scope.namespace is None else [_itself(scope.namespace)]
        for scope in scopes
    ]


def _itself(namespace: Namespace) -> Below:
    """Return the namespace as a `Below` of itself. Its own and inherited values are in its draft."""
    organisation = namespace.organisation
    return Below(organisation.pk, organisation.slug, namespace.pk, namespace.slug, namespace.group_id, {}, {})


def formats_differ(draft: Draft) -> bool:
    return _said(draft.before) != _said(draft.after)


def _said(level: Values) -> list[tuple[str, str, object]]:
    values_by_model = [("", level), *level.get("models", {}).items()]
    return sorted(
        (model, field, values[field]) for model, values in values_by_model for field in FORMAT_FIELDS if field in values
    )


def formats_judge(
    draft: Draft, namespaces: Iterable[Below], served: Mapping[int, Sequence[Served]], results: Results
) -> Judgement:
    """Return problems and warnings. A format is a problem if no engine of a group supports it or may serve it. Pure."""
    problems, warnings = dict[FieldProblem, None](), dict[PreviewWarning, None]()
    for engines_by_format in _wanted(draft, namespaces, served).values():
        for new_format, engines in engines_by_format.items():
            finding = _judged(new_format, engines, results, draft.where)
            if isinstance(finding, FieldProblem):
                problems[finding] = None
            elif finding is not None:
                warnings[finding] = None
    return Judgement(tuple(problems), tuple(warnings))


def _wanted(
    draft: Draft, namespaces: Iterable[Below], served: Mapping[int, Sequence[Served]]
) -> dict[int, dict[Wanted, list[Served]]]:
    """Return by group the formats that would come into force and the engines concerned.

    Each combination of levels is computed once.
    """
    formats_by_group: dict[int, dict[Wanted, list[Served]]] = {}
    seen = set[tuple[Hashable, int]]()
    for namespace in namespaces:
        if namespace.group_id not in served or (namespace.combination, namespace.group_id) in seen:
            continue
        seen.add((namespace.combination, namespace.group_id))
        engines_by_format = formats_by_group.setdefault(namespace.group_id, {})
        new_formats = {
            model: list(_new_formats(draft, namespace, model))
            for model in {engine.model for engine in served[namespace.group_id]}
        }
        for engine in served[namespace.group_id]:
            for new_format in new_formats[engine.model]:
                engines = engines_by_format.setdefault(new_format, [])
                if engine not in engines:
                    engines.append(engine)
    return {group: dict(sorted(engines_by_format.items())) for group, engines_by_format in formats_by_group.items()}


def _new_formats(draft: Draft, namespace: Below, model: str) -> Iterator[Wanted]:
    old, new = (effective_values(draft.chain(namespace, old=is_old), model) for is_old in (True, False))
    if new["kv_dtype"] != old["kv_dtype"]:
        yield Wanted("kv_dtype", _whose(draft, "kv_dtype", model), new["kv_dtype"])
    for kv_dtype in new["request_kv_dtypes"]:
        if kv_dtype not in old["request_kv_dtypes"]:
            yield Wanted("request_kv_dtypes", _whose(draft, "request_kv_dtypes", model), kv_dtype)


def _whose(draft: Draft, field: str, model: str) -> str:
    return model if field in draft.after.get("models", {}).get(model, {}) else ""


def _judged(
    new_format: Wanted, served: Sequence[Served], results: Results, root: str
) -> FieldProblem | PreviewWarning | None:
    capable = [engine for engine in served if new_format.kv_dtype in engine.formats]
    proven = [engine for engine in capable if results.may_serve(engine, new_format.kv_dtype)]
    where = new_format.where(root)
    if not capable:
        return UnenforcedField(where, f"no agent here can do {new_format.kv_dtype}: {_formats_of(served)}")
    if not proven:
        return FieldProblem(
            where, f"has no passing quality result: {_results_of(capable, new_format.kv_dtype, results)}"
        )
    if len(capable) < len(served):
        incapable = [engine for engine in served if engine not in capable]
        message = f"{_names(incapable)} cannot do {new_format.kv_dtype}: requests for it go to others, or get 400."
        return PreviewWarning("format_lacking", where.removeprefix(f"{root}."), message)
    if len(proven) < len(capable):
        unproven = [engine for engine in capable if engine not in proven]
        message = f"{_results_of(unproven, new_format.kv_dtype, results)}. Requests for it go to others, or get 400."
        return PreviewWarning("format_unproven", where.removeprefix(f"{root}."), message)
    return None


def _formats_of(served: Sequence[Served]) -> str:
    """Return a text with each agent's formats, over all its models."""
    by_agent: dict[str, set[str]] = {}
    for engine in served:
        by_agent.setdefault(engine.agent, set()).update(engine.formats)
    descriptions = [f"{agent} can do {', '.join(sorted(formats)) or 'nothing'}" for agent, formats in by_agent.items()]
    return listed(descriptions, NAMED_AT_MOST, "; ")


def _results_of(served: Sequence[Served], kv_dtype: str, results: Results) -> str:
    reasons = list(dict.fromkeys(results.why_not(engine, kv_dtype) for engine in served))
    return listed(reasons, NAMED_AT_MOST, "; ")


def _names(served: Sequence[Served]) -> str:
    return listed(list(dict.fromkeys(engine.agent for engine in served)), NAMED_AT_MOST)
