"""API keys as their page shows them, and what to do with one that is new. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from controlplane.analytics.by_key import Asked
from controlplane.dashboard.fleet.rows import Tag
from controlplane.dashboard.frame.tiles import rate
from controlplane.dashboard.frame.words import counted
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
    asked: str  # at gateways, in 24 h
    rate: str
    last_used_at: datetime | None
    last_used_where: str
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


def key_row(
    key: ApiKey, slugs: Mapping[int, str], asked: Asked, *, organisation: Organisation, now: datetime
) -> KeyRow:
    last_at, where = last_used(key.last_used_at, asked.last_at)
    may_infer = "infer" in key.scopes
    return KeyRow(
        id=str(key.pk),
        name=key.name,
        prefix=f"{key.prefix}…",
        scopes=", ".join(key.scopes),
        namespaces=bound_words(key.namespace_ids, slugs),
        created_at=key.created_at,
        created_by=key.created_by,
        asked=counted(asked.counts["requests"], "request") if may_infer else "may not infer",
        rate=rate_words(asked.counts["cached_tokens"], asked.counts["prompt_tokens"]),
        last_used_at=last_at,
        last_used_where=where,
        unused="not known to be used" if may_infer else "never",
        expires_at=key.expires_at,
        state=state(key.expires_at, is_suspended=organisation.is_suspended, now=now),
    )


def last_used(at_api: datetime | None, at_gateway: datetime | None) -> tuple[datetime | None, str]:
    """The later of the two. Of a gateway it is known to the minute, as long as minutes are kept."""
    if at_gateway is not None and (at_api is None or at_gateway > at_api):
        return at_gateway, "at a gateway"
    return at_api, "at the REST API" if at_api else ""


def rate_words(cached: int, prompt: int) -> str:
    return f"{rate(cached, prompt)} % from the cache" if prompt else ""


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
