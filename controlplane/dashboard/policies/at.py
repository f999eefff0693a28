"""The policy level that a page is about, the user's permissions there, and links to related pages."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from controlplane.dashboard.frame import navigation
from controlplane.dashboard.frame.pages import actor_within, operator_of
from engine_agent.contracts.policy_fields import LEVELS
from tenants.access import (
    OPERATE_PUBLISH,
    OPERATE_READ,
    PUBLISH,
    PUBLISH_WHOLE,
    READ,
    READ_WHOLE,
    namespace_for,
    organisation_for,
    permit,
)
from tenants.actor import Actor, Scope
from tenants.bounds import Bounds, bounds_of
from tenants.levels import FLEET, Place


@dataclass(frozen=True, slots=True)
class At:
    """One of the three levels, and the actor who looks at it."""

    actor: Actor
    place: Place

    @property
    def kind(self) -> str:
        return LEVELS[sum(scope_part is not None for scope_part in (self.place.organisation, self.place.namespace))]

    @property
    def arguments(self) -> list[str]:
        return [] if self.kind == "fleet" else self.place.name.split("/")

    @property
    def bounds(self) -> Bounds | None:
        organisation = self.place.organisation
        return None if organisation is None else bounds_of(organisation.bounds, organisation.bounds_revision)

    @property
    def may_edit(self) -> bool:
        """Return whether the actor may edit; publishing checks again."""
        return self.actor.has(Scope.POLICY_WRITE) and not self._is_held

    @property
    def _is_held(self) -> bool:
        organisation = self.place.organisation
        return organisation is not None and organisation.is_suspended and not self.actor.is_operator

    @property
    def why_not(self) -> str:
        """Return why nothing can be changed here; empty if it can."""
        if self._is_held:
            return "This organisation is suspended: its policy can be read, not changed. Ask your operator."
        return "" if self.may_edit else "Your role lets you read policies. Editors and admins may change them."

    @property
    def whose(self) -> str:
        """Return "acme/chat" or "The fleet’s default"."""
        return "The fleet’s default" if self.kind == "fleet" else self.place.name

    def address(self, page: str) -> str:
        """Return the URL of `policy`, `policy-check` or `revisions` at this level."""
        return reverse(f"{self.kind}-{page}", args=self.arguments)

    def frame(self, request: HttpRequest) -> dict[str, Any]:
        """Return the context that every page of a level needs."""
        organisation, namespace = self.place.organisation, self.place.namespace
        context: dict[str, Any] = {
            "kind": self.kind,
            "whose": self.whose,
            "organisation": organisation,
            "namespace": namespace,
            "policy_address": self.address("policy"),
            "check_address": self.address("policy-check"),
            "revisions_address": self.address("revisions"),
        }
        if organisation is not None:
            context["sections"] = navigation.sections(self.actor, organisation.slug, request.path)
        if organisation is not None and namespace is not None:
            context["namespace_sections"] = navigation.namespace_sections(
                self.actor, organisation.slug, namespace.slug, request.path
            )
            context["what_if_address"] = reverse("policy-what-if", args=self.arguments)
            context["what_if_now_address"] = reverse("policy-what-if-now", args=self.arguments)
        return context


def at(request: HttpRequest, org: str = "", ns: str = "", *, writes: bool = False) -> At:
    """Return the URL's level, or raise NotFound or NotPermitted."""
    if not org:
        actor = operator_of(request)
        permit(actor, OPERATE_PUBLISH if writes else OPERATE_READ)
        return At(actor, FLEET)
    actor = actor_within(request, org)
    rule = (PUBLISH if writes else READ) if ns else (PUBLISH_WHOLE if writes else READ_WHOLE)
    organisation = organisation_for(actor, org, rule)
    return At(actor, Place(organisation, namespace_for(actor, organisation, ns) if ns else None))
