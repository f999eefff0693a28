"""Rows for API keys, and the first commands to try with a new key. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from controlplane.analytics.by_key import Asked
from controlplane.dashboard.frame.states import Tag
from controlplane.dashboard.frame.words import counted
from engine_agent.contracts.words import listed
from tenants.models import ApiKey

SOON: Final = timedelta(days=14)
MOST_SLUGS: Final = 5


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One key. `asked`: its requests at gateways in 24 h. `slugs`: existing namespaces by id."""

    key: ApiKey
    slugs: Mapping[int, str]
    asked: Asked
    is_suspended: bool
    now: datetime

    @property
    def may_infer(self) -> bool:
        return "infer" in self.key.scopes

    @property
    def namespaces(self) -> str:
        return bound_words(self.key.namespace_ids, self.slugs)

    @property
    def last_used(self) -> tuple[datetime | None, str]:
        return last_used(self.key.last_used_at, self.asked.last_at)

    @property
    def state(self) -> Tag:
        return state(self.key.expires_at, is_suspended=self.is_suspended, now=self.now)


def last_used(at_api: datetime | None, at_gateway: datetime | None) -> tuple[datetime | None, str]:
    """Return when and where a key was last used; at a gateway to the minute, as long as minutes are stored."""
    if at_gateway is not None and (at_api is None or at_gateway > at_api):
        return at_gateway, "at a gateway"
    return at_api, "at the REST API" if at_api else ""


def bound_words(ids: list[int] | None, slugs: Mapping[int, str]) -> str:
    """Return a key's namespaces without deleted ones. A key bound only to deleted namespaces covers none."""
    if ids is None:
        return "all, later ones too"
    return (
        listed(sorted(slugs[namespace_id] for namespace_id in ids if namespace_id in slugs), MOST_SLUGS)
        or "none that is left"
    )


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


def snippet(key: ApiKey, secret: str, *, gateway: str, web: str) -> str:
    """Return the first commands for a new key. `gateway`, `web`: this installation's URLs, if known."""
    if "infer" in key.scopes:
        base = gateway or "https://your-gateway"
        lines = (f"export OPENAI_BASE_URL={base}/v1", f"export OPENAI_API_KEY={secret}")
        then = 'curl "$OPENAI_BASE_URL/models" -H "Authorization: Bearer $OPENAI_API_KEY"'
    else:
        lines = (f"export LUMINET_URL={web}", f"export LUMINET_TOKEN={secret}")
        then = "luminet get namespaces"
    return "\n".join((*lines, then))
