"""Operations for operators: agents, and the tokens they join with."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from django.utils import timezone
from ninja import Query

from controlplane.api.paging import Cursor, Limit, page
from controlplane.api.routing import Answer, Call, Group
from controlplane.api.schemas import fleet as schemas
from controlplane.api.schemas.base import Page
from controlplane.api.schemas.cache import OperationStarted
from controlplane.api.schemas.fleet import AgentShown, AgentUpdate, JoinTokenCreate, JoinTokenCreated, JoinTokenShown
from controlplane.fleet import agents, join_tokens, selectors
from controlplane.fleet.canaries import NEVER, Isolation, isolations_read
from controlplane.fleet.enforcement import enforcement_view
from controlplane.fleet.in_force import InForce, fields_in_force
from controlplane.fleet.models import Agent, JoinToken
from controlplane.fleet.views import agent_view
from tenants import access
from tenants.errors import FieldProblem, InvalidFields, NotFound
from tenants.models import AgentGroup, Operation
from tenants.models.organisations import DEFAULT, SLUG_PATTERN
from tenants.services.namespaces import default_group

group = Group("Fleet")

OfGroup = Annotated[str | None, Query(None, pattern=SLUG_PATTERN, description="Only agents of this group.")]
OfKind = Annotated[schemas.AgentKind | None, Query(None, description="Only agents of this kind.")]
InState = Annotated[
    schemas.AgentState | None, Query(None, description="Only agents in this state; left out: all but revoked ones.")
]


@group.get("/fleet/agents", access.OPERATE_READ, Page[AgentShown])
def agents_list(
    call: Call,
    limit: Limit = 50,
    cursor: Cursor = None,
    group: OfGroup = None,
    kind: OfKind = None,
    state: InState = None,
) -> Answer:
    """List agents.

    With what each is to hold, what it holds, and what is wrong with it. Revoked ones are left out unless they are
    asked for. Operators only.
    """
    now, cadence = timezone.now(), selectors.fleet_cadence_seconds()
    rows = selectors.agents_living()
    if state is not None:
        rows = selectors.agents_in_state(state, now=now, cadence=cadence)
    rows = rows if group is None else rows.filter(group__slug=group)
    rows = rows if kind is None else rows.filter(kind=kind)

    def show(agents: Sequence[Agent]) -> list[AgentShown]:
        isolations, in_force = isolations_read([agent.pk for agent in agents], now=now), fields_in_force()
        return [_agent(agent, now, cadence, isolations.get(agent.pk, NEVER), in_force) for agent in agents]

    return page(rows, kind="agents", by="id", limit=limit, cursor=cursor, show=show)


@group.get("/fleet/agents/{agent_id}", access.OPERATE_READ, AgentShown)
def agent_get(call: Call, agent_id: str) -> Answer:
    """Look at an agent. Operators only."""
    return _answer(selectors.agent_for(agent_id))


@group.patch("/fleet/agents/{agent_id}", access.OPERATE, AgentShown)
def agent_update(call: Call, agent_id: str, body: AgentUpdate) -> Answer:
    """Label an agent, or move it to another group.

    In another group it serves other namespaces: what it holds of those before is dropped. Operators only.
    """
    agent = selectors.agent_for(agent_id)
    moved = None if body.group is None else _group(body.group)
    return _answer(agents.agent_update(actor=call.actor, agent=agent, labels=body.labels, group=moved))


@group.delete("/fleet/agents/{agent_id}", access.OPERATE)
def agent_revoke(call: Call, agent_id: str) -> Answer:
    """Take an agent out of the fleet.

    Its token and its login at the broker end with this answer, and no operation waits for it any more. It stays to be
    looked at, in the state `revoked`; under a new join token it can come back. Operators only.
    """
    agents.agent_revoke(actor=call.actor, agent=selectors.agent_for(agent_id))
    return Answer(status=204)


@group.post("/fleet/agents/{agent_id}/drain", access.OPERATE, OperationStarted, status=202)
def agent_drain(call: Call, agent_id: str) -> Answer:
    """Drain an agent.

    Gateways send it nothing new from now on. The operation is done when it is answering nothing any more.
    """
    return _started(agents.agent_drain(actor=call.actor, agent=selectors.agent_for(agent_id)))


@group.post("/fleet/agents/{agent_id}/resume", access.OPERATE, OperationStarted, status=202)
def agent_resume(call: Call, agent_id: str) -> Answer:
    """Let a drained agent take requests again."""
    return _started(agents.agent_resume(actor=call.actor, agent=selectors.agent_for(agent_id)))


@group.post("/fleet/agents/{agent_id}/integrity", access.OPERATE, OperationStarted, status=202)
def agent_check_integrity(call: Call, agent_id: str) -> Answer:
    """Have an agent check all that it holds.

    Its receipt says what it found.
    """
    return _started(agents.agent_check_integrity(actor=call.actor, agent=selectors.agent_for(agent_id)))


@group.post(
    "/fleet/agents/{agent_id}/rotate-token", access.OPERATE, OperationStarted, status=202, refuses=("conflict",)
)
def agent_rotate_token(call: Call, agent_id: str) -> Answer:
    """Have an agent fetch a new token.

    The old one ends when the new one is first used. To shut out whoever has a copy of an agent's credentials, take it
    over: enrol it again with a join token bound to its name.
    """
    return _started(agents.agent_rotate_token(actor=call.actor, agent=selectors.agent_for(agent_id)))


@group.get("/fleet/join-tokens", access.OPERATE_ADMIN_READ, Page[JoinTokenShown])
def join_tokens_list(call: Call, limit: Limit = 50, cursor: Cursor = None) -> Answer:
    """List join tokens that are not revoked. Operators only."""
    now = timezone.now()

    def show(join_tokens: Sequence[JoinToken]) -> list[JoinTokenShown]:
        return [_join_token(join_token, now) for join_token in join_tokens]

    return page(selectors.join_tokens(), kind="join-tokens", by="id", limit=limit, cursor=cursor, show=show)


@group.get("/fleet/join-tokens/{join_token_id}", access.OPERATE_ADMIN_READ, JoinTokenShown)
def join_token_get(call: Call, join_token_id: UUID) -> Answer:
    """Look at a join token. Operators only."""
    return Answer(_join_token(selectors.join_token_for(join_token_id), timezone.now()))


@group.post("/fleet/join-tokens", access.OPERATE, JoinTokenCreated)
def join_token_create(call: Call, body: JoinTokenCreate) -> Answer:
    """Create a token that agents join the fleet with.

    Its secret is in this answer and nowhere else: `luminet agent --join URL --token SECRET`. Operators only.
    """
    token, secret = join_tokens.join_token_create(
        actor=call.actor,
        name=body.name,
        group=_group(body.group),
        kind=body.kind,
        agent=body.agent or "",
        uses=body.uses,
        expires_in=timedelta(seconds=body.expires_in_seconds),
    )
    state = join_tokens.join_token_state(token, now=timezone.now())
    response = JoinTokenCreated.of(token, state=state, secret=secret.secret)
    return Answer(response, status=201, location=f"/api/v1/fleet/join-tokens/{token.pk}")


@group.delete("/fleet/join-tokens/{join_token_id}", access.OPERATE)
def join_token_revoke(call: Call, join_token_id: UUID) -> Answer:
    """Revoke a join token.

    Nobody joins with it from this answer on; agents that did stay. Operators only.
    """
    join_tokens.join_token_revoke(actor=call.actor, token=selectors.join_token_for(join_token_id))
    return Answer(status=204)


def _group(slug: str) -> AgentGroup:
    if slug == DEFAULT:
        return default_group()
    try:
        return access.group_for(slug)
    except NotFound:
        raise InvalidFields([FieldProblem("group", f"there is no agent group {slug}")]) from None


def _started(operation: Operation) -> Answer:
    return Answer(OperationStarted(operation=operation.pk), status=202, location=f"/api/v1/operations/{operation.pk}")


def _answer(agent: Agent) -> Answer:
    now = timezone.now()
    isolations = isolations_read([agent.pk], now=now)
    cadence = selectors.fleet_cadence_seconds()
    return Answer(_agent(agent, now, cadence, isolations.get(agent.pk, NEVER), fields_in_force()))


def _agent(
    agent: Agent, now: datetime, cadence: float, isolation: Isolation, in_force: Mapping[int, Sequence[InForce]]
) -> AgentShown:
    view = agent_view(agent, now=now, cadence=cadence, in_force=in_force)
    of_engine: dict[str, Any] = (
        {"isolation": isolation.view(), "enforcement": enforcement_view(agent.about)}
        if agent.kind == "engine"
        else {"isolation": None, "enforcement": {}}
    )
    return AgentShown.model_validate({**view, **of_engine})


def _join_token(token: JoinToken, now: datetime) -> JoinTokenShown:
    return JoinTokenShown.of(token, state=join_tokens.join_token_state(token, now=now))
