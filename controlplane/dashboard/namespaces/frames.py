"""Helpers that the namespace pages share: access, tabs, and the window of the numbers."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from controlplane.dashboard.frame import navigation
from controlplane.dashboard.frame.navigation import Link
from controlplane.dashboard.frame.pages import actor_within
from tenants.access import Rule, namespace_for, organisation_for
from tenants.actor import Actor
from tenants.models import Namespace, Organisation

WINDOWS = {"1h": "1 h", "24h": "24 h", "7d": "7 d", "30d": "30 d"}
USUAL = "24h"


@dataclass(frozen=True, slots=True)
class Inside:
    """A namespace and the actor who looks at it."""

    actor: Actor
    namespace: Namespace


def within(request: HttpRequest, org: str, rule: Rule) -> tuple[Actor, Organisation]:
    actor = actor_within(request, org)
    return actor, organisation_for(actor, org, rule)


def inside(request: HttpRequest, org: str, ns: str, rule: Rule) -> Inside:
    actor, organisation = within(request, org, rule)
    return Inside(actor, namespace_for(actor, organisation, ns))


def may(actor: Actor, rule: Rule, organisation: Organisation) -> bool:
    """Return whether to show a form. Submitting it checks the permission again."""
    has_scope = rule.scope is None or actor.has(rule.scope)
    return has_scope and not (rule.writes and organisation.is_suspended and not actor.is_operator)


def organisation_frame(
    request: HttpRequest, actor: Actor, organisation: Organisation, *, path: str | None = None
) -> dict[str, Any]:
    slug = organisation.slug
    return {
        "organisation": organisation,
        "sections": navigation.sections(actor, slug, path or request.path),
        "front": reverse("organisation", args=[slug]),
    }


def namespace_frame(request: HttpRequest, access: Inside) -> dict[str, Any]:
    namespace = access.namespace
    org = namespace.organisation.slug
    return {
        **organisation_frame(request, access.actor, namespace.organisation),
        "namespace": namespace,
        "namespace_sections": navigation.namespace_sections(access.actor, org, namespace.slug, request.path),
        "policy_address": reverse("namespace-policy", args=[org, namespace.slug]),
    }


def window_asked(request: HttpRequest) -> str:
    window = request.GET.get("window", USUAL)
    return window if window in WINDOWS else USUAL


def windows(chosen: str) -> list[Link]:
    return [Link(label, f"?window={name}", name == chosen) for name, label in WINDOWS.items()]
