"""Operations for rollouts: list, pause, resume, promote, abort."""

from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

from ninja import Query

from controlplane.api.paging import Cursor, Limit, page
from controlplane.api.routing import Answer, Call, Group
from controlplane.api.schemas.base import Page
from controlplane.api.schemas.rollouts import RolloutDetail, RolloutShown, RolloutState
from controlplane.rollouts import selectors, services
from controlplane.rollouts.models import Rollout
from controlplane.rollouts.views import rollout_detail, rollout_view, rollouts_shown
from tenants import access
from tenants.actor import Actor

group = Group("Rollouts")
InState = Annotated[RolloutState | None, Query(None, description="Only those in this state.")]
OfPlace = Annotated[
    str | None,
    Query(
        None,
        pattern=r"^[a-z0-9-]{1,63}(/[a-z0-9-]{1,63})?$",
        description="Only those of this `place`: `fleet`, an organisation, or organisation/namespace.",
    ),
]


@group.get("/rollouts", access.READ, Page[RolloutShown])
def rollouts_list(
    call: Call, limit: Limit = 50, cursor: Cursor = None, state: InState = None, place: OfPlace = None
) -> Answer:
    """List rollouts, newest first.

    Operators see all of them, an organisation its own, a key bound to namespaces those of its namespaces.
    """
    rows = rollouts_shown(selectors.rollouts_visible(call.actor))
    rows = rows if state is None else rows.filter(state=state)
    rows = rows if place is None else rows.filter(place=place)

    def show(rollouts: Sequence[Any]) -> list[RolloutShown]:
        return RolloutShown.each(
            rollout_view(rollout, rollout.findings, is_operator=call.actor.is_operator) for rollout in rollouts
        )

    kind = f"rollouts:{call.actor.organisation_id}"
    return page(rows, kind=kind, by="created_at", limit=limit, cursor=cursor, newest_first=True, show=show)


@group.get("/rollouts/{rollout_id}", access.READ, RolloutDetail)
def rollout_get(call: Call, rollout_id: UUID) -> Answer:
    """Look at a rollout.

    With how far each agent is, and the numbers by which it goes on or back.
    """
    return _answer(selectors.rollout_for(call.actor, rollout_id), call.actor)


@group.post("/rollouts/{rollout_id}/pause", access.PUBLISH, RolloutDetail, status=200)
def rollout_pause(call: Call, rollout_id: UUID) -> Answer:
    """Hold a rollout.

    Nobody else is reached until it is resumed. Guards watch on, and may still send it back.
    """
    rollout = selectors.rollout_for(call.actor, rollout_id)
    return _answer(services.rollout_pause(actor=call.actor, rollout=rollout), call.actor)


@group.post("/rollouts/{rollout_id}/resume", access.PUBLISH, RolloutDetail, status=200)
def rollout_resume(call: Call, rollout_id: UUID) -> Answer:
    """Let a rollout go on.

    A bake begins anew, with what was counted so far.
    """
    rollout = selectors.rollout_for(call.actor, rollout_id)
    return _answer(services.rollout_resume(actor=call.actor, rollout=rollout), call.actor)


@group.post("/rollouts/{rollout_id}/promote", access.PUBLISH, RolloutDetail, status=200)
def rollout_promote(call: Call, rollout_id: UUID) -> Answer:
    """Bring a rollout to its next step at once.

    Whatever its guards say of this one. At its last step there is none to go to.
    """
    rollout = selectors.rollout_for(call.actor, rollout_id)
    return _answer(services.rollout_promote(actor=call.actor, rollout=rollout), call.actor)


@group.post("/rollouts/{rollout_id}/abort", access.PUBLISH, RolloutDetail, status=200)
def rollout_abort(call: Call, rollout_id: UUID) -> Answer:
    """Take a rollout back.

    What was in force before it is published as the next revision, for every agent at once.
    """
    rollout = selectors.rollout_for(call.actor, rollout_id)
    return _answer(services.rollout_abort(actor=call.actor, rollout=rollout), call.actor)


def _answer(rollout: Rollout, actor: Actor) -> Answer:
    return Answer(RolloutDetail.model_validate(rollout_detail(rollout, actor)))
