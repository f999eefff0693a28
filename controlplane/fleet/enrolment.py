"""Enrol agents with join tokens, issue their credentials, and identify them by their tokens.

Of an agent's token only the hash is stored; its other secrets are derived from its id and key number (keys.py). Taking
an agent over increments that number, so that all credentials issued before are invalid.
"""

import base64
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q

from controlplane.fleet import broker, keys
from controlplane.fleet.about import about_read
from controlplane.fleet.errors import MalformedRequest, NameTaken, Revoked, UnknownToken, WrongKind, WrongName
from controlplane.fleet.join_tokens import is_standing, join_token_spend
from controlplane.fleet.models import KINDS, Agent, JoinToken
from controlplane.fleet.selectors import fleet_cadence_seconds
from engine_agent.contracts.protocol import queue_name
from tenants.actor import SYSTEM, Actor, ActorKind
from tenants.addresses import address_parse
from tenants.audit import audited
from tenants.crypto import NewSecret, key_check_secret, secret_hash, secret_is_well_formed, secret_new
from tenants.errors import FieldProblem, InvalidFields
from tenants.fields import slug_check

AGENT_TOKEN_KIND = "lat"  # noqa: S105  # prefix of agent tokens
# Fields that are reset when an agent is taken over: they describe another process, perhaps on another machine.
FORGOTTEN: Mapping[str, Any] = {
    "next_token_hash": None,
    "revoked_at": None,
    "applied_hash": "",
    "applied_generation": 0,
    "applied_at": None,
    "rejected_hash": "",
    "rejected_reason": "",
    "rejected_at": None,
    "heartbeat": {},
    "heartbeat_boot": "",
    "heartbeat_sequence": 0,
    "last_seen_at": None,
    "clock_skew_seconds": 0.0,
    "spool": "",
    "spool_number": 0,
    "past_spools": [],
    "lost_reports": 0,
    "push_generation": 0,
    "push_attempts": 0,
    "push_retry_at": None,
    "conditions": {},
    "formats_once": [],
}


@dataclass(frozen=True, slots=True)
class Credentials:
    """Everything a process needs to act as this agent. `token`: None if its current token remains valid."""

    agent: str
    kind: str
    group: str
    token: str | None = field(repr=False)
    cadence_seconds: float
    now: float  # unix seconds, by the control plane's clock
    key_number: int
    broker: Mapping[str, str] = field(repr=False)
    keys: Mapping[str, str | None] = field(repr=False)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def enrol(*, token: str, kind: str, name: str | None, about: Any, now: datetime, address: str) -> Credentials:
    """Enrol a new agent, or take over the one that the join token names, under new credentials. Raise AgentRefused."""
    secret = secret_new(AGENT_TOKEN_KIND)
    with audited() as journal:
        # Check the token first: a caller without a valid one must learn nothing else.
        joining = join_token_spend(token, now=now)
        kind, agent_name, description = _asked(kind, name, about, joining)
        agent, is_new = _agent_written(agent_name, kind, joining, description, secret, now)
        journal.record(
            _joining_actor(joining, address),
            "agent.enrol",
            f"agent {agent.pk}",
            after={"kind": kind, "group": joining.group.slug, "is_new": is_new, "key_number": agent.key_number},
        )
    broker.login_renew(agent, is_new=is_new)
    return _credentials(agent, secret.secret, now)


def credentials(agent: Agent, *, rotate: bool, now: datetime) -> Credentials:
    """Return an agent's credentials again, with a new token if `rotate` is set.

    The old token works until the new one is first used, so that an agent that crashes in between is not locked out.
    """
    if not rotate:
        return _credentials(agent, None, now)
    secret = secret_new(AGENT_TOKEN_KIND)
    with audited() as journal:
        living = Agent.objects.filter(pk=agent.pk, revoked_at=None, key_number=agent.key_number)
        if not living.update(next_token_hash=secret.hash):
            raise Revoked(agent.pk)
        journal.record(_agent_actor(agent), "agent.rotate-token", f"agent {agent.pk}")
    return _credentials(agent, secret.secret, now)


def agent_for_token(token: str, now: datetime) -> Agent:
    """Return the agent that this token belongs to, with its group. The first use of a new token ends the old one."""
    if not secret_is_well_formed(AGENT_TOKEN_KIND, token):
        raise UnknownToken
    hash_ = secret_hash(token)
    agent = Agent.objects.select_related("group").filter(Q(token_hash=hash_) | Q(next_token_hash=hash_)).first()
    if agent is None:
        raise UnknownToken
    if agent.revoked_at is not None:
        raise Revoked(agent.pk)
    if agent.next_token_hash is not None and bytes(agent.next_token_hash) == hash_:
        Agent.objects.filter(pk=agent.pk, next_token_hash=hash_).update(token_hash=hash_, next_token_hash=None)
        agent.token_hash, agent.next_token_hash = hash_, None
    return agent


def _asked(kind: Any, name: Any, about: Any, joining: JoinToken) -> tuple[str, str, Mapping[str, Any]]:
    """Return the kind, the name (empty if none) and the description that the agent will get, or raise AgentRefused."""
    if kind not in KINDS:
        raise MalformedRequest([FieldProblem("kind", f"must be one of {', '.join(KINDS)}")])
    if name is not None and not isinstance(name, str):
        raise MalformedRequest([FieldProblem("name", "must be text or null")])
    if joining.kind not in (None, kind):
        raise WrongKind(expected=str(joining.kind), found=kind, of="this token")
    if joining.agent and name not in (None, joining.agent):
        raise WrongName(expected=joining.agent, found=str(name))
    try:
        agent_name = joining.agent or (slug_check(name, "name") if name else "")
    except InvalidFields as error:
        raise MalformedRequest(error.problems) from None
    return kind, agent_name, about_read(about)


def _agent_written(
    name: str, kind: str, joining: JoinToken, about: Mapping[str, Any], secret: NewSecret, now: datetime
) -> tuple[Agent, bool]:
    existing_agent = Agent.objects.select_for_update(no_key=True).filter(pk=name).first() if name else None
    fields = {
        "group": joining.group,
        "about": about,
        "token_hash": secret.hash,
        "enrolled_at": now,
        "enrolled_by": joining.name,
    }
    if existing_agent is None:
        return _agent_new(name or _name_made(kind), kind, fields), True
    if existing_agent.kind != kind:
        raise WrongKind(expected=existing_agent.kind, found=kind, of=f"the name {name}")
    if joining.agent != name and (existing_agent.revoked_at is None or is_standing(joining)):
        raise NameTaken(name)
    return _agent_taken_over(existing_agent, fields), False


def _agent_new(name: str, kind: str, fields: Mapping[str, Any]) -> Agent:
    try:
        with transaction.atomic():
            return Agent.objects.create(pk=name, kind=kind, labels=fields["about"]["labels"], **fields)
    except IntegrityError:  # another agent enrolled under this name meanwhile
        raise NameTaken(name) from None


def _agent_taken_over(agent: Agent, fields: Mapping[str, Any]) -> Agent:
    """Give an existing agent to a new process.

    Operators' settings stay, and its generations too, so that the next one is newer than all before.
    """
    for name, value in {**FORGOTTEN, **fields, "key_number": agent.key_number + 1}.items():
        setattr(agent, name, value)
    agent.save()
    agent.refused.all().delete()
    return agent


def _name_made(kind: str) -> str:
    return f"{'gateway' if kind == 'gateway' else 'agent'}-{secrets.token_hex(4)}"


def _credentials(agent: Agent, token: str | None, now: datetime) -> Credentials:
    name, number = agent.pk, agent.key_number
    return Credentials(
        agent=name,
        kind=agent.kind,
        group=agent.group.slug,
        token=token,
        cadence_seconds=fleet_cadence_seconds(),
        now=now.timestamp(),
        key_number=number,
        broker={
            "url": broker.agent_url(name, keys.broker_password(name, number)),
            "prefix": broker.key_prefix(name),
            "queue": queue_name(name),
        },
        keys={
            "verifying": _base64(keys.verifying_key()),
            "sealing": _base64(keys.sealing_key(name, number)),
            "identity": _base64(keys.identity_secret(name, number)) if agent.kind == "engine" else None,
            "check": _base64(key_check_secret()) if agent.kind == "gateway" else None,
        },
    )


def _joining_actor(joining: JoinToken, address: str) -> Actor:
    """Return the join token as the actor: the audit trail shows the token, and the address it was used from."""
    return Actor(
        ActorKind.SYSTEM, str(joining.pk), f"join token {joining.name}", SYSTEM.scopes, address=address_parse(address)
    )


def _agent_actor(agent: Agent) -> Actor:
    return Actor(ActorKind.SYSTEM, agent.pk, f"agent {agent.pk}", SYSTEM.scopes)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
