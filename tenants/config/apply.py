"""Apply a document in one transaction, through the same services and rules as single changes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from django.utils import timezone

from tenants.access import Rule, groups, organisation_own, organisations_visible
from tenants.actor import Actor, Scope
from tenants.audit import audited
from tenants.bounds import Bounds
from tenants.config.document import ConfigDocument
from tenants.config.overlay import Blame, Problem
from tenants.config.ownership import MAX_DELETES, ApplyOptions
from tenants.config.plan import NO_OPTIONS, Plan, PlannedChange, config_plan
from tenants.errors import Conflict, FieldProblem, InvalidFields, NotFound, OutOfBounds, StalePlan, TooManyDeletes
from tenants.levels import Place, fleet_hold, fleet_lock
from tenants.limits import Limits
from tenants.locks import lock_patience, organisations_lock
from tenants.models import AgentGroup, Namespace, Operation, Organisation
from tenants.policy import Policy
from tenants.services.namespaces import NewNamespace, namespace_delete, namespace_update, namespaces_add
from tenants.services.operations import operation_begin
from tenants.services.organisations import (
    bounds_put,
    limits_put,
    organisation_delete,
    organisation_update,
    organisations_create,
)
from tenants.services.policies import Wanted, policies_publish
from tenants.services.shares import shares_judged_last

APPLY = Rule(Scope.POLICY_WRITE, writes=True, whole_organisation=True)
NOTE = "Applied from a file"
WAITS_SECONDS = 10  # for others' locks, once much work would be lost


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of applying a document. Without changes there is no operation."""

    plan: Plan
    operation: Operation | None


def config_apply(
    *,
    actor: Actor,
    document: ConfigDocument,
    options: ApplyOptions = NO_OPTIONS,
    expected_hash: str | None = None,
    max_deletes: int = MAX_DELETES,
) -> Applied:
    """Apply the whole document or nothing. With a hash, apply exactly that plan or raise StalePlan."""
    own = organisation_own(actor, APPLY)

    def planned() -> Plan:
        plan = config_plan(actor=actor, document=document, options=options, rule=APPLY)
        problems_refuse([*plan.problems, *_scopes_missing(actor, plan.changes)])
        if expected_hash is not None and plan.hash != expected_hash:
            raise StalePlan
        if plan.deletes > max_deletes:
            raise TooManyDeletes(plan.deletes, max_deletes)
        return plan

    plan = planned()
    if not plan.changes:
        return Applied(plan, None)
    with audited():
        locks = _locked(actor, plan)
        plan = planned()  # planned again under locks
        if not locks.covers(plan):
            raise StalePlan
        lock_patience(seconds=WAITS_SECONDS)
        with shares_judged_last(actor=actor):
            group_ids = _groups_concerned(plan)  # before and after: if a namespace moves, both groups must be notified
            _Execution(actor, plan, dict(locks.organisations)).run()
        group_ids |= _groups_concerned(plan)
        scope, now = own.slug if own else "fleet", timezone.now()
        operation = operation_begin(
            actor=actor, kind="apply", scope=scope, organisation=own, now=now, group_ids=group_ids
        )
    return Applied(plan, operation)


def _groups_concerned(plan: Plan) -> set[int]:
    """Return the agent groups that the plan's changes affect."""
    namespaces = Namespace.objects.all()
    if not any(change.is_of_the_fleet for change in plan.changes):
        namespaces = namespaces.filter(organisation__slug__in={change.slugs[0] for change in plan.changes})
    return set(namespaces.values_list("group_id", flat=True).distinct())


def problems_refuse(problems: Sequence[Problem]) -> None:
    """Raise all problems in one error, of the kind that the sender can most likely fix."""
    kinds: dict[Blame, type[InvalidFields] | type[OutOfBounds] | type[Conflict]] = {
        Blame.INVALID: InvalidFields,
        Blame.FORBIDDEN: OutOfBounds,
        Blame.CONFLICT: Conflict,
    }
    for blame, error in kinds.items():
        if any(problem.blame is blame for problem in problems):
            raise error(FieldProblem(problem.field, problem.message) for problem in problems)


def _scopes_missing(actor: Actor, changes: Iterable[PlannedChange]) -> Iterator[Problem]:
    """Yield a problem for each change whose scope the actor lacks. Planning requires no scope but reading."""
    for change in changes:
        scope = Scope.POLICY_WRITE if change.verb == "policy.publish" else Scope.ADMIN
        if not actor.has(scope):
            yield Problem(
                Blame.FORBIDDEN, change.field, f"{change.verb} needs the scope {scope}, which your token lacks"
            )


@dataclass(frozen=True, slots=True)
class _Held:
    """The rows locked until commit: only those that the first plan would change, so that other work continues."""

    fleet: bool
    organisations: Mapping[str, Organisation]

    def covers(self, plan: Plan) -> bool:
        """Return False if the second plan needs more locks than are held."""
        locked_slugs = {
            *self.organisations,
            *(change.place for change in plan.changes if change.verb == "organisation.create"),
        }
        return all(self.fleet if change.is_of_the_fleet else change.slugs[0] in locked_slugs for change in plan.changes)


def _locked(actor: Actor, plan: Plan) -> _Held:
    fleet = any(change.is_of_the_fleet for change in plan.changes)
    fleet_lock() if fleet else fleet_hold()
    slugs = {change.slugs[0] for change in plan.changes if not change.is_of_the_fleet}
    ids = set(organisations_visible(actor).filter(slug__in=slugs).values_list("pk", flat=True))
    try:
        return _Held(fleet, {organisation.slug: organisation for organisation in organisations_lock(ids, actor=actor)})
    except NotFound:
        raise StalePlan from None


@dataclass(slots=True)
class _Execution:
    """The execution of a plan: first the deletions that make room, then changes in the order of their dependencies."""

    actor: Actor
    plan: Plan
    organisations: dict[str, Organisation]
    namespaces: dict[tuple[str, str], Namespace] = field(default_factory=dict)
    groups: dict[str, AgentGroup] = field(default_factory=lambda: {group.slug: group for group in groups()})

    def run(self) -> None:
        self._namespaces_find()
        for change in self._of("organisation.delete"):
            self._organisation_delete(change)
        for change in self._of("namespace.delete"):
            namespace = self.namespaces[change.slugs]
            namespace_delete(actor=self.actor, namespace=namespace, expected=frozenset({change.revision}))
        self._organisations_create(self._of("organisation.create"))
        for change in self._of("organisation.update", "limits.set", "bounds.set"):
            with _named(change.field):
                self._organisation_change(change)
        self._namespaces_create()
        self._namespaces_find()
        for change in self._of("namespace.update"):
            with _named(change.field):
                self._namespace_update(change)
        self._publish()

    def _of(self, *verbs: str) -> list[PlannedChange]:
        return [change for change in self.plan.changes if change.verb in verbs]

    def _namespaces_find(self) -> None:
        namespaces = Namespace.objects.filter(organisation__in=self.organisations.values(), deleted_at=None)
        for namespace in namespaces.select_related("organisation", "group"):
            self.namespaces[namespace.organisation.slug, namespace.slug] = namespace

    def _organisation_delete(self, change: PlannedChange) -> None:
        organisation = self.organisations.pop(change.place)
        organisation_delete(actor=self.actor, organisation=organisation, expected=frozenset({change.revision}))

    def _organisations_create(self, changes: Sequence[PlannedChange]) -> None:
        if not changes:
            return
        with _named("organisations"):
            slugs_and_names = [(change.place, change.after["name"]) for change in changes]
            owner = changes[0].after.get("owner", "")  # the document's, the same for all
            created = organisations_create(actor=self.actor, wanted=slugs_and_names, owner=owner)
        for change, organisation in zip(changes, created, strict=True):
            state = change.after["state"]
            self.organisations[change.place] = (
                organisation_update(actor=self.actor, organisation=organisation, expected=None, state=state)
                if state != organisation.state
                else organisation
            )

    def _organisation_change(self, change: PlannedChange) -> None:
        """Change an organisation and store the service's result, which later changes must see."""
        organisation, expected = self.organisations[change.place], frozenset({change.revision})
        if change.verb == "organisation.update":
            organisation = organisation_update(
                actor=self.actor, organisation=organisation, expected=expected, **change.after
            )
        elif change.verb == "limits.set":
            limits = Limits.model_validate(change.after)
            organisation = limits_put(actor=self.actor, organisation=organisation, limits=limits, expected=expected)
        else:
            bounds = Bounds.model_validate(change.after)
            organisation = bounds_put(actor=self.actor, organisation=organisation, bounds=bounds, expected=expected)
        self.organisations[change.place] = organisation

    def _namespaces_create(self) -> None:
        new_namespaces = [
            NewNamespace(
                self.organisations[change.slugs[0]],
                change.slugs[1],
                change.after["name"],
                self.groups.get(change.after["group"]),
                change.after.get("owner", ""),
            )
            for change in self._of("namespace.create")
        ]
        if new_namespaces:
            with _named("organisations"):
                namespaces_add(actor=self.actor, wanted=new_namespaces)

    def _namespace_update(self, change: PlannedChange) -> None:
        """Update a namespace. The caller cannot know the revision of a new organisation's default namespace."""
        namespace_update(
            actor=self.actor,
            namespace=self.namespaces[change.slugs],
            expected=frozenset({change.revision}) if change.revision else None,
            name=change.after["name"],
            group=self.groups.get(change.after["group"]),
            owner=change.after.get("owner"),
        )

    def _publish(self) -> None:
        requests = [
            Wanted(
                place=self._place(change),
                policy=Policy.model_validate(change.after),
                expected=frozenset({change.revision}),
                note=NOTE,
                where=change.field,
            )
            for change in self._of("policy.publish")
        ]
        if requests:
            policies_publish(actor=self.actor, wanted=requests)

    def _place(self, change: PlannedChange) -> Place:
        organisation, namespace = change.slugs
        if change.is_of_the_fleet:
            return Place()
        return Place(self.organisations[organisation], self.namespaces[change.slugs] if namespace else None)


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Prefix the fields of a service's errors with their path in the document."""
    try:
        yield
    except (InvalidFields, Conflict, OutOfBounds) as error:
        kind = next(
            error_type for error_type in (InvalidFields, Conflict, OutOfBounds) if isinstance(error, error_type)
        )
        raise kind(FieldProblem(f"{where}.{problem.field}", problem.message) for problem in error.problems) from None
