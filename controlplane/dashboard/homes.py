"""The customer's home as its template reads it: the sentences on top, and one row a namespace. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.dashboard.words import MAY, ORIGINS, ROLES, counted, duration
from tenants.homes import Home, NamespaceHome
from tenants.policy import Effective


@dataclass(frozen=True, slots=True)
class Fact:
    """A value in force and where it comes from."""

    value: str
    origin: str
    more: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    slug: str
    name: str
    lifetime: Fact
    dtype: Fact
    on_request: Fact
    models: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One organisation."""

    slug: str
    title: str
    role: str
    is_suspended: bool
    rows: tuple[Row, ...]
    unshown: int


def home_page(homes: Sequence[Home]) -> dict[str, Any]:
    return {"headline": headline(homes), "advice": advice(homes), "panels": panels(homes)}


def headline(homes: Sequence[Home]) -> str:
    if not homes:
        return "Your cache hits will be counted here"
    if len(homes) > 1:
        return f"You belong to {counted(len(homes), 'organisation')}"
    home = homes[0]
    if home.organisation.is_suspended:
        return f"{home.organisation.name} is suspended"
    return f"{home.organisation.name} has {counted(home.total, 'namespace')}"


def advice(homes: Sequence[Home]) -> str:
    if not homes:
        return "Nothing has been measured for you yet: your account is not part of an organisation."
    suspended = [home.organisation.name for home in homes if home.organisation.is_suspended]
    if len(homes) == 1:
        role = homes[0].member.role
        return SUSPENDED if suspended else f"You are {ROLES[role]}: you may {MAY[role]}."
    if suspended:
        return f"{' and '.join(suspended)} {'is' if len(suspended) == 1 else 'are'} suspended. {SUSPENDED}"
    return "Below, each with its namespaces and what is in force in them."


SUSPENDED = "What stands here can be read, not changed, until your operator lifts the suspension."


def panels(homes: Sequence[Home]) -> list[Panel]:
    """The only one needs no name and no role: the headline has said both."""
    if len(homes) == 1:
        return [panel(homes[0], title="In force now", role="")]
    return [panel(home, title=home.organisation.name, role=ROLES[home.member.role]) for home in homes]


def panel(home: Home, *, title: str, role: str) -> Panel:
    return Panel(
        slug=home.organisation.slug,
        title=title,
        role=role,
        is_suspended=home.organisation.is_suspended,
        rows=tuple(row(one) for one in home.namespaces),
        unshown=home.total - len(home.namespaces),
    )


def row(home: NamespaceHome) -> Row:
    found = home.effective
    asked = found.values["request_kv_dtypes"]
    return Row(
        slug=home.namespace.slug,
        name=home.namespace.name,
        lifetime=lifetime(found),
        dtype=Fact(found.values["kv_dtype"], _origin(found, "kv_dtype")),
        on_request=Fact(", ".join(asked) or "nothing else", _origin(found, "request_kv_dtypes")),
        models=f"other values for {counted(len(home.models), 'model')}" if home.models else "",
    )


def lifetime(found: Effective) -> Fact:
    """How long a block stays matchable, in the words of the policy: "5 min after last use, at most 24 h"."""
    values = found.values
    if not values["prefix_caching"]:
        return Fact("off", _origin(found, "prefix_caching"), "nothing is kept")
    length, most = duration(values["ttl_seconds"]), values["max_age_seconds"]
    if values["ttl_mode"] == "absolute":
        return Fact(f"{length} absolute", _origin(found, "ttl_seconds", "ttl_mode"), "counted from creation")
    cap = "without a cap on age" if most is None else f"at most {duration(most)} in all"
    return Fact(f"{length} sliding", _origin(found, "ttl_seconds", "ttl_mode"), f"after last use, {cap}")


def _origin(found: Effective, *fields: str) -> str:
    """Who decided: the fleet's part is what nobody decided, and goes unsaid beside somebody else's."""
    levels = dict.fromkeys(found.origin[field] for field in fields)
    decided = [level for level in levels if level != "fleet"] or ["fleet"]
    return ", ".join(ORIGINS[level] for level in decided)
