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
            _owned(organisation, label_of(actor, organisation.slug, owner), is_operator=actor.is_operator)
            for organisation in state.organisations.values()
        )
        return {
            **document,
            "owner": owner,
            "organisations": {slug: exported for slug, exported in organisations if exported},
        }
    if actor.is_operator and slug is None and state.policy_revision:
        document["policy"] = state.policy
    document["organisations"] = {
        organisation.slug: _organisation(organisation, is_operator=actor.is_operator)
        for organisation in state.organisations.values()
    }
    return document


def _owned(organisation: OrganisationState, label: str, *, is_operator: bool) -> tuple[str, dict[str, Any]]:
    """Return its slug and the objects with this label.

    For an organisation with another owner these are only namespaces.
    """
    namespaces = {slug: inner for slug, inner in organisation.namespaces.items() if inner.owner == label}
    document = _organisation(replace(organisation, namespaces=namespaces), is_operator=is_operator)
    if organisation.owner == label:
        return organisation.slug, document
    return organisation.slug, {"namespaces": document["namespaces"]} if namespaces else {}


def _organisation(organisation: OrganisationState, *, is_operator: bool) -> dict[str, Any]:
    document: dict[str, Any] = {"name": organisation.name}
    if is_operator and organisation.state != "active":
        document["state"] = organisation.state
    if organisation.policy_revision:
        document["policy"] = organisation.policy
    if is_operator and organisation.bounds_revision:
        document["bounds"] = organisation.bounds
    if is_operator and organisation.limits_revision:
        document["limits"] = organisation.limits
    namespaces = organisation.namespaces.values()
    return {**document, "namespaces": {inner.slug: _namespace(inner, is_operator=is_operator) for inner in namespaces}}


def _namespace(namespace: NamespaceState, *, is_operator: bool) -> dict[str, Any]:
    document: dict[str, Any] = {}
    if namespace.name:
        document["name"] = namespace.name
    if is_operator and namespace.group != DEFAULT:
        document["group"] = namespace.group
    if namespace.policy_revision:
        document["policy"] = namespace.policy
    return document
