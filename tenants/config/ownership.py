"""Ownership: which objects a document owns, and which of those it deletes because it does not name them. No I/O.

Organisations and namespaces carry the label of the file that owns them. A file deletes only objects with its label or,
if it has none, objects without a label in the organisations that the caller named. Labels of an organisation's own
files start with its slug, so a customer's file and an operator's file never own the same objects.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tenants.actor import Actor
from tenants.config.document import ConfigDocument, NamespaceConfig, OrganisationConfig
from tenants.config.state import NamespaceState, OrganisationState
from tenants.errors import FieldProblem, InvalidFields
from tenants.models.organisations import DEFAULT

MAX_DELETES = 10
NAMED_AT_MOST = 5
NO_SCOPE = (
    "needs a scope: name organisations (--org, `prune_organisations`), or put `owner: NAME` into the file to delete "
    "only what this file made or took over"
)


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """The caller's options besides the document."""

    prune: bool = False
    prune_organisations: frozenset[str] = frozenset()
    take_ownership: bool = False

    def check(self, document: ConfigDocument) -> None:
        if self.prune and not self.prune_organisations and document.owner is None:
            raise InvalidFields([FieldProblem("prune", NO_SCOPE)])
        if self.prune_organisations and not self.prune:
            message = "narrows what --prune deletes, and does nothing without it: add --prune (`prune`)"
            raise InvalidFields([FieldProblem("prune_organisations", message)])
        if self.take_ownership and document.owner is None:
            message = "needs an owner: put `owner: NAME` into the file"
            raise InvalidFields([FieldProblem("take_ownership", message)])


def label_of(actor: Actor, organisation: str, owner: str | None) -> str:
    """Return the label of a file's objects in an organisation: OWNER from operators, ORGANISATION/OWNER from members.

    An owner in a file cannot contain a slash, so neither can write the other's label.
    """
    if not owner or actor.is_operator:
        return owner or ""
    return f"{organisation}/{owner}"


def refusal(current_owner: str, label: str) -> str:
    """Return why a file may not own an existing object without --take-ownership."""
    if not current_owner:
        return (
            f"exists, and no file owns it: --take-ownership (`take_ownership`) lets {label} take it over; --prune then "
            "deletes it when the file no longer names it"
        )
    kind = " (operators)" if "/" in label and "/" not in current_owner else ""
    return f"belongs to {current_owner}{kind}, not to {label}: --take-ownership (`take_ownership`) takes it over"


def claims_organisation(actor: Actor, config: OrganisationConfig, *, is_new: bool) -> bool:
    """Return whether a file that names an organisation owns it, and not only some of its namespaces.

    Only operators create and delete organisations, so only they own them.
    """
    return actor.is_operator and (is_new or config.model_fields_set != {"namespaces"})


def claims_namespace(slug: str, config: NamespaceConfig) -> bool:
    """Return whether a file owns the namespace. `default` always exists, so naming it alone does not claim it."""
    return slug != DEFAULT or bool(config.model_fields_set)


@dataclass(frozen=True, slots=True)
class Pruning:
    """The deletion of everything that the document owns and does not name."""

    actor: Actor
    options: ApplyOptions
    document: ConfigDocument

    def problems(self, before: Mapping[str, OrganisationState]) -> Iterator[FieldProblem]:
        named_organisations = self.document.organisations or {}
        for slug in sorted(self.options.prune_organisations):
            pruned = before.get(slug)
            if slug not in named_organisations and (pruned is None or not self._is_deletable(pruned)):
                yield FieldProblem(f"organisations.{slug}", "--org (`prune_organisations`) names it, the file does not")
        for organisation in before.values():
            if self._deletes(organisation) and (other_namespaces := self._others_in(organisation)):
                names = ", ".join(other_namespaces[:NAMED_AT_MOST]) + (
                    " …" if len(other_namespaces) > NAMED_AT_MOST else ""
                )
                message = (
                    f"cannot be deleted: {len(other_namespaces)} of its namespaces do not belong to "
                    f"{self.document.owner} ({names}); delete them first, or name the organisation in the file"
                )
                yield FieldProblem(f"organisations.{organisation.slug}", message)

    def after(self, organisations: Mapping[str, OrganisationState]) -> dict[str, OrganisationState]:
        remaining = (organisation for organisation in organisations.values() if not self._deletes(organisation))
        return {
            organisation.slug: replace(organisation, namespaces=self._namespaces(organisation))
            for organisation in remaining
        }

    def _namespaces(self, organisation: OrganisationState) -> Mapping[str, NamespaceState]:
        named_namespaces = self._named_in(organisation.slug)
        if named_namespaces is None or not self._covers(organisation.slug):
            return organisation.namespaces
        label = label_of(self.actor, organisation.slug, self.document.owner)
        return {
            slug: namespace
            for slug, namespace in organisation.namespaces.items()
            if slug == DEFAULT or slug in named_namespaces or namespace.owner != label
        }

    def _named_in(self, slug: str) -> frozenset[str] | None:
        """Return the namespaces that the document names, or None if it does not manage the list."""
        named_organisations = self.document.organisations or {}
        if slug not in named_organisations:
            return frozenset() if self.document.owner else None
        namespaces = named_organisations[slug].namespaces
        return None if namespaces is None else frozenset(namespaces)

    def _covers(self, slug: str) -> bool:
        is_in_scope = not self.options.prune_organisations or slug in self.options.prune_organisations
        return self.options.prune and self.document.organisations is not None and is_in_scope

    def _deletes(self, organisation: OrganisationState) -> bool:
        is_named = organisation.slug in (self.document.organisations or {})
        return not is_named and self._covers(organisation.slug) and self._is_deletable(organisation)

    def _is_deletable(self, organisation: OrganisationState) -> bool:
        owner = self.document.owner
        return self.actor.is_operator and owner is not None and organisation.owner == owner

    def _others_in(self, organisation: OrganisationState) -> list[str]:
        """Return its namespaces that the document does not own.

        `default` is created and deleted with the organisation.
        """
        return [
            namespace.slug
            for namespace in organisation.namespaces.values()
            if namespace.owner != self.document.owner and not (namespace.slug == DEFAULT and not namespace.owner)
        ]
