"""A client of the REST API in tests: bearer token, JSON both ways, and the organisation it works on."""

import json
from dataclasses import dataclass
from typing import Any

from django.http import HttpResponse
from django.test import Client

from tenants.actor import SYSTEM
from tenants.models import Namespace, Organisation, User
from tenants.services.keys import key_create, operator_token_create
from tenants.services.namespaces import namespace_create
from tenants.services.organisations import organisation_create

REST_SCOPES = ("stats:read", "policy:read", "policy:write", "admin")


@dataclass(frozen=True, slots=True)
class Api:
    """Paths are below /api/v1."""

    token: str | None
    client: Client

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> HttpResponse:
        """`If_Match="…"` becomes the header If-Match. Bytes go as they are, everything else as JSON."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token is not None:
            named.setdefault("Authorization", f"Bearer {self.token}")
        kind = named.pop("Content-Type", "application/json")
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return self.client.generic(method, f"/api/v1{path}", data, content_type=kind, headers=named)  # type: ignore[return-value]

    def get(self, path: str, **headers: str) -> HttpResponse:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> HttpResponse:
        return self.ask("POST", path, {} if body is None else body, **headers)

    def put(self, path: str, body: Any, *, seen: int | None = None, **headers: str) -> HttpResponse:
        return self.ask("PUT", path, body, **_seen(seen), **headers)

    def patch(self, path: str, body: Any, *, seen: int | None = None, **headers: str) -> HttpResponse:
        return self.ask("PATCH", path, body, **_seen(seen), **headers)

    def delete(self, path: str, *, seen: int | None = None, **headers: str) -> HttpResponse:
        return self.ask("DELETE", path, **_seen(seen), **headers)


def said(response: HttpResponse) -> Any:
    """What a response says, out of its JSON."""
    return json.loads(response.content)


def _seen(revision: int | None) -> dict[str, str]:
    return {} if revision is None else {"If_Match": f'"{revision}"'}


def make_organisation(slug: str = "acme", *namespaces: str) -> Organisation:
    organisation = organisation_create(actor=SYSTEM, slug=slug, name=slug.title())
    for name in namespaces:
        namespace_create(actor=SYSTEM, organisation=organisation, slug=name)
    return organisation


def make_key(organisation: Organisation, *scopes: str, namespaces: "list[Namespace] | None" = None) -> str:
    """Its secret. Without scopes named: all that REST knows."""
    return key_create(
        actor=SYSTEM, organisation=organisation, name="test", scopes=scopes or REST_SCOPES, namespaces=namespaces
    )[1].secret


def make_operator_token(user: User, *scopes: str) -> str:
    return operator_token_create(actor=SYSTEM, user=user, name="test", scopes=scopes or REST_SCOPES)[1].secret
