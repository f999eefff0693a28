"""Join tokens, with which agents enrol: created by operators, shown once, spent by enrolment, and expiring."""

from datetime import datetime, timedelta

from django.db.models import F, Q
from django.utils import timezone

from controlplane.fleet.errors import UnknownToken
from controlplane.fleet.models import KINDS, JoinToken
from tenants.actor import SYSTEM, Actor
from tenants.audit import audited
from tenants.crypto import NewSecret, secret_hash, secret_is_well_formed, secret_new, secret_prefix
from tenants.errors import FieldProblem, InvalidFields
from tenants.fields import all_checked, name_check, slug_check
from tenants.models import AgentGroup
from tenants.services.namespaces import default_group

JOIN_KIND = "ljt"
MOST_USES = 100_000
SHORTEST, LONGEST = timedelta(minutes=1), timedelta(days=366)
STANDING_NAME = "standing"
STANDING_LASTS = timedelta(hours=24)


def join_token_create(
    *,
    actor: Actor,
    name: str,
    group: AgentGroup,
    expires_in: timedelta,
    kind: str | None = None,
    agent: str = "",
    uses: int | None = 1,
) -> tuple[JoinToken, NewSecret]:
    """Create a token and return it with its secret, which is never shown again.

    `uses` None: any number until it expires.
    """
    name, *_ = all_checked(
        lambda: name_check(name),
        lambda: _kind_check(kind),
        lambda: slug_check(agent, "agent") if agent else "",
        lambda: _uses_check(uses, agent),
        lambda: _duration_check(expires_in),
    )
    secret, now = secret_new(JOIN_KIND), timezone.now()
    with audited() as journal:
        token = JoinToken.objects.create(
            name=name,
            prefix=secret.prefix,
            hash=secret.hash,
            kind=kind,
            group=group,
            agent=agent,
            uses_left=uses,
            created_by=actor.name,
            created_at=now,
            expires_at=now + expires_in,
        )
        journal.record(actor, "join-token.create", _target(token), after=_told(token))
    return token, secret


def join_token_revoke(*, actor: Actor, token: JoinToken) -> None:
    """Revoke the token: no agent can enrol with it after this commit. Agents that enrolled before stay."""
    with audited() as journal:
        if JoinToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now()):
            journal.record(actor, "join-token.revoke", _target(token), before=_told(token))


def join_token_spend(secret: str, *, now: datetime) -> JoinToken:
    """Return the token with one use less, or raise UnknownToken.

    A rollback of the caller's transaction restores the use.
    """
    if not secret_is_well_formed(JOIN_KIND, secret):
        raise UnknownToken
    living = JoinToken.objects.filter(_alive(now), hash=secret_hash(secret))
    # One statement, so that only one of two concurrent callers gets the last use.
    if not living.update(uses=F("uses") + 1, uses_left=F("uses_left") - 1):
        raise UnknownToken
    return JoinToken.objects.select_related("group").get(hash=secret_hash(secret))


def standing_token_renew(secret: str, *, now: datetime) -> JoinToken:
    """Create or renew the token from the environment for another day, for any number of agents of the default group.

    It does not bring back revoked agents, because their machines know it. If an operator revokes it, it stays revoked
    until the environment sets another one.
    """
    if not secret_is_well_formed(JOIN_KIND, secret):
        problem = "is mistyped: its checksum is wrong; `luminet secrets` prints a new one"
        raise InvalidFields([FieldProblem("LUMINET_JOIN_TOKEN", problem)])
    with audited() as journal:
        token, is_new = JoinToken.objects.get_or_create(
            hash=secret_hash(secret),
            defaults={
                "name": STANDING_NAME,
                "prefix": secret_prefix(secret),
                "group": default_group(),
                "created_by": SYSTEM.name,
                "expires_at": now + STANDING_LASTS,
            },
        )
        if is_new:
            journal.record(SYSTEM, "join-token.create", _target(token), after=_told(token))
        elif token.revoked_at is None:
            JoinToken.objects.filter(pk=token.pk, revoked_at=None).update(expires_at=now + STANDING_LASTS)
    return token


def is_standing(token: JoinToken) -> bool:
    return token.name == STANDING_NAME and token.created_by == SYSTEM.name


def join_token_state(token: JoinToken, *, now: datetime) -> str:
    if token.revoked_at is not None:
        return "revoked"
    if token.expires_at is not None and token.expires_at <= now:
        return "expired"
    return "spent" if token.uses_left == 0 else "open"


def _alive(now: datetime) -> Q:
    is_unspent = Q(uses_left=None) | Q(uses_left__gt=0)
    return Q(revoked_at=None) & (Q(expires_at=None) | Q(expires_at__gt=now)) & is_unspent


def _kind_check(kind: str | None) -> None:
    if kind is not None and kind not in KINDS:
        raise InvalidFields([FieldProblem("kind", f"{kind[:80]!r} is none of {', '.join(KINDS)}")])


def _uses_check(uses: int | None, agent: str) -> None:
    if uses is not None and not 1 <= uses <= MOST_USES:
        raise InvalidFields([FieldProblem("uses", f"{uses} is not 1 to {MOST_USES}; null: any number")])
    if agent and uses != 1:
        problem = "a token bound to an agent's name takes that agent over: it can be used once"
        raise InvalidFields([FieldProblem("uses", problem)])


def _duration_check(expires_in: timedelta) -> None:
    if not SHORTEST <= expires_in <= LONGEST:
        minimum_seconds, maximum_seconds = int(SHORTEST.total_seconds()), int(LONGEST.total_seconds())
        raise InvalidFields(
            [
                FieldProblem(
                    "expires_in_seconds",
                    f"{expires_in.total_seconds():.0f} is not {minimum_seconds} to {maximum_seconds}",
                )
            ]
        )


def _target(token: JoinToken) -> str:
    return f"join token {token.prefix}…"


def _told(token: JoinToken) -> dict[str, object]:
    return {
        "id": str(token.pk),
        "name": token.name,
        "kind": token.kind,
        "group": token.group.slug,
        "agent": token.agent or None,
        "uses": token.uses_left,
        "expires_at": None if token.expires_at is None else token.expires_at.isoformat(),
    }
