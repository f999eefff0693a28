"""Ten thousand namespaces in a thousand organisations, as the services would have made them, but in seconds.

For the database of a stack: tests/bench/inside.py calls `fill` there.
"""

import time
from collections.abc import Iterable
from typing import Any

from tenants.actor import SYSTEM
from tenants.audit import Journal, audit_verify, audited
from tenants.crypto import secret_new
from tenants.levels import FLEET
from tenants.models import ApiKey, Namespace, NamespaceKey, Organisation, PolicyLevel, PolicyRevision, User
from tenants.policy import Policy
from tenants.services.keys import operator_token_create
from tenants.services.namespace_keys import key_new
from tenants.services.namespaces import default_group
from tenants.services.policies import policy_publish

ORGANISATIONS = 1_000
NAMESPACES = 10_000
BIG = "big"  # one customer with a tenth of everything, so that its lists have deep pages too
BIG_NAMESPACES = 1_009
KEYS_EACH = 2
KIND = PolicyLevel.Kind


def organisation_policy(number: int) -> dict[str, Any]:
    """Twenty different ones."""
    return {"ttl_seconds": 300 + 60 * (number % 10), "weight": 1.0 + number % 2}


def namespace_policy(number: int) -> dict[str, Any]:
    """Half say nothing of their own; with what organisations say, hundreds of different ones are in force."""
    if number % 2:
        return {}
    return {"max_age_seconds": 3600 * (1 + number // 2 % 25), "models": {"m": {"ttl_seconds": 60 + number % 4 // 2}}}


def fill() -> dict[str, Any]:
    """As the services would have made it: keys sealed, revisions numbered, every deed in the trail."""
    began = time.perf_counter()
    with audited() as journal:
        policy_publish(actor=SYSTEM, place=FLEET, policy=Policy(kv_dtype="int8"), expected=None)
        organisations = _organisations(journal)
        _namespaces(journal, organisations)
        _keys(journal, organisations)
    user = User.objects.get(is_operator=True)
    scopes = ("stats:read", "policy:read", "policy:write", "admin")
    _, token = operator_token_create(actor=SYSTEM, user=user, name="bench", scopes=scopes)
    seconds = time.perf_counter() - began
    return {"token": token.secret, "seconds": seconds, "is_sound": audit_verify().is_sound}


def _organisations(journal: Journal) -> list[Organisation]:
    slugs = [BIG, *(f"org-{number:04}" for number in range(1, ORGANISATIONS))]
    made = Organisation.objects.bulk_create(Organisation(slug=slug, name=slug.title()) for slug in slugs)
    for organisation in made:
        journal.record(SYSTEM, "organisation.create", organisation.slug, organisation=organisation)
    _publish(
        PolicyLevel(kind=KIND.ORGANISATION, organisation=one, policy=organisation_policy(number))
        for number, one in enumerate(made)
    )
    return made


def _namespaces(journal: Journal, organisations: list[Organisation]) -> None:
    group = default_group()
    each = (NAMESPACES - BIG_NAMESPACES) // (ORGANISATIONS - 1)
    wanted = [
        Namespace(organisation=one, group=group, slug=f"ns-{number:04}" if number else "default")
        for one in organisations
        for number in range(BIG_NAMESPACES if one.slug == BIG else each)
    ]
    made = Namespace.objects.bulk_create(wanted, batch_size=5_000)
    NamespaceKey.objects.bulk_create((key_new(one, one.epoch) for one in made), batch_size=5_000)
    _publish(
        PolicyLevel(kind=KIND.NAMESPACE, namespace=one, policy=namespace_policy(number))
        for number, one in enumerate(made)
    )
    for one in made:
        target = f"{one.organisation.slug}/{one.slug}"
        journal.record(SYSTEM, "namespace.create", target, organisation=one.organisation)


def _publish(wanted: Iterable[PolicyLevel]) -> None:
    levels = list(wanted)
    for level in levels:
        level.revision = int(bool(level.policy))
    PolicyLevel.objects.bulk_create(levels, batch_size=5_000)
    revisions = [
        PolicyRevision(level=level, number=1, policy=level.policy, author="bench", author_is_operator=True)
        for level in levels
        if level.revision
    ]
    PolicyRevision.objects.bulk_create(revisions, batch_size=5_000)


def _keys(journal: Journal, organisations: list[Organisation]) -> None:
    wanted = [_key(one) for one in organisations for _ in range(300 if one.slug == BIG else KEYS_EACH)]
    for key in ApiKey.objects.bulk_create(wanted, batch_size=5_000):
        target = f"{key.organisation.slug} key {key.prefix}…"
        journal.record(SYSTEM, "key.create", target, organisation=key.organisation)


def _key(organisation: Organisation) -> ApiKey:
    secret = secret_new("lmk")
    return ApiKey(
        organisation=organisation,
        name="bench",
        prefix=secret.prefix,
        hash=secret.hash,
        scopes=["infer"],
        created_by="b",
    )
