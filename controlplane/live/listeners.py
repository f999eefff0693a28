"""Access to live sockets: checked when a socket opens, and then repeatedly for all open sockets in one query."""

import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.models import Session
from django.db import connection

from tenants.access import READ, actor_for_member, actor_for_operator, memberships_of, organisation_for
from tenants.actor import Actor
from tenants.errors import NotFound, NotPermitted
from tenants.models import Member, Organisation, User
from tenants.sessions import SessionStore

NOT_SIGNED_IN = 4401
NOT_ALLOWED = 4403
NOT_FOUND = 4404
FLEET_GROUP = "fleet"
SESSIONS_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class Listener:
    """A session and what it listens to: an organisation, or the fleet (None)."""

    session: str = field(repr=False)  # its row key: a hash, or the key itself if the previous version stored it
    user: int
    organisation: int | None = None

    @property
    def group(self) -> str:
        return FLEET_GROUP if self.organisation is None else organisation_group(self.organisation)


@dataclass(frozen=True, slots=True)
class Checked:
    """The listeners that lost access, each with its close code, and the time of the check by the database's clock."""

    refused: Mapping[Listener, int]
    at_ms: int


class ListenerRefused(Exception):
    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"refused with {code}")


def organisation_group(organisation: int) -> str:
    return f"org/{organisation}"


def fleet_listener(user: Any, session: str) -> Listener:
    if not user.is_authenticated:
        raise ListenerRefused(NOT_SIGNED_IN)
    if not user.is_operator:
        raise ListenerRefused(NOT_ALLOWED)
    return Listener(session, user.pk)


def organisation_listener(user: Any, session: str, *, org: str) -> Listener:
    """Refuse an unknown organisation and one without access alike."""
    if not user.is_authenticated:
        raise ListenerRefused(NOT_SIGNED_IN)
    try:
        organisation = organisation_for(_actor(user, org), org, READ)
    except (NotFound, NotPermitted):
        raise ListenerRefused(NOT_FOUND) from None
    return Listener(session, user.pk, organisation.pk)


def _actor(user: User, org: str) -> Actor:
    if user.is_operator:
        return actor_for_operator(user)
    member = memberships_of(user).filter(organisation__slug=org).first()
    if member is None:
        raise NotFound("organisation")
    return actor_for_member(member)


_CHECK = f"""
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, listener.number, session.session_data, account.password,
       account.is_active, account.is_operator, member.id IS NOT NULL, organisation.state
FROM unnest(%s::text[], %s::bigint[], %s::bigint[])
     WITH ORDINALITY AS listener(session_key, user_id, organisation_id, number)
LEFT JOIN {Session._meta.db_table} AS session
     ON session.session_key = listener.session_key AND session.expire_date > clock_timestamp()
LEFT JOIN {User._meta.db_table} AS account ON account.id = listener.user_id
LEFT JOIN {Member._meta.db_table} AS member
     ON member.user_id = listener.user_id AND member.organisation_id = listener.organisation_id
LEFT JOIN {Organisation._meta.db_table} AS organisation ON organisation.id = listener.organisation_id
"""  # noqa: S608  # only names of our own tables


def listeners_check(listeners: Iterable[Listener]) -> Checked:
    """Check the access of all listeners in one query."""
    unique_listeners = list(dict.fromkeys(listeners))
    columns = (
        [listener.session for listener in unique_listeners],
        [listener.user for listener in unique_listeners],
        [listener.organisation for listener in unique_listeners],
    )
    with connection.cursor() as cursor:
        cursor.execute(_CHECK, columns)
        rows = cursor.fetchall()
    refused = {}
    for _, number, *account_state in rows:
        code = _refusal(unique_listeners[number - 1], account_state)
        if code is not None:
            refused[unique_listeners[number - 1]] = code
    return Checked(refused, rows[0][0] if rows else 0)


def _refusal(listener: Listener, account_state: Sequence[Any]) -> int | None:
    session, password, is_active, is_operator, is_member, state = account_state
    if session is None or not is_active or not _is_signed_in(listener.user, session, password):
        return NOT_SIGNED_IN
    if listener.organisation is None:
        return None if is_operator else NOT_ALLOWED
    exists = state is not None and state != Organisation.State.DELETED
    return None if exists and (is_operator or is_member) else NOT_FOUND


def _is_signed_in(user: int, session: str, password: str) -> bool:
    """Return whether the session belongs to this user and was made with the current password."""
    session_user, proof = _session_read(session)
    return session_user == str(user) and hmac.compare_digest(proof, User(password=password).get_session_auth_hash())


@lru_cache(SESSIONS_REMEMBERED)
def _session_read(data: str) -> tuple[str, str]:
    """Return the user of a session and its proof of the password. Cached, because signed data never changes."""
    fields = SessionStore().decode(data)
    return str(fields.get(SESSION_KEY, "")), str(fields.get(HASH_SESSION_KEY, ""))
