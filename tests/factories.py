"""The least that works, made on the spot."""

from typing import Any

from django.utils import timezone

from tenants.access import actor_for_token
from tenants.actor import SYSTEM, Actor
from tenants.levels import Place
from tenants.models import AgentGroup, Namespace, Organisation, Pin, User
from tenants.policy import Policy
from tenants.services.groups import group_create
from tenants.services.namespaces import namespace_create
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
