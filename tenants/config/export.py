"""Export the current state as a document without defaults. Planning that document gives no changes."""

from dataclasses import replace
from typing import Any

from tenants.access import organisation_for, organisation_own
from tenants.actor import Actor
from tenants.config.document import VERSION
from tenants.config.ownership import label_of
from tenants.config.plan import PLAN
from tenants.config.state import NamespaceState, OrganisationState, state_read
from tenants.models.organisations import DEFAULT


def config_export(*, actor: Actor, slug: str | None = None, owner: str | None = None) -> dict[str, Any]:
    """Return all that the actor may see, one organisation, or one file's objects.

    Operators also get operator-only parts.
    """
    organisation_own(actor, PLAN)
    if slug is not None:
        organisation_for(actor, slug, PLAN)
    state = state_read(actor, None if slug is None else [slug])
    document: dict[str, Any] = {"version": VERSION}
    if owner is not None:
        organisations = (
            _owned(one, label_of(actor, one.slug, owner), is_operator=actor.is_operator)
            for one in state.organisations.values()
        )
        return {**document, "owner": owner, "organisations": {slug: one for slug, one in organisations if one}}
    if actor.is_operator and slug is None and state.policy_revision:
        document["policy"] = state.policy
    document["organisations"] = {
        one.slug: _organisation(one, is_operator=actor.is_operator) for one in state.organisations.values()
    }
    return document


def _owned(one: OrganisationState, label: str, *, is_operator: bool) -> tuple[str, dict[str, Any]]:
    """Return its slug and the objects with this label.

    For an organisation with another owner these are only namespaces.
    """
    namespaces = {slug: inner for slug, inner in one.namespaces.items() if inner.owner == label}
    found = _organisation(replace(one, namespaces=namespaces), is_operator=is_operator)
    if one.owner == label:
        return one.slug, found
    return one.slug, {"namespaces": found["namespaces"]} if namespaces else {}


def _organisation(one: OrganisationState, *, is_operator: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"name": one.name}
    if is_operator and one.state != "active":
        found["state"] = one.state
    if one.policy_revision:
        found["policy"] = one.policy
    if is_operator and one.bounds_revision:
        found["bounds"] = one.bounds
    if is_operator and one.limits_revision:
        found["limits"] = one.limits
    namespaces = one.namespaces.values()
    return {**found, "namespaces": {inner.slug: _namespace(inner, is_operator=is_operator) for inner in namespaces}}


def _namespace(one: NamespaceState, *, is_operator: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if one.name:
        found["name"] = one.name
    if is_operator and one.group != DEFAULT:
        found["group"] = one.group
    if one.policy_revision:
        found["policy"] = one.policy
    return found
