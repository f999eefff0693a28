"""Operators' actions on agents: label, move to another group, drain, check, rotate the token, revoke."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial

from django.db import transaction
from django.utils import timezone
from pydantic import TypeAdapter, ValidationError

from controlplane.fleet import broker
from controlplane.fleet.errors import AgentIsRevoked
from controlplane.fleet.labels import Labels
from controlplane.fleet.models import Agent
from controlplane.fleet.operations import operation_of_agents, steps_drop
from engine_agent.contracts.wire import Operated
from tenants.actor import Actor
from tenants.audit import Journal, audited
from tenants.errors import InvalidFields, NotFound
from tenants.models import AgentGroup, Operation
from tenants.services.namespaces import default_group
from tenants.validation import field_problems

# How long an agent has to complete each action. A drain waits for running requests.
SECONDS: Mapping[Operated, float] = {
    "drain": 600,
    "resume": 60,
    "integrity": 600,
    "rotate_token": 120,
    "warm_pins": 600,
}
_LABELS = TypeAdapter[dict[str, str]](Labels)


def agent_update(
    *, actor: Actor, agent: Agent, labels: Mapping[str, str] | None = None, group: AgentGroup | None = None
) -> Agent:
    """Change an agent's labels or group; None leaves a value as it is.

    In another group, the agent serves other namespaces and drops the blocks of its former ones.
    """
    new_labels = None if labels is None else labels_check(labels)
    with audited() as journal:
        locked_agent = _locked(agent)
        before = _told(locked_agent)
        if new_labels is not None:
            locked_agent.labels = new_labels
        if group is not None:
            locked_agent.group = _group_locked(group)
        locked_agent.save(update_fields=["labels", "group"])
        if before != _told(locked_agent):
            journal.record(actor, "agent.update", _target(locked_agent), before=before, after=_told(locked_agent))
    return locked_agent


def agent_drain(*, actor: Actor, agent: Agent) -> Operation:
    """Stop gateways from sending the agent new requests. Its receipt arrives after its last running request."""
    return _drained(actor, agent, "drain")


def agent_resume(*, actor: Actor, agent: Agent) -> Operation:
    return _drained(actor, agent, "resume")


def agent_check_integrity(*, actor: Actor, agent: Agent) -> Operation:
    """Ask the agent to check everything it caches and to report inconsistencies."""
    with audited() as journal:
        return _operated(journal, actor, _locked(agent), "integrity", now=timezone.now())


def agent_rotate_token(*, actor: Actor, agent: Agent) -> Operation:
    """Ask the agent to fetch a new token; the old one is valid until the new one is first used."""
    with audited() as journal:
        return _operated(journal, actor, _locked(agent), "rotate_token", now=timezone.now())


def agent_revoke(*, actor: Actor, agent: Agent) -> None:
    """Remove the agent from the fleet: end its token and its broker login, and stop waiting for it.

    It keeps its name but moves to the default group, so that its former group can be deleted. Only a join token
    restores it.
    """
    now = timezone.now()
    with audited() as journal:
        locked_agents = Agent.objects.select_for_update(of=("self",), no_key=True).select_related("group")
        locked = locked_agents.filter(pk=agent.pk, revoked_at=None).first()
        if locked is None:
            return
        journal.record(actor, "agent.revoke", _target(locked), before=_told(locked))
        locked.group = default_group()
        locked.revoked_at, locked.next_token_hash, locked.conditions, locked.is_draining = now, None, {}, False
        locked.save(update_fields=["group", "revoked_at", "next_token_hash", "conditions", "is_draining"])
        steps_drop(locked.pk, now=now)
    transaction.on_commit(partial(broker.login_end, agent.pk))


def labels_check(labels: Mapping[str, str]) -> dict[str, str]:
    try:
        return _LABELS.validate_python(dict(labels), strict=True)
    except ValidationError as error:
        problems = field_problems([{**problem, "loc": ("labels", *problem["loc"])} for problem in error.errors()])
        raise InvalidFields(problems) from None


def _drained(actor: Actor, agent: Agent, action: Operated) -> Operation:
    with audited() as journal:
        locked_agent = _locked(agent)
        locked_agent.is_draining = action == "drain"
        locked_agent.save(update_fields=["is_draining"])
        return _operated(journal, actor, locked_agent, action, now=timezone.now())


def _operated(journal: Journal, actor: Actor, agent: Agent, action: Operated, *, now: datetime) -> Operation:
    operation = operation_of_agents(
        actor=actor, deed=action, agents=[agent.pk], scope=f"agent {agent.pk}", now=now, seconds=SECONDS[action]
    )
    verb = f"agent.{action.replace('_', '-')}"
    journal.record(actor, verb, _target(agent), after={"operation": str(operation.pk)})
    return operation


def _locked(agent: Agent) -> Agent:
    """Lock the agent's row until commit and return it. Raise NotFound or AgentIsRevoked."""
    locked_agents = Agent.objects.select_for_update(of=("self",), no_key=True).select_related("group")
    locked_agent = locked_agents.filter(pk=agent.pk).first()
    if locked_agent is None:
        raise NotFound("agent")
    if locked_agent.revoked_at is not None:
        raise AgentIsRevoked(locked_agent.pk)
    return locked_agent


def _group_locked(group: AgentGroup) -> AgentGroup:
    """Lock the group, so that it cannot be deleted before the agent belongs to it."""
    locked_group = AgentGroup.objects.select_for_update(no_key=True).filter(pk=group.pk).first()
    if locked_group is None:
        raise NotFound("agent group")
    return locked_group


def _target(agent: Agent) -> str:
    return f"agent {agent.pk}"


def _told(agent: Agent) -> dict[str, object]:
    return {"labels": agent.labels, "group": agent.group.slug}
