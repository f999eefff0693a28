"""What is done beside the database, by who may read its secrets: tokens, links, the audit trail, a new master key."""

import sys

from django.conf import settings

from tenants.actor import SYSTEM, Scope
from tenants.audit import audit_lines, audit_verify
from tenants.errors import TenantsError
from tenants.models import User
from tenants.services.keys import operator_token_create
from tenants.services.master_key import master_key_rotate
from tenants.services.members import reset_link


def operator_token(email: str, *, name: str, scopes: list[str]) -> int:
    operator = User.objects.filter(email=email.strip().lower(), is_operator=True, is_active=True).first()
    if operator is None:
        return _failed(f"email: {email[:80]!r} is no active operator; luminet create-operator makes one")
    try:
        _, secret = operator_token_create(actor=SYSTEM, user=operator, name=name, scopes=scopes or list(REST_SCOPES))
    except TenantsError as error:
        return _failed(str(error))
    print(secret.secret)
    return 0


REST_SCOPES = tuple(scope.value for scope in Scope if scope is not Scope.INFER)


def password_reset_link(email: str) -> int:
    user = User.objects.filter(email=email.strip().lower(), is_active=True).first()
    if user is None:
        return _failed(f"email: {email[:80]!r} has no active account")
    link = reset_link(actor=SYSTEM, user=user)
    print(f"{settings.ENVIRONMENT.base_url}{link.path}")
    print(f"works once, until {link.expires_at:%Y-%m-%d %H:%M} UTC", file=sys.stderr)
    return 0


def rotate_master_key() -> int:
    count = master_key_rotate()
    print(f"{count} secrets encrypted anew; LUMINET_PREVIOUS_MASTER_KEY is not needed any more")
    return 0


def audit_check(remembered_head: str | None) -> int:
    verdict = audit_verify(remembered_head=remembered_head)
    if verdict.problem is not None:
        return _failed(f"the audit trail is not sound: {verdict.problem} ({verdict.records} records before it are)")
    print(f"{verdict.records} records, each as it was written")
    print(f"head {verdict.head}")
    return 0


def audit_export() -> int:
    for line in audit_lines():
        print(line)
    return 0


def _failed(message: str) -> int:
    print(message, file=sys.stderr)
    return 1
