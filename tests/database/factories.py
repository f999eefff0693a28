"""The least that works, made on the spot."""

from datetime import timedelta
from typing import Any

from django.utils import timezone

from controlplane.common.version import version
from controlplane.fleet.enrolment import Credentials, enrol
from controlplane.fleet.join_tokens import join_token_create
from controlplane.fleet.models import Agent, JoinToken
from engine_agent.contracts.enforcement import enforcement_encode
from engine_agent.sidecar.simulated import simulated_enforcement
from tenants.access import actor_for_token
from tenants.actor import SYSTEM, Actor
from tenants.crypto import NewSecret
from tenants.levels import Place
from tenants.models import AgentGroup, Namespace, Organisation, Pin, User
from tenants.policy import Policy
from tenants.services.groups import group_create
from tenants.services.namespaces import default_group, namespace_create
from tenants.services.pins import pin_create
from tenants.services.policies import Published, policy_publish

PASSWORD = "correct horse battery"


def make_user(*, email: str = "someone@acme.example", is_operator: bool = False, is_active: bool = True) -> User:
    user = User(email=email, is_operator=is_operator, is_active=is_active)
    user.set_password(PASSWORD)
    user.save()
    return user


def make_operator() -> User:
    return make_user(email="operator@luminet.example", is_operator=True)


def make_namespace(organisation: Organisation, slug: str = "chat", *, group: AgentGroup | None = None) -> Namespace:
    return namespace_create(actor=SYSTEM, organisation=organisation, slug=slug, group=group)


def make_group(slug: str = "gpu") -> AgentGroup:
    return group_create(actor=SYSTEM, slug=slug, name=slug.title())


def make_join_token(
    name: str = "first machines",
    *,
    group: AgentGroup | None = None,
    expires_in: timedelta = timedelta(hours=1),
    **more: Any,
) -> tuple[JoinToken, NewSecret]:
    chosen = group or default_group()
    return join_token_create(actor=SYSTEM, name=name, group=chosen, expires_in=expires_in, **more)


def about_agent(**changes: Any) -> dict[str, Any]:
    """What a small engine says of itself."""
    formats = ["bf16", "fp8"]
    model = {"name": "m", "revision": "r1", "kv_dtypes": formats, "context_tokens": 2048}
    about: dict[str, Any] = {
        "backend": "simulated",
        "backend_version": "",
        "version": version(),
        "address": "http://127.0.0.1:8101",
        "accelerator": None,
        "models": [model],
        "kv_dtypes": formats,
        "computed_as": {},
        "enforcement": enforcement_encode(simulated_enforcement()),
        "pool": {"capacity_bytes": 1 << 28, "block_tokens": 16, "block_bytes": {"bf16": 4096, "fp8": 2048}},
        "labels": {},
        "python": "3.11",
        "platform": "Linux",
    }
    return about | changes


def enrol_agent(
    name: str | None = "agent-1", *, kind: str = "engine", group: AgentGroup | None = None, **about: Any
) -> Credentials:
    """With a join token of its own."""
    _, secret = make_join_token(group=group)
    said = about_agent(**about)
    return enrol(token=secret.secret, kind=kind, name=name, about=said, now=timezone.now(), address="192.0.2.7")


def make_agent(name: str = "agent-1", *, kind: str = "engine", group: AgentGroup | None = None, **about: Any) -> Agent:
    return Agent.objects.select_related("group").get(pk=enrol_agent(name, kind=kind, group=group, **about).agent)


def make_pin(namespace: Namespace, name: str = "handbook", content: str = "You answer from the handbook.") -> Pin:
    return pin_create(actor=SYSTEM, namespace=namespace, name=name, model="m", content_kind="prompt", content=content)


def publish(place: Place, *, actor: Actor = SYSTEM, expected: int | None = None, **fields: Any) -> Published:
    """As the system, whatever is there, unless told otherwise."""
    policy = Policy.model_validate(fields)
    seen = None if expected is None else frozenset({expected})
    return policy_publish(actor=actor, place=place, policy=policy, expected=seen)


def actor_of(secret: str) -> Actor:
    """Whom a key or an operator's token speaks for."""
    return actor_for_token(secret, now=timezone.now(), address="192.0.2.7", request_id="request-1")
