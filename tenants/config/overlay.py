"""The state that a document describes, laid over the current one. No I/O. `plan.py` lists the changes to get there."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeVar

from tenants.actor import Actor
from tenants.config.document import ConfigDocument, NamespaceConfig, OrganisationConfig
from tenants.config.ownership import (
    ApplyOptions,
    Pruning,
    claims_namespace,
    claims_organisation,
    label_of,
    refusal,
)
from tenants.config.state import NamespaceState, OrganisationState, State
from tenants.errors import FieldProblem, InvalidFields
from tenants.fields import name_check
from tenants.models.organisations import DEFAULT

Value = TypeVar("Value")


class Blame(StrEnum):
    """The reason why a document cannot be applied: invalid content, missing permission, or a conflict."""

    INVALID = "invalid"
    FORBIDDEN = "forbidden"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class Problem:
    blame: Blame
    field: str
    message: str


@dataclass(slots=True)
class Overlay:
    """One document laid over one state, for one actor. `problems` collects everything that is not possible."""

    actor: Actor
    options: ApplyOptions
    before: State
    problems: list[Problem] = field(default_factory=list)
    owner: str | None = None  # the document's

    def after(self, document: ConfigDocument) -> State:
        self.owner = document.owner
        pruning = Pruning(self.actor, self.options, document)
        self._blame(Blame.CONFLICT, pruning.problems(self.before.organisations))
        policy = None if document.policy is None else document.policy.said()
        organisations = dict(self.before.organisations)
        for slug, config in (document.organisations or {}).items():
            if (current := self._found(slug)) is not None:
                organisations[slug] = self._organisation(current, config)
        return replace(
            self.before,
            policy=self._operators_only("policy", self.before.policy, policy),
            organisations=dict(sorted(pruning.after(organisations).items())),
        )

    def _found(self, slug: str) -> OrganisationState | None:
        """Return the organisation.

        For actors who cannot create one, a foreign and a missing organisation look the same.
        """
        current = self.before.organisations.get(slug)
        if current is None and self.actor.is_operator:
            return OrganisationState(slug, name=slug)
        if current is None:
            self._problem(Blame.INVALID, f"organisations.{slug}", "there is no such organisation")
        return current

    def _organisation(self, current: OrganisationState, config: OrganisationConfig) -> OrganisationState:
        where, label = f"organisations.{current.slug}", label_of(self.actor, current.slug, self.owner)
        is_new = current.id is None
        claim = label if claims_organisation(self.actor, config, is_new=is_new) else ""
        bounds = None if config.bounds is None else config.bounds.model_dump(exclude_none=True)
        limits = None if config.limits is None else config.limits.model_dump(exclude_unset=True)
        return replace(
            current,
            name=self._name(f"{where}.name", current.name, config.name),
            state=self._operators_only(f"{where}.state", current.state, config.state),
            policy=current.policy if config.policy is None else config.policy.said(),
            bounds=self._operators_only(f"{where}.bounds", current.bounds, bounds),
            limits=self._operators_only(f"{where}.limits", current.limits, limits),
            owner=self._owner(where, current.owner, claim, may_adopt=is_new),
            namespaces=self._namespaces(f"{where}.namespaces", current.namespaces, config.namespaces, label),
        )

    def _namespaces(
        self,
        where: str,
        current: Mapping[str, NamespaceState],
        desired: Mapping[str, NamespaceConfig] | None,
        label: str,
    ) -> Mapping[str, NamespaceState]:
        if desired is None:
            return current
        changed = {
            slug: self._namespace(f"{where}.{slug}", current.get(slug, NamespaceState(slug)), config, label)
            for slug, config in desired.items()
        }
        return dict(sorted({**current, **changed}.items()))

    def _namespace(self, where: str, current: NamespaceState, config: NamespaceConfig, label: str) -> NamespaceState:
        claim = label if claims_namespace(current.slug, config) else ""
        group = self._operators_only(f"{where}.group", current.group, config.group)
        if group != current.group and group not in self.before.groups:
            self._problem(Blame.INVALID, f"{where}.group", f"there is no agent group {group}")
        return replace(
            current,
            name=self._name(f"{where}.name", current.name, config.name, may_be_empty=True),
            group=group,
            policy=current.policy if config.policy is None else config.policy.said(),
            owner=self._owner(where, current.owner, claim, may_adopt=current.id is None or current.slug == DEFAULT),
        )

    def _owner(self, where: str, current_owner: str, claim: str, *, may_adopt: bool) -> str:
        """Return the label after a claim. A takeover needs consent.

        Otherwise two files would revert each other's changes, and --prune deletes what the file owns. `may_adopt`: an
        object without an owner needs no consent, because the file creates it or --prune never deletes it.
        """
        if not claim or current_owner == claim:
            return current_owner
        if self.options.take_ownership or (may_adopt and not current_owner):
            return claim
        self._problem(Blame.CONFLICT, where, refusal(current_owner, claim))
        return current_owner

    def _operators_only(self, where: str, current: Value, desired: Any) -> Value:
        """Return the new value if the actor may set it.

        Anyone may repeat the current value, so one file can serve both.
        """
        if desired is None or desired == current:
            return current
        if not self.actor.is_operator:
            self._problem(Blame.FORBIDDEN, where, "only operators of this fleet may change this")
            return current
        new_value: Value = desired
        return new_value

    def _name(self, where: str, current: str, desired: str | None, *, may_be_empty: bool = False) -> str:
        try:
            return current if desired is None else name_check(desired, where, may_be_empty=may_be_empty)
        except InvalidFields as error:
            self._blame(Blame.INVALID, error.problems)
            return current

    def _blame(self, blame: Blame, problems: Iterable[FieldProblem]) -> None:
        self.problems += [Problem(blame, problem.field, problem.message) for problem in problems]

    def _problem(self, blame: Blame, where: str, message: str) -> None:
        self.problems.append(Problem(blame, where, message))
