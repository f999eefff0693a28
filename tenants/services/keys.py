"""API keys and operator tokens: created once, shown once, revoked at once."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from django.utils import timezone

from tenants.access import KEY_KIND, OPERATOR_TOKEN_KIND
from tenants.actor import Actor, Scope
from tenants.audit import audited
from tenants.crypto import NewSecret, secret_new
from tenants.errors import FieldProblem, InvalidFields, LimitReached
from tenants.fields import all_checked, ending_check, name_check
from tenants.limits import limits_of
from tenants.locks import organisation_lock
from tenants.models import ApiKey, Namespace, OperatorToken, Organisation, User


def key_create(
    *,
    actor: Actor,
    organisation: Organisation,
    name: str,
    scopes: Iterable[str],
    namespaces: Sequence[Namespace] | None = None,
    expires_at: datetime | None = None,
) -> tuple[ApiKey, NewSecret]:
    """Create a key and return it with its secret, which is never shown again."""
    requested_scopes = sorted({Scope(scope) for scope in scopes})
    is_bound = namespaces is not None
    checks = (
        lambda: name_check(name),
        lambda: _scopes_check(requested_scopes, is_bound),
        lambda: ending_check(expires_at),
    )
    name, *_ = all_checked(*checks)
    secret = secret_new(KEY_KIND)
    with audited() as journal:
        limit = limits_of(organisation_lock(organisation, actor=actor).limits).max_keys
        if organisation.api_keys.filter(revoked_at=None).count() >= limit:
            raise LimitReached("max_keys", limit)
        key = ApiKey.objects.create(
            organisation=organisation,
            name=name,
            prefix=secret.prefix,
            hash=secret.hash,
            scopes=requested_scopes,
            namespace_ids=None if namespaces is None else sorted(namespace.pk for namespace in namespaces),
            expires_at=expires_at,
            created_by=actor.public_name,
        )
        journal.record(
            actor,
            "key.create",
            f"{organisation.slug} key {key.prefix}…",
            organisation=organisation,
            after={
                "id": str(key.pk),
                "name": key.name,
                "scopes": key.scopes,
                "namespaces": None if namespaces is None else [namespace.slug for namespace in namespaces],
                "expires_at": expires_at.isoformat() if expires_at else None,
            },
        )
    return key, secret


def key_revoke(*, actor: Actor, key: ApiKey) -> None:
    """Revoke a key at once, without the organisation's lock, which another transaction may hold for seconds."""
    with audited() as journal:
        if ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=timezone.now()):
            target = f"{key.organisation.slug} key {key.prefix}…"
            journal.record(
                actor, "key.revoke", target, organisation=key.organisation, before={"id": str(key.pk), "name": key.name}
            )


def operator_token_create(
    *, actor: Actor, user: User, name: str, scopes: Iterable[str], expires_at: datetime | None = None
) -> tuple[OperatorToken, NewSecret]:
    requested_scopes = sorted({Scope(scope) for scope in scopes})
    checks = (
        lambda: name_check(name),
        lambda: _operator_scopes_check(requested_scopes),
        lambda: ending_check(expires_at),
    )
    name, *_ = all_checked(*checks)
    secret = secret_new(OPERATOR_TOKEN_KIND)
    with audited() as journal:
        token = OperatorToken.objects.create(
            user=user,
            name=name,
            prefix=secret.prefix,
            hash=secret.hash,
            scopes=requested_scopes,
            expires_at=expires_at,
            created_by=actor.name,
        )
        after = {"id": str(token.pk), "name": token.name, "scopes": token.scopes, "operator": user.email}
        journal.record(actor, "operator-token.create", f"operator token {token.prefix}…", after=after)
    return token, secret


def operator_token_revoke(*, actor: Actor, token: OperatorToken) -> None:
    with audited() as journal:
        if OperatorToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now()):
            before = {"id": str(token.pk), "name": token.name}
            journal.record(actor, "operator-token.revoke", f"operator token {token.prefix}…", before=before)


def _scopes_check(scopes: Sequence[Scope], is_bound: bool) -> None:
    if not scopes:
        raise InvalidFields([FieldProblem("scopes", "names none; a key without scopes can do nothing")])
    if is_bound and Scope.ADMIN in scopes:
        problem = "a key bound to namespaces cannot have admin, which concerns the whole organisation"
        raise InvalidFields([FieldProblem("scopes", problem)])


def _operator_scopes_check(scopes: Sequence[Scope]) -> None:
    _scopes_check(scopes, is_bound=False)
    if Scope.INFER in scopes:
        problem = "an operator's token cannot have infer: inference is an organisation's, with a key of its own"
        raise InvalidFields([FieldProblem("scopes", problem)])
