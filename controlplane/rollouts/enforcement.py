"""The agents that serve a level and their enforcement of its policy: for publishing, previews and readers of a policy.

Reads only; enforcing.py decides.
"""

from collections.abc import Iterable, Mapping, Sequence

from controlplane.fleet.enforcement import Serving, Together, serving_in
from controlplane.rollouts.checks import Judgement, formats_preview
from controlplane.rollouts.enforcing import Setting, concerned, graded, judge, settings_of
from tenants.actor import Actor, ActorKind
from tenants.drafts import Draft
from tenants.errors import FieldProblem
from tenants.hooks import Judged
from tenants.levels import Key, Place, levels_of
from tenants.models import Namespace
from tenants.policy import FIELDS, Policy, Values, effective_values, models_named


def enforcement_check(judged: Sequence[Judged]) -> Iterable[FieldProblem]:
    """Return the problems of a publish, in two queries.

    The system's publishes are not checked: they restore a policy that was in force before.
    """
    changed = [(level, settings_of(level.draft)) for level in judged if level.actor.kind is not ActorKind.SYSTEM]
    changed = [(level, settings) for level, settings in changed if settings]
    serving = serving_by_place([level.place for level, _ in changed])
    return [
        problem
        for level, settings in changed
        for problem in judge(level.draft, settings, serving[level.place.key], actor=level.actor).problems
    ]


def enforcement_preview(*, actor: Actor, place: Place, policy: Policy) -> Judgement:
    """Return the problems of a draft that agents do not enforce, and warnings that are no reason to refuse it."""
    *ancestors, level = levels_of(place)
    draft = Draft(tuple(ancestor.policy for ancestor in ancestors), level.policy, policy.said())
    settings = settings_of(draft)
    return judge(draft, settings, serving_by_place([place])[place.key], actor=actor) if settings else Judgement()


def agents_preview(*, actor: Actor, place: Place, policy: Policy) -> Judgement:
    """Return all problems and warnings of a draft: about formats, and about fields that agents do not enforce."""
    formats = formats_preview(actor=actor, place=place, policy=policy)
    enforced = enforcement_preview(actor=actor, place=place, policy=policy)
    return Judgement((*formats.problems, *enforced.problems), (*formats.warnings, *enforced.warnings))


def enforcement_of(scope: Place, chain: Sequence[Values], model: str | None = None) -> dict[str, Together]:
    """Return the grade of each field at its effective value, over the agents that it applies to."""
    return _enforcement(chain, model, serving_by_place([scope])[scope.key])


def enforcement_by_model(scope: Place, chain: Sequence[Values]) -> dict[str | None, dict[str, Together]]:
    """Return the grades of all fields in general (None), and for each model that has its own values."""
    serving = serving_by_place([scope])[scope.key]
    return {model: _enforcement(chain, model, serving) for model in (None, *models_named(chain))}


def _enforcement(chain: Sequence[Values], model: str | None, serving: Sequence[Serving]) -> dict[str, Together]:
    values = effective_values(chain, model)
    settings = [Setting(name, model, values[name]) for name in FIELDS]
    return {setting.field: graded(setting, concerned(chain, setting, serving)) for setting in settings}


def serving_by_place(scopes: Sequence[Place]) -> Mapping[Key, list[Serving]]:
    """Return the engines that serve the namespaces below each of these places."""
    if not scopes:
        return {}
    groups = _groups(scopes)
    is_whole_fleet = None in groups.values()
    serving = serving_in(
        None if is_whole_fleet else {group for scope_groups in groups.values() for group in scope_groups or ()}
    )
    return {key: _taking_requests(serving, scope_groups) for key, scope_groups in groups.items()}


def _taking_requests(serving: Sequence[Serving], groups: set[int] | None) -> list[Serving]:
    """Return the engines of these groups. Draining ones count only if no others are left."""
    agents = [agent for agent in serving if groups is None or agent.group_id in groups]
    return [agent for agent in agents if not agent.is_draining] or agents


def _groups(scopes: Sequence[Place]) -> dict[Key, set[int] | None]:
    """Return the groups below each place.

    None means every group: present and future ones inherit the fleet's policy.
    """
    scope_organisations = [scope.organisation for scope in scopes if scope.namespace is None]
    organisations = {organisation.pk for organisation in scope_organisations if organisation is not None}
    groups_by_organisation: dict[int, set[int]] = {pk: set() for pk in organisations}
    living = Namespace.objects.filter(deleted_at=None, organisation__in=organisations)
    for organisation, group in living.values_list("organisation", "group").distinct() if organisations else ():
        groups_by_organisation[organisation].add(group)
    return {scope.key: _groups_of(scope, groups_by_organisation) for scope in scopes}


def _groups_of(scope: Place, groups_by_organisation: Mapping[int, set[int]]) -> set[int] | None:
    if scope.namespace is not None:
        return {scope.namespace.group_id}
    return None if scope.organisation is None else groups_by_organisation[scope.organisation.pk]
