"""Policy publishing: one transaction that checks, numbers and records, or changes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q
from django.utils import timezone

from tenants import hooks
from tenants.actor import Actor
from tenants.audit import Journal, audited
from tenants.bounds import bounds_of
from tenants.drafts import ROOT, Draft, draft_contradictions, draft_out_of_bounds, promises_more
from tenants.errors import FieldProblem, InvalidFields, OutOfBounds, PublishRefused, UnenforcedField
from tenants.fields import note_check
from tenants.levels import FLEET, Locked, Place, level_of, levels_lock, namespaces_by_place
from tenants.models import Namespace, Organisation, PolicyLevel, PolicyRevision
from tenants.policy import Below, Policy, Values
from tenants.revisions import Expected, revision_check
from tenants.services.shares import groups_check

BATCH = 500


@dataclass(frozen=True, slots=True)
class Wanted:
    """A level's new policy. `where` is its path in errors."""

    place: Place
    policy: Policy
    expected: Expected
    note: str = ""
    rolled_back_to: int | None = None
    where: str = ROOT


@dataclass(frozen=True, slots=True)
class Published:
    level: PolicyLevel
    chain: tuple[Values, ...]


def policy_publish(
    *, actor: Actor, place: Place, policy: Policy, expected: Expected, note: str = "", rolled_back_to: int | None = None
) -> Published:
    """Publish the next revision of a level. Raise the error that explains a refusal."""
    (published,) = policies_publish(actor=actor, wanted=[Wanted(place, policy, expected, note, rolled_back_to)])
    return published


def policies_publish(*, actor: Actor, wanted: Sequence[Wanted]) -> list[Published]:
    """Publish the next revision of all these levels or of none, checked as they are after all changes."""
    notes = [note_check(request.note) for request in wanted]
    with audited() as journal:
        locked = levels_lock([request.place for request in wanted], actor=actor)
        for request, locked_level in zip(wanted, locked, strict=True):
            revision_check(locked_level.level.revision, request.expected)
        previous_policies = [locked_level.level.policy for locked_level in locked]
        _write(actor, wanted, locked, notes, now=timezone.now())
        drafts = [
            Draft(
                tuple(level.policy for level in locked_level.above),
                previous_policy,
                locked_level.level.policy,
                request.where,
            )
            for request, locked_level, previous_policy in zip(wanted, locked, previous_policies, strict=True)
        ]
        _drafts_check(actor, wanted, locked, drafts)
        promising = [request.place for request, draft in zip(wanted, drafts, strict=True) if promises_more(draft)]
        groups_check(_groups_of(promising), actor=actor)
        _hooks_check(actor, wanted, drafts)
        for request, draft, locked_level, note in zip(wanted, drafts, locked, notes, strict=True):
            _record(journal, actor, request, draft, locked_level.level.revision, note)
        for hook in hooks.levels_published:
            hook(actor, [locked_level.level for locked_level in locked])
    return [
        Published(locked_level.level, (*draft.above, draft.after))
        for locked_level, draft in zip(locked, drafts, strict=True)
    ]


def _write(
    actor: Actor, requests: Sequence[Wanted], locked: Sequence[Locked], notes: Sequence[str], *, now: datetime
) -> None:
    for request, locked_level in zip(requests, locked, strict=True):
        locked_level.level.revision, locked_level.level.policy = locked_level.level.revision + 1, request.policy.said()
    PolicyLevel.objects.bulk_update(
        [locked_level.level for locked_level in locked], ["revision", "policy"], batch_size=BATCH
    )
    PolicyRevision.objects.bulk_create(
        (
            PolicyRevision(
                level=locked_level.level,
                number=locked_level.level.revision,
                policy=locked_level.level.policy,
                note=note,
                author=actor.name,
                author_is_operator=actor.is_operator,
                at=now,
                rolled_back_to=request.rolled_back_to,
            )
            for request, locked_level, note in zip(requests, locked, notes, strict=True)
        ),
        batch_size=BATCH,
    )


def _drafts_check(actor: Actor, requests: Sequence[Wanted], locked: Sequence[Locked], drafts: Sequence[Draft]) -> None:
    """Raise every problem of every level at once."""
    below = namespaces_by_place([request.place for request in requests])
    outside, contradictory = list[FieldProblem](), list[FieldProblem]()
    for request, locked_level, draft in zip(requests, locked, drafts, strict=True):
        outside += _out_of_bounds(actor, locked_level.organisation, draft)
        contradictory += draft_contradictions(draft, below.get(request.place.key, list[Below]()), actor=actor)
    if outside:
        raise OutOfBounds([*outside, *contradictory])
    if contradictory:
        raise InvalidFields(contradictory)


def _hooks_check(actor: Actor, requests: Sequence[Wanted], drafts: Sequence[Draft]) -> None:
    """Raise all objections of other apps at once."""
    if not hooks.publish_checks:
        return
    judged = [hooks.Judged(actor, request.place, draft) for request, draft in zip(requests, drafts, strict=True)]
    if problems := [problem for check in hooks.publish_checks for problem in check(judged)]:
        raise (InvalidFields if any(isinstance(problem, UnenforcedField) for problem in problems) else PublishRefused)(
            problems
        )


def _out_of_bounds(actor: Actor, organisation: Organisation | None, draft: Draft) -> list[FieldProblem]:
    if organisation is None or actor.is_operator:
        return []
    return list(draft_out_of_bounds(draft, bounds_of(organisation.bounds, organisation.bounds_revision)))


def _groups_of(policy_scopes: Sequence[Place]) -> set[int]:
    """Return the groups whose agents serve namespaces below these places."""
    if not policy_scopes:
        return set()
    namespace_ids = [policy_scope.namespace.pk for policy_scope in policy_scopes if policy_scope.namespace is not None]
    organisation_ids = [
        policy_scope.organisation.pk
        for policy_scope in policy_scopes
        if policy_scope.organisation is not None and policy_scope.namespace is None
    ]
    existing = Namespace.objects.filter(deleted_at=None)
    if FLEET not in policy_scopes:
        existing = existing.filter(Q(pk__in=namespace_ids) | Q(organisation__in=organisation_ids))
    return set(existing.values_list("group_id", flat=True).distinct())


def _record(journal: Journal, actor: Actor, request: Wanted, draft: Draft, revision: int, note: str) -> None:
    journal.record(
        actor,
        "policy.publish" if request.rolled_back_to is None else "policy.rollback",
        request.place.name,
        organisation=request.place.organisation,
        before={"revision": revision - 1, "policy": draft.before},
        after={"revision": revision, "policy": draft.after, **({"note": note} if note else {})},
    )


def policy_rollback(*, actor: Actor, place: Place, to_revision: int, expected: Expected, note: str = "") -> Published:
    """Publish the policy of an earlier revision. Revision 0 is the initial, empty policy."""
    policy = revision_policy(place, to_revision)
    return policy_publish(
        actor=actor,
        place=place,
        policy=policy,
        expected=expected,
        note=note or f"Back to revision {to_revision}",
        rolled_back_to=to_revision,
    )


def revision_policy(policy_scope: Place, number: int) -> Policy:
    if number == 0:
        return Policy()
    revision = PolicyRevision.objects.filter(level=level_of(policy_scope), number=number).first()
    if revision is None:
        raise InvalidFields([FieldProblem("revision", f"there is no revision {number}")])
    return Policy.model_validate(revision.policy)
