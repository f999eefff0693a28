"""Seed the demo once (an operator and three customers) and write the file with which programs get in.

Whatever exists stays as it is, also where its owner changed or deleted it. Secrets are known only from the file of an
earlier start. A secret that no longer works is replaced if that takes nothing from an owner (the demo's own keys), and
is left out otherwise.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from django.conf import settings
from django.utils import timezone

from controlplane.demo.fleet import demo_fleet_seed
from controlplane.demo.formats import demo_formats_seed
from controlplane.demo.home import DemoHome
from controlplane.demo.memory import Memory, Remembered, part, text
from controlplane.demo.organisations import ORGANISATIONS, DemoOrganisation
from controlplane.demo.prices import demo_prices_seed
from controlplane.fleet.shipped import shipped_quality_ensure
from engine_agent.contracts.files import write_private
from tenants.access import keys_of, members_of, operator_tokens, organisations_visible
from tenants.actor import REST_SCOPES, Actor, ActorKind, Scope
from tenants.audit import audited
from tenants.crypto import secret_hash
from tenants.errors import EmailTaken, LimitReached
from tenants.levels import Place
from tenants.models import AuditRecord, Member, Organisation, User
from tenants.policy import Policy
from tenants.services.keys import key_create, key_revoke, operator_token_create, operator_token_revoke
from tenants.services.members import invitation_accept, member_invite
from tenants.services.namespaces import namespaces_create
from tenants.services.organisations import bounds_put, organisation_create
from tenants.services.people import operator_create, password_generate
from tenants.services.policies import policy_publish

OPERATOR_EMAIL = "operator@luminet.example"
DEMO = Actor(ActorKind.SYSTEM, "demo", "Luminet's demo", REST_SCOPES)
TOKEN_NAME = "demo"  # noqa: S105
TRAFFIC_KEY = ("demo traffic", (Scope.INFER,))
KEYS = {"api_key": ("demo, for inference", (Scope.INFER,)), "token": ("demo, for REST", sorted(REST_SCOPES))}
ORGANISATION_MADE = "organisation.create"


def demo_write(home: DemoHome) -> None:
    """Seed what is missing and write the files with the secrets. They are written before the commit, so that after a
    crash the next start finds working secrets or none."""
    memory = Memory.read(home)
    with audited():
        demo = demo_seed(memory, gateway=home.gateway)
        shipped_quality_ensure(actor=DEMO)
        demo_formats_seed(home, actor=DEMO)
        demo_fleet_seed(home, actor=DEMO)
        demo_prices_seed(actor=DEMO, now=timezone.now())
        write_private(home.file, json.dumps(demo, indent=2) + "\n")
        memory.write(home)


def demo_seed(memory: Memory, *, gateway: str | None) -> dict[str, Any]:
    """Seed the demo and return its addresses and secrets. `gateway`: its address, or None without one."""
    return {
        "web": settings.ENVIRONMENT.base_url,
        "gateway": gateway,
        "operator": _operator(memory),
        "orgs": list(_organisations_seed(memory) if _is_first() else _organisations_known(memory)),
    }


def demo_traffic_keys() -> dict[str, str]:
    """Return new traffic keys by organisation, for use without a demo file. Seeds an empty installation first."""
    with audited():
        if _is_first():
            for demo_organisation in ORGANISATIONS:
                _organisation_seed(demo_organisation)
    with audited():  # A second transaction: only committed audit records say which organisations are the demo's.
        keys = {
            organisation.slug: _key_named(organisation, *TRAFFIC_KEY, None) for organisation in _demo_organisations()
        }
    return {slug: key for slug, key in keys.items() if key}


def _operator(memory: Memory) -> dict[str, str | None]:
    """Return the operator's secrets: no password once its owner changed it, no token once the account is closed."""
    new_password = password_generate()
    try:
        operator = operator_create(email=OPERATOR_EMAIL, password=new_password, actor=DEMO)
        password: str | None = memory.prove(operator, new_password)
    except EmailTaken:
        operator = User.objects.get(email=OPERATOR_EMAIL)
        password = memory.password_of(operator, memory.operator)
    may_act = operator.is_active and operator.is_operator
    return {
        "email": OPERATOR_EMAIL,
        "password": password,
        "token": _operator_token(operator, text(memory.operator, "token")) if may_act else None,
    }


def _operator_token(operator: User, stored_token: str | None) -> str:
    tokens = operator_tokens().filter(user=operator)
    if stored_token and tokens.filter(hash=secret_hash(stored_token)).exists():
        return stored_token
    for token in tokens.filter(name=TOKEN_NAME, created_by=DEMO.name):
        operator_token_revoke(actor=DEMO, token=token)
    return operator_token_create(actor=DEMO, user=operator, name=TOKEN_NAME, scopes=REST_SCOPES)[1].secret


def _is_first() -> bool:
    """Return whether no organisation ever existed: an operator who deleted the demo's does not want them back."""
    if Organisation.objects.exists():
        return False
    return not AuditRecord.objects.filter(verb=ORGANISATION_MADE).exists()


def _organisations_seed(memory: Memory) -> Iterator[dict[str, Any]]:
    for demo_organisation in ORGANISATIONS:
        organisation = _organisation_seed(demo_organisation)
        password = _member_seed(memory, organisation, demo_organisation.email)
        keys = {kind: _key(organisation, kind, None) for kind in KEYS}
        yield {
            "slug": demo_organisation.slug,
            **keys,
            "member": {"email": demo_organisation.email, "password": password},
        }


def _organisation_seed(demo_organisation: DemoOrganisation) -> Organisation:
    organisation = organisation_create(actor=DEMO, slug=demo_organisation.slug, name=demo_organisation.name)
    namespaces = namespaces_create(
        actor=DEMO,
        organisation=organisation,
        wanted=[(namespace.slug, namespace.name, None) for namespace in demo_organisation.namespaces],
    )
    published = [(Place(organisation), demo_organisation.revisions)]
    published += [
        (Place(organisation, row), namespace.revisions)
        for row, namespace in zip(namespaces, demo_organisation.namespaces, strict=True)
    ]
    for scope, revisions in published:
        for number, (note, policy_fields) in enumerate(revisions):
            policy = Policy.model_validate(policy_fields)
            policy_publish(actor=DEMO, place=scope, policy=policy, expected=frozenset({number}), note=note)
    if demo_organisation.bounds is not None:
        bounds_put(actor=DEMO, organisation=organisation, bounds=demo_organisation.bounds, expected=None)
    return organisation


def _member_seed(memory: Memory, organisation: Organisation, email: str) -> str | None:
    """Add a member as people join, and return the password. An existing account is not ours: it stays invited."""
    _, link = member_invite(actor=DEMO, organisation=organisation, email=email, role=Member.Role.ADMIN)
    if User.objects.filter(email=email).exists():
        return None
    password = password_generate()
    user = invitation_accept(secret=link.secret, password=password, address="", now=timezone.now())
    return memory.prove(user, password)


def _organisations_known(memory: Memory) -> Iterator[dict[str, Any]]:
    for organisation in _demo_organisations():
        stored = memory.organisation(organisation.slug)
        keys = {kind: _key(organisation, kind, text(stored, kind)) for kind in KEYS}
        member = _member(memory, organisation, part(stored, "member"))
        yield {"slug": organisation.slug, **keys, "member": member}


def _demo_organisations() -> list[Organisation]:
    """Return the organisations that this module created and that still exist. Others may have reused the slugs."""
    slugs = [demo_organisation.slug for demo_organisation in ORGANISATIONS]
    living = organisations_visible(DEMO).filter(slug__in=slugs).order_by("slug")
    creations = AuditRecord.objects.filter(verb=ORGANISATION_MADE, actor_kind=DEMO.kind, actor_id=DEMO.id)
    demo_ids = set(
        creations.filter(organisation_id__in=[organisation.pk for organisation in living]).values_list(
            "organisation_id", flat=True
        )
    )
    return [organisation for organisation in living if organisation.pk in demo_ids]


def _key(organisation: Organisation, kind: str, stored_key: str | None) -> str | None:
    return _key_named(organisation, *KEYS[kind], stored_key)


def _key_named(organisation: Organisation, name: str, scopes: Sequence[str], stored_key: str | None) -> str | None:
    keys = keys_of(organisation)
    if stored_key and keys.filter(hash=secret_hash(stored_key)).exists():
        return stored_key
    for key in keys.filter(name=name, created_by=DEMO.public_name).select_related("organisation"):
        key_revoke(actor=DEMO, key=key)
    try:
        return key_create(actor=DEMO, organisation=organisation, name=name, scopes=scopes)[1].secret
    except LimitReached:
        return None


def _member(memory: Memory, organisation: Organisation, stored: Remembered) -> dict[str, str | None]:
    """Return the member's address and password: None for a removed member, and no password unless it works."""
    email = next(
        demo_organisation.email for demo_organisation in ORGANISATIONS if demo_organisation.slug == organisation.slug
    )
    member = members_of(organisation).filter(email=email).select_related("user").first()
    if member is None:
        return {"email": None, "password": None}
    return {"email": email, "password": memory.password_of(member.user, stored)}
