"""Actors: a person, a key or the system, with its permissions. No I/O."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    INFER = "infer"
    STATS_READ = "stats:read"
    POLICY_READ = "policy:read"
    POLICY_WRITE = "policy:write"
    ADMIN = "admin"


REST_SCOPES = frozenset({Scope.STATS_READ, Scope.POLICY_READ, Scope.POLICY_WRITE, Scope.ADMIN})
INCLUDED = {
    Scope.POLICY_WRITE: frozenset({Scope.POLICY_READ}),
    Scope.ADMIN: frozenset({Scope.STATS_READ, Scope.POLICY_READ, Scope.POLICY_WRITE}),
}
ROLE_SCOPES = {
    "viewer": frozenset({Scope.STATS_READ, Scope.POLICY_READ}),
    "editor": frozenset({Scope.STATS_READ, Scope.POLICY_READ, Scope.POLICY_WRITE}),
    "admin": REST_SCOPES,
}


class ActorKind(StrEnum):
    OPERATOR = "operator"
    OPERATOR_TOKEN = "operator-token"  # noqa: S105
    MEMBER = "member"
    KEY = "key"
    VISITOR = "visitor"  # a person with only a one-time link
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Actor:
    """The author of an action.

    `organisation_id` None: the fleet (operators, system). `namespace_ids` None: not bound.
    """

    kind: ActorKind
    id: str
    name: str
    scopes: frozenset[Scope]
    organisation_id: int | None = None
    namespace_ids: frozenset[int] | None = None
    address: str = ""
    request_id: str = ""

    @property
    def is_operator(self) -> bool:
        return self.organisation_id is None and self.kind is not ActorKind.VISITOR

    @property
    def public_name(self) -> str:
        """The name for an organisation's members, who must not learn which operator acted."""
        return "an operator" if self.is_operator else self.name

    def has(self, scope: Scope) -> bool:
        return scope in self.scopes

    def may_see(self, namespace_id: int) -> bool:
        return self.namespace_ids is None or namespace_id in self.namespace_ids


def scopes_expanded(scopes: Iterable[str]) -> frozenset[Scope]:
    """Return the scopes with all scopes that they include."""
    granted = {Scope(scope) for scope in scopes}
    return frozenset(granted.union(*(INCLUDED.get(scope, frozenset()) for scope in granted)))


SYSTEM = Actor(ActorKind.SYSTEM, "system", "Luminet", REST_SCOPES)
