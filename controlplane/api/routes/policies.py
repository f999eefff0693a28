"""Operations for policies, the same at each of the three levels."""

from inspect import signature
from typing import Annotated, Any

from ninja import Query

from controlplane.api.paging import Cursor, Limit, page
from controlplane.api.routing import Answer, Call, Group, View
from controlplane.api.schemas.base import Page
from controlplane.api.schemas.policies import (
    AffectedShown,
    EffectiveShown,
    EnforcementShown,
    PolicyPreviewed,
    PolicyPublished,
    PolicyPut,
    PolicyShown,
    RevisionShown,
    Rollback,
    SharesShown,
)
from controlplane.rollouts import services
from controlplane.rollouts.enforcement import agents_preview, enforcement_of
from controlplane.rollouts.enforcing import reasons_words
from controlplane.rollouts.selectors import pools_of
from tenants import access
from tenants.actor import Actor
from tenants.errors import NotFound
from tenants.levels import level_of
from tenants.models import PolicyRevision
from tenants.policy import ModelName, effective_hash
from tenants.selectors import policy_in_force, policy_preview

group = Group("Policies")
Model = Annotated[ModelName | None, Query(None, description="What is in force for this model.")]
OPERATOR = "an operator"  # what an organisation sees instead of an operator's name


def policy_get(call: Call) -> Answer:
    """Read what {level} says itself.

    Revision 0 is before the first policy. `effective` says what is in force.
    """
    force = policy_in_force(call.place)
    level = force.levels[-1]
    return Answer(PolicyShown.of(level, effective_hash=force.hash), revision=level.revision)


def policy_put(call: Call, body: PolicyPut) -> Answer:
    """Publish the policy of {level}.

    Replaces what it said: a field left out is inherited. All or nothing, in one transaction, with an audit record.
    Reservations and pins of everybody on the same agents may add up to 0.9 of each pool. A value that it sets
    and that no agent concerned enforces is refused (422), and so is a format that has not passed on any of them (400).
    `rollout` in the answer is how it comes to the agents; null where it concerns none. Wants `If-Match`.
    """
    return _published(
        services.policy_publish(
            actor=call.actor,
            place=call.place,
            policy=body.policy,
            expected=call.expected(),
            note=body.note,
            rollout=body.rollout,
        )
    )


def policy_preview_post(call: Call, body: PolicyPut) -> Answer:
    """Preview a policy of {level}.

    Takes the body of PUT and says what it would do: what differs, where, shares, warnings, and reasons to refuse it.
    Changes nothing.
    """
    pools = pools_of(call.place)
    preview = policy_preview(actor=call.actor, place=call.place, policy=body.policy, pools=pools)
    agents = agents_preview(actor=call.actor, place=call.place, policy=body.policy)
    rollout_problems = services.rollout_problems(place=call.place, rollout=body.rollout)
    rollout_warnings = services.rollout_warnings(place=call.place, rollout=body.rollout)
    response = PolicyPreviewed.of(
        preview,
        affected=AffectedShown.of(preview),
        shares=SharesShown.of(preview),
        warnings=[*preview.warnings, *agents.warnings, *rollout_warnings],
        problems=[*preview.problems, *agents.problems, *rollout_problems],
    )
    return Answer(response)


def policy_effective(call: Call, model: Model = None) -> Answer:
    """Read what is in force for {level}.

    Every field with the level it comes from and whether the agents that serve it enforce it; and the hash they
    acknowledge.
    """
    force = policy_in_force(call.place, model)
    enforcement = enforcement_of(call.place, [level.policy for level in force.levels], model)
    response = EffectiveShown.of(
        force.effective,
        model=model,
        levels=force.levels,
        effective_hash=force.hash,
        enforcement={
            name: EnforcementShown.of(field_enforcement, why=reasons_words(field_enforcement, call.actor) or None)
            for name, field_enforcement in enforcement.items()
        },
    )
    return Answer(response)


def policy_revisions(call: Call, limit: Limit = 50, cursor: Cursor = None) -> Answer:
    """List the revisions of {level}, newest first."""
    level = level_of(call.place)
    return page(
        level.revisions.all(),
        kind=f"revisions:{level.pk}",
        by="number",
        limit=limit,
        cursor=cursor,
        newest_first=True,
        show=lambda revisions: [_revision(revision, call.actor) for revision in revisions],
    )


def policy_revision(call: Call, number: int) -> Answer:
    """Read one revision of {level}. Revisions never change."""
    revision = level_of(call.place).revisions.filter(number=number).first() if 0 < number < 2**31 else None
    if revision is None:
        raise NotFound("revision")
    return Answer(_revision(revision, call.actor))


def policy_rollback(call: Call, body: Rollback) -> Answer:
    """Roll {level} back to an earlier revision.

    Publishes what that revision said as the next one. Wants `If-Match`.
    """
    return _published(
        services.policy_rollback(
            actor=call.actor,
            place=call.place,
            to_revision=body.revision,
            expected=call.expected(),
            note=body.note,
        )
    )


def _declare(
    prefix: str, suffix: str, level: str, *, read: access.Rule, write: access.Rule, preview: access.Rule
) -> None:
    """Declare all seven operations for one level."""

    def named(view: Any) -> View:
        def same(*args: Any, **kwargs: Any) -> Any:
            return view(*args, **kwargs)

        same.__name__ = f"{suffix}_{view.__name__}"
        same.__doc__ = (view.__doc__ or "").replace("{level}", level)
        same.__signature__ = signature(view)  # type: ignore[attr-defined]
        return same

    group.get(f"{prefix}/policy", read, PolicyShown, gives_etag=True)(named(policy_get))
    group.put(f"{prefix}/policy", write, PolicyPublished, wants_if_match=True, gives_etag=True, refuses=("refused",))(
        named(policy_put)
    )
    group.post(f"{prefix}/policy/preview", preview, PolicyPreviewed, status=200, changes_nothing=True)(
        named(policy_preview_post)
    )
    group.get(f"{prefix}/policy/effective", read, EffectiveShown)(named(policy_effective))
    group.get(f"{prefix}/policy/revisions", read, Page[RevisionShown])(named(policy_revisions))
    group.get(f"{prefix}/policy/revisions/{{number}}", read, RevisionShown)(named(policy_revision))
    group.post(
        f"{prefix}/policy/rollback",
        write,
        PolicyPublished,
        status=200,
        wants_if_match=True,
        gives_etag=True,
        refuses=("refused",),
    )(named(policy_rollback))


_declare(
    "", "fleet", "the fleet",
    read=access.OPERATE_READ, write=access.OPERATE_PUBLISH, preview=access.OPERATE_READ,
)  # fmt: skip
_declare(
    "/orgs/{org}", "organisation", "an organisation",
    read=access.READ_WHOLE, write=access.PUBLISH_WHOLE, preview=access.READ_WHOLE,
)  # fmt: skip
_declare(
    "/orgs/{org}/namespaces/{ns}", "namespace", "a namespace",
    read=access.READ, write=access.PUBLISH, preview=access.READ,
)  # fmt: skip


def _published(outcome: services.Outcome) -> Answer:
    level, rollout = outcome.published.level, outcome.rollout
    response = PolicyPublished.of(
        level, effective_hash=effective_hash(outcome.published.chain), rollout=None if rollout is None else rollout.pk
    )
    return Answer(response, revision=level.revision)


def _revision(revision: PolicyRevision, actor: Actor) -> RevisionShown:
    hidden = revision.author_is_operator and not actor.is_operator
    return RevisionShown.of(revision, author=OPERATOR if hidden else revision.author)
