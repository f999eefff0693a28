"""Parse the scopes that people type: `fleet`, `acme`, `acme/chat`."""

from dataclasses import dataclass

from controlplane.client.errors import ClientError
from controlplane.client.rest import segment

FLEET = "fleet"


@dataclass(frozen=True, slots=True)
class Place:
    """A level of the hierarchy. Empty: the fleet. An organisation with the slug fleet is written `fleet/`."""

    organisation: str = ""
    namespace: str = ""

    @property
    def name(self) -> str:
        if not self.organisation:
            return FLEET
        return f"{self.organisation}/{self.namespace}" if self.namespace else self.organisation

    @property
    def path(self) -> str:
        if not self.organisation:
            return ""
        path = f"/orgs/{segment(self.organisation)}"
        return f"{path}/namespaces/{segment(self.namespace)}" if self.namespace else path


def place_read(text: str | None) -> Place:
    if text in (None, "", FLEET):
        return Place()
    organisation, _, namespace = str(text).partition("/")
    if not organisation or "/" in namespace:
        raise ClientError(f"{text!r} is no place: write acme for an organisation, acme/chat for a namespace of it")
    return Place(organisation, namespace)


def organisation_read(text: str | None) -> Place:
    scope = place_read(text)
    if not scope.organisation or scope.namespace:
        raise ClientError("this wants an organisation, as in: acme")
    return scope


def namespace_read(text: str | None) -> Place:
    scope = place_read(text)
    if not scope.namespace:
        raise ClientError("this wants a namespace, as in: acme/chat")
    return scope
