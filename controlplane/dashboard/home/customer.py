"""Context for the customer's start page: headline, one tile per organisation, one row per namespace. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from controlplane.dashboard.frame.tiles import Tile, tile
from controlplane.dashboard.frame.words import MAY, ORIGINS, ROLES, counted, duration
from controlplane.dashboard.home.ttl_forms import Ttl, TtlForm, ttl_form, within
from controlplane.dashboard.policies.fields import value_words
from controlplane.live.listeners import organisation_group
from engine_agent.contracts.policy_fields import LABELS
from tenants.access import actor_for_member
from tenants.actor import Scope
from tenants.bounds import SecondsRange, bounds_of
from tenants.homes import Home, NamespaceHome
from tenants.policy import Effective

TILES_AT_MOST = 10  # each tile is computed and opens a socket, so only the first organisations get one
Told = Mapping[str, Mapping[str, Any]]  # live messages by group
Tried = Mapping[str, TtlForm]  # submitted and refused forms, by the name of their level


@dataclass(frozen=True, slots=True)
class Fact:
    """A value in force and the level it comes from."""

    value: str
    origin: str
    more: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The link to the refused form, the level it would have changed, and the error."""

    href: str
    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One organisation; each namespace with facts, TTL form and rollout progress.

    A member's only organisation shows no name or role, because the headline states them.
    """

    home: Home
    role: str
    rows: list[tuple[NamespaceHome, list[Fact], Ttl | None, str]]
    tile: Tile | None
    why_not: str  # set if no member may change a TTL here

    @property
    def title(self) -> str:
        return self.home.organisation.name if self.role else "In force now"

    @property
    def unshown(self) -> int:
        return self.home.total - len(self.home.namespaces)


def home_page(
    homes: Sequence[Home], live_messages: Told, tried: Tried, rollout_notes: Mapping[int, str]
) -> dict[str, Any]:
    """Return the template context. `rollout_notes`: by namespace, how many engines apply a policy in rollout."""
    panels = [panel(home, live_messages, tried, rollout_notes, is_only=len(homes) == 1) for home in homes]
    tiles = [panel.tile for panel in panels if panel.tile is not None]
    only = tiles[0] if len(panels) == 1 and not homes[0].organisation.is_suspended else None
    fact = only.fact if only else ""
    return {
        "headline": fact or headline(homes),
        "advice": f"{headline(homes)}. {advice(homes)}" if fact else advice(homes),
        "fact": fact,
        "fact_of": only.path if only else "",
        "panels": panels,
        "labels": LABELS,
        "refused": refusal(ttl for panel in panels for _, _, ttl, _ in panel.rows if ttl is not None),
        "live": {
            "paths": " ".join(live_tile.path for live_tile in tiles),
            "seq": min((live_tile.seq for live_tile in tiles), default=0),
        },
    }


def groups_of(homes: Sequence[Home]) -> list[str]:
    """Return the live groups whose numbers the page shows."""
    return [organisation_group(home.organisation.pk) for home in homes[:TILES_AT_MOST]]


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


def panel(home: Home, live_messages: Told, tried: Tried, rollout_notes: Mapping[int, str], *, is_only: bool) -> Panel:
    organisation = home.organisation
    bound = bounds_of(organisation.bounds, organisation.bounds_revision).ttl_seconds
    numbers = live_messages.get(organisation_group(organisation.pk))
    may_edit = actor_for_member(home.member).has(Scope.POLICY_WRITE) and not organisation.is_suspended
    slug, name = organisation.slug, "" if is_only else organisation.name
    return Panel(
        home=home,
        role="" if is_only else ROLES[home.member.role],
        rows=[
            (
                namespace_home,
                facts(namespace_home.effective),
                _ttl(namespace_home, bound, tried) if may_edit and bound is not None else None,
                rollout_notes.get(namespace_home.namespace.pk, ""),
            )
            for namespace_home in home.namespaces
        ],
        tile=None if numbers is None else tile(numbers, slug=slug, title=name, path=f"/ws/live/orgs/{slug}"),
        why_not="Only your operator may change how long blocks live here." if may_edit and bound is None else "",
    )


def facts(effective_policy: Effective) -> list[Fact]:
    """Return TTL, KV format, and the KV formats requests may choose."""
    formats = ("kv_dtype", "request_kv_dtypes")
    return [
        lifetime(effective_policy),
        *(Fact(value_words(name, effective_policy.values[name]), _origin(effective_policy, name)) for name in formats),
    ]


def _ttl(home: NamespaceHome, bound: SecondsRange, tried: Tried) -> Ttl:
    org, ns = home.namespace.organisation.slug, home.namespace.slug
    slug = f"{org}-{ns}"
    return Ttl(
        action=reverse("namespace-ttl", args=[org, ns]),
        slug=slug,
        what=ns,
        form=ttl_form(slug, seconds=home.effective.values["ttl_seconds"], tried=tried.get(f"{org}/{ns}")),
        revision=home.namespace.policy_level.revision,
        hint=f"Your operator lets you choose {within(bound)}.",
    )


def refusal(ttls: Iterable[Ttl]) -> Refusal | None:
    """Return the refused form's error, shown on top because the form may be far down the page."""
    for ttl in ttls:
        messages = [str(error) for errors in ttl.form.errors.values() for error in errors]
        if messages:
            return Refusal(f"#ttl-{ttl.slug}", ttl.what, " ".join(messages))
    return None


def fleet_ttl(effective_policy: Effective, revision: int, tried: Tried, *, agents: int) -> Ttl:
    """Return the form for the fleet's TTL, the default where no level sets one."""
    return Ttl(
        action=reverse("fleet-ttl"),
        slug="fleet",
        what="the fleet's default",
        form=ttl_form("fleet", seconds=effective_policy.values["ttl_seconds"], tried=tried.get("fleet")),
        revision=revision,
        hint=f"From {within(SecondsRange())}.",
        whom=f" to {counted(agents, 'agent')}{' at once' if agents > 1 else ''}" if agents else "",
    )


def lifetime(effective_policy: Effective) -> Fact:
    """Return how long a block stays matchable: "5 min sliding", "after last use, at most 24 h in all"."""
    values = effective_policy.values
    if not values["prefix_caching"]:
        return Fact("off", _origin(effective_policy, "prefix_caching"), "nothing is kept")
    length, maximum_age = duration(values["ttl_seconds"]), values["max_age_seconds"]
    if values["ttl_mode"] == "absolute":
        return Fact(f"{length} absolute", _origin(effective_policy, "ttl_seconds", "ttl_mode"), "counted from creation")
    cap = "without a cap on age" if maximum_age is None else f"at most {duration(maximum_age)} in all"
    return Fact(f"{length} sliding", _origin(effective_policy, "ttl_seconds", "ttl_mode"), f"after last use, {cap}")


def _origin(effective_policy: Effective, *fields: str) -> str:
    """Return the levels that set the fields; the fleet is named only if no other level does."""
    levels = dict.fromkeys(effective_policy.origin[field] for field in fields)
    decided = [level for level in levels if level != "fleet"] or ["fleet"]
    return ", ".join(ORIGINS[level] for level in decided)
