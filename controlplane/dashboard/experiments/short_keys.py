"""Keys for one test: made, used and revoked within moments, in the trail like any other."""

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
    """Its secret. Raises LimitReached where the organisation has all the keys it may have."""
    _leftovers_revoke(actor, organisation)
    ends = timezone.now() + LASTS
    key, secret = key_create(actor=actor, organisation=organisation, name=NAME, scopes=[Scope.INFER], expires_at=ends)
    key.organisation = organisation
    try:
        yield secret.secret
    finally:
        key_revoke(actor=actor, key=key)


def _leftovers_revoke(actor: Actor, organisation: Organisation) -> None:
    """Of a process that ended meanwhile: they let nobody in any more, and count among the organisation's keys."""
    for key in keys_of(organisation).filter(name=NAME, expires_at__lte=timezone.now()).exclude(expires_at=None)[:20]:
        key.organisation = organisation
        key_revoke(actor=actor, key=key)
