"""Keys for one test: created, used and revoked within moments, and recorded in the audit trail like any other."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from django.utils import timezone

from tenants.access import keys_of
from tenants.actor import Actor, Scope
from tenants.models import Organisation
from tenants.services.keys import key_create, key_revoke

LASTS: Final = timedelta(minutes=5)
NAME: Final = "test request"


@contextmanager
def short_key(actor: Actor, organisation: Organisation) -> Iterator[str]:
    """Yield a temporary key's secret. Raise LimitReached if the organisation may have no further key."""
    _leftovers_revoke(actor, organisation)
    ends = timezone.now() + LASTS
    key, secret = key_create(actor=actor, organisation=organisation, name=NAME, scopes=[Scope.INFER], expires_at=ends)
    key.organisation = organisation
    try:
        yield secret.secret
    finally:
        key_revoke(actor=actor, key=key)


def _leftovers_revoke(actor: Actor, organisation: Organisation) -> None:
    """Revoke keys left by a process that ended early: they are expired, but count towards the limit."""
    for key in keys_of(organisation).filter(name=NAME, expires_at__lte=timezone.now()).exclude(expires_at=None)[:20]:
        key.organisation = organisation
        key_revoke(actor=actor, key=key)
