"""Navigation: the links at the side of every page, and the tabs of organisations and namespaces.

Only links that the user may open are listed. This is no access check: each page checks for itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from django.urls import reverse

from tenants.access import MANAGE_READ, READ, READ_WHOLE, STATS_READ, Rule
from tenants.actor import Actor

MOST_ORGANISATIONS = 8


@dataclass(frozen=True, slots=True)
class Link:
    label: str
    address: str
    is_here: bool  # the current page is this one or below it


@dataclass(frozen=True, slots=True)
class Group:
    title: str
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A tab of an organisation or a namespace. `rule` states who sees it."""

    label: str
    view: str
    rule: Rule


OPERATORS = (
    ("", (("Overview", "home"), ("Organisations", "organisations"), ("Fleet", "fleet"), ("Rollouts", "rollouts"))),
    ("Watch", (("Alerts", "alerts"), ("Audit", "audit"))),
    ("Plan", (("Calculator", "calculator"), ("Settings", "settings"))),
)
SECTIONS = (
    Section("Namespaces", "organisation", READ),
    Section("Cache hits", "analytics", STATS_READ),
    Section("Why misses happen", "misses", STATS_READ),
    Section("Get hits", "start", READ),
    Section("Policy", "organisation-policy", READ_WHOLE),
    Section("Keys", "keys", MANAGE_READ),
    Section("Members", "members", MANAGE_READ),
    Section("Limits and bounds", "limits", READ),
    Section("Audit", "organisation-audit", MANAGE_READ),
)


NAMESPACE_SECTIONS = (
    Section("Cache", "namespace", READ),
    Section("Policy", "namespace-policy", READ),
    Section("Revisions", "namespace-revisions", READ),
    Section("Pins", "pins", READ),
    Section("Purge", "purge", READ),
)


def operators_groups(path: str) -> list[Group]:
    return [Group(title, _links(links, path)) for title, links in OPERATORS]


def customers_groups(path: str, organisations: Sequence[tuple[str, str]]) -> list[Group]:
    """Return a customer's navigation. `organisations` are (slug, name) pairs; everyone sees the calculator."""
    shown_organisations = organisations[:MOST_ORGANISATIONS]
    organisation_links = tuple(
        _link(name, reverse("organisation", args=[slug]), path) for slug, name in shown_organisations
    )
    home = Group("", (_link("Cache hits", reverse("home"), path),))
    organisation_groups = (
        [Group("Your organisation" if len(organisation_links) == 1 else "Your organisations", organisation_links)]
        if organisation_links
        else []
    )
    return [home, *organisation_groups, Group("Plan", _links((("Calculator", "calculator"),), path))]


def sections(actor: Actor, slug: str, path: str) -> list[Link]:
    """Return the organisation's tabs for this actor. Pages of namespaces belong to the first tab."""
    front = reverse("organisation", args=[slug])
    links = []
    for section in SECTIONS:
        if _may(actor, section):
            address = reverse(section.view, args=[slug])
            is_front = address == front
            is_here = path == front or path.startswith(f"{front}/namespaces") if is_front else _is_within(path, address)
            links.append(Link(section.label, address, is_here))
    return links


def namespace_sections(actor: Actor, org: str, ns: str, path: str) -> list[Link]:
    """Return the tabs of one namespace, shown below its organisation's."""
    addresses = [
        (section, reverse(section.view, args=[org, ns])) for section in NAMESPACE_SECTIONS if _may(actor, section)
    ]
    return [Link(section.label, address, path == address) for section, address in addresses]


def _may(actor: Actor, section: Section) -> bool:
    rule = section.rule
    is_whole = not (rule.whole_organisation and actor.namespace_ids is not None)
    return is_whole and (rule.scope is None or actor.has(rule.scope))


def _links(views: Sequence[tuple[str, str]], path: str) -> tuple[Link, ...]:
    return tuple(_link(label, reverse(view), path) for label, view in views)


def _link(label: str, address: str, path: str) -> Link:
    return Link(label, address, _is_within(path, address))


def _is_within(path: str, address: str) -> bool:
    return path == address or (address != "/" and path.startswith(f"{address}/"))
