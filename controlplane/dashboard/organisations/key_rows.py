"""API keys as their page shows them, and what to do with one that is new. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from controlplane.dashboard.fleet_rows import Tag
from controlplane.dashboard.words import counted
from tenants.models import ApiKey, Organisation

SOON: Final = timedelta(days=14)
MOST_SLUGS: Final = 5


@dataclass(frozen=True, slots=True)
class KeyRow:
    id: str
    name: str
    prefix: str
    scopes: str
    namespaces: str
    created_at: datetime
    created_by: str
    last_used_at: datetime | None
    unused: str  # instead of when it was used
    expires_at: datetime | None
    state: Tag


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key at the only moment its secret is shown. `snippet`: what to do with it first."""

    name: str
    prefix: str
    secret: str
    snippet: str
    then: str


def key_row(key: ApiKey, slugs: Mapping[int, str], *, organisation: Organisation, now: datetime) -> KeyRow:
    return KeyRow(
        id=str(key.pk),
        name=key.name,
        prefix=f"{key.prefix}…",
        scopes=", ".join(key.scopes),
        namespaces=bound_words(key.namespace_ids, slugs),
        created_at=key.created_at,
        created_by=key.created_by,
        last_used_at=key.last_used_at,
        unused="gateways do not tell" if key.scopes == ["infer"] else "never",
        expires_at=key.expires_at,
        state=state(key.expires_at, is_suspended=organisation.is_suspended, now=now),
    )


def bound_words(ids: list[int] | None, slugs: Mapping[int, str]) -> str:
    """Those deleted since are gone, and widen nothing."""
    if ids is None:
        return "all, later ones too"
    found = sorted(slugs[one] for one in ids if one in slugs)
    if not found:
        return "none that is left"
    more = f" and {len(found) - MOST_SLUGS:,} more" if len(found) > MOST_SLUGS else ""
    return f"{', '.join(found[:MOST_SLUGS])}{more}"


def state(expires_at: datetime | None, *, is_suspended: bool, now: datetime) -> Tag:
    if expires_at is not None and expires_at <= now:
        return Tag("expired", "bad")
    if is_suspended:
        return Tag("refused: suspended", "warn")
    if expires_at is not None and expires_at - now < SOON:
        days = (expires_at - now).days
        return Tag(f"ends in {counted(days, 'day')}" if days else "ends within a day", "warn")
    return Tag("works", "ok")


def headline(total: int, find: str) -> str:
    if find:
        return f"{counted(total, 'key')} {'fits' if total == 1 else 'fit'} “{find}”"
    if not total:
        return "No key yet: nothing can be asked in this organisation’s name"
    return f"{counted(total, 'key')} can act for this organisation"


def new_key(key: ApiKey, secret: str, *, gateway: str, web: str) -> NewKey:
    """`gateway`, `web`: where this installation listens; the gateway's is empty where none has joined."""
    if "infer" in key.scopes:
        base = gateway or "https://your-gateway"
        lines = (f"export OPENAI_BASE_URL={base}/v1", f"export OPENAI_API_KEY={secret}")
        then = 'curl "$OPENAI_BASE_URL/models" -H "Authorization: Bearer $OPENAI_API_KEY"'
    else:
        lines = (f"export LUMINET_URL={web}", f"export LUMINET_TOKEN={secret}")
        then = "luminet get namespaces"
    return NewKey(key.name, f"{key.prefix}…", secret, "\n".join(lines), then)
