"""Declares operations: the access rule next to the path, and everything that all operations share.

An operation cannot be declared without a rule. Before a view runs, its caller is authenticated and counted, and the
organisation and namespace of its path are looked up under the rule. If one is not found, the view is never called.
"""

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router
from pydantic import BaseModel

from controlplane.api.errors import BadQuery, ForeignTag, shown
from controlplane.api.etags import etag_of, if_none_match_matches, parse_if_match
from controlplane.api.idempotency_key import HEADER, idempotency_key, request_fingerprint
from controlplane.api.schemas.base import one_time_secrets
from tenants import access
from tenants.actor import Actor
from tenants.levels import Place
from tenants.models import Namespace, Organisation
from tenants.revisions import Expected
from tenants.services.idempotency import KeptAnswer, asked, once

JSON = "application/json"
REPLAYED = "Idempotency-Replayed"
_OURS = re.compile(r'"(0|[1-9][0-9]{0,8})"')
FOUND_HERE = ("org", "ns")  # path parameters that are looked up for the view


@dataclass(frozen=True, slots=True)
class Call:
    """One request to an operation, with the objects that its path names."""

    request: HttpRequest
    actor: Actor
    place: Place
    seen: Expected = frozenset()  # empty: the operation uses no If-Match, and nothing would match it

    @property
    def organisation(self) -> Organisation:
        if self.place.organisation is None:
            raise LookupError("this operation's path names no organisation")
        return self.place.organisation

    @property
    def namespace(self) -> Namespace:
        if self.place.namespace is None:
            raise LookupError("this operation's path names no namespace")
        return self.place.namespace

    def expected(self) -> Expected:
        """Return the revision in If-Match. Raise LookupError if the operation is not declared with `wants_if_match`."""
        if self.seen == frozenset():
            raise LookupError("this operation was not declared with wants_if_match")
        return self.seen


@dataclass(frozen=True, slots=True)
class Answer:
    body: BaseModel | None = None
    status: int = 200
    revision: int | None = None  # for the ETag
    location: str | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """A declared operation, for the description and for code that iterates over all operations."""

    method: str
    path: str
    rule: access.Rule
    name: str
    tag: str
    status: int  # of a successful answer
    wants_if_match: bool = False
    gives_etag: bool = False
    changes_nothing: bool = False  # a query with a body: a repeated request is computed again
    csv_heads: tuple[str, ...] = ()  # columns of the table for `?format=csv`
    refuses: tuple[str, ...] = ()  # kinds of problems beyond those that all operations like it have
    secrets: tuple[str, ...] = ()  # members that are shown once, and null in a repeated answer

    @property
    def is_repeatable(self) -> bool:
        """Return whether an Idempotency-Key makes sending it twice the same as sending it once."""
        return self.method in ("POST", "PUT")


OPERATIONS: list[Operation] = []
View = Callable[..., Answer | HttpResponse]


@dataclass(frozen=True, slots=True)
class Group:
    """The operations of one subject."""

    tag: str
    router: Router = field(default_factory=Router)

    def get(
        self, path: str, rule: access.Rule, returns: type[BaseModel] | None, **options: Any
    ) -> Callable[[View], View]:
        return self._add("GET", path, rule, 200, returns, options)

    def post(
        self, path: str, rule: access.Rule, returns: type[BaseModel] | None, *, status: int = 201, **options: Any
    ) -> Callable[[View], View]:
        return self._add("POST", path, rule, status, returns, options)

    def put(self, path: str, rule: access.Rule, returns: type[BaseModel], **options: Any) -> Callable[[View], View]:
        return self._add("PUT", path, rule, 200, returns, options)

    def patch(self, path: str, rule: access.Rule, returns: type[BaseModel], **options: Any) -> Callable[[View], View]:
        return self._add("PATCH", path, rule, 200, returns, options)

    def delete(
        self, path: str, rule: access.Rule, returns: type[BaseModel] | None = None, *, status: int = 204, **options: Any
    ) -> Callable[[View], View]:
        return self._add("DELETE", path, rule, status, returns, options)

    def _add(
        self,
        method: str,
        path: str,
        rule: access.Rule,
        status: int,
        returns: type[BaseModel] | None,
        options: dict[str, Any],
    ) -> Callable[[View], View]:
        """Declare an operation. `options`: further fields of Operation."""

        def declare(view: View) -> View:
            secrets = one_time_secrets(returns)
            operation = Operation(method, path, rule, view.__name__, self.tag, status, secrets=secrets, **options)
            OPERATIONS.append(operation)
            summary, _, rest = inspect.cleandoc(view.__doc__ or "").partition("\n")
            self.router.add_api_operation(
                path,
                [method],
                _served(view, operation),
                operation_id=operation.name,
                tags=[self.tag],
                summary=summary.removesuffix("."),
                description=rest.strip() or summary,
                response={status: returns},
                by_alias=True,  # as `rendered` writes it
            )
            return view

        return declare


def _served(view: View, operation: Operation) -> Callable[..., HttpResponse]:
    """Return the view as ninja calls it: with a request and the path's own parameters."""
    path, rule = operation.path, operation.rule
    parameters = list(inspect.signature(view).parameters.values())[1:]
    path_parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=str) for name in _found_here(path)
    ]
    known_query = {
        _query_name(parameter)
        for parameter in parameters
        if f"{{{parameter.name}}}" not in path and parameter.name != "body"
    }

    def serve(request: HttpRequest, **values: Any) -> HttpResponse:
        _query_names_check(request, known_query)
        actor: Actor = request.auth  # type: ignore[attr-defined]
        scope = _place(actor, rule, {name: values.pop(name) for name in FOUND_HERE if name in values})
        call = Call(request, actor, scope, _seen(request)) if operation.wants_if_match else Call(request, actor, scope)

        def perform() -> HttpResponse:
            answer = view(call, **values)
            if isinstance(answer, HttpResponse):
                return answer
            assert (answer.revision is not None) is operation.gives_etag, operation.name
            return rendered(answer, request)

        return _once(call, operation, perform) if operation.is_repeatable else perform()

    head = inspect.Parameter("request", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=HttpRequest)
    tail = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    serve.__signature__ = inspect.Signature([head, *path_parameters, *tail])  # type: ignore[attr-defined]
    serve.__name__, serve.__doc__ = view.__name__, view.__doc__
    return serve


def _seen(request: HttpRequest) -> Expected:
    tags = parse_if_match(request.headers.get("If-Match")).tags
    if tags is None:
        return None
    revisions = frozenset(int(tag[1:-1]) for tag in tags if _OURS.fullmatch(tag))
    if not revisions:
        raise ForeignTag(min(tags))
    return revisions


def _found_here(path: str) -> list[str]:
    return [name for name in FOUND_HERE if f"{{{name}}}" in path]


def _place(actor: Actor, rule: access.Rule, slugs: dict[str, str]) -> Place:
    if "org" not in slugs:
        access.permit_anywhere(actor, rule)
        return Place()
    organisation = access.organisation_for(actor, slugs["org"], rule)
    if "ns" not in slugs:
        return Place(organisation)
    return Place(organisation, access.namespace_for(actor, organisation, slugs["ns"]))


def _query_name(parameter: inspect.Parameter) -> str:
    """Return the parameter's name for callers: `from` cannot name a Python argument."""
    aliases = (getattr(metadata, "alias", None) for metadata in getattr(parameter.annotation, "__metadata__", ()))
    return next((alias for alias in aliases if alias), parameter.name)


def _query_names_check(request: HttpRequest, known: set[str]) -> None:
    """Refuse unknown parameters: a misspelt one would silently change the request."""
    for name in request.GET:
        if name not in known:
            there_are = f"there are {', '.join(sorted(known))}" if known else "it takes none"
            raise BadQuery(shown(name) or "query", f"is no parameter of this operation; {there_are}")


def rendered(answer: Answer, request: HttpRequest) -> HttpResponse:
    headers = {} if answer.location is None else {"Location": answer.location}
    if answer.revision is not None:
        headers["ETag"] = etag_of(answer.revision)
        if request.method == "GET" and if_none_match_matches(request.headers.get("If-None-Match"), answer.revision):
            return HttpResponse(status=304, headers=headers)
    body = b"" if answer.body is None else answer.body.model_dump_json(by_alias=True).encode()
    return HttpResponse(body, status=answer.status, content_type=JSON if body else None, headers=headers)


def _once(call: Call, operation: Operation, perform: Callable[[], HttpResponse]) -> HttpResponse:
    request = call.request
    key = idempotency_key(request.headers.get(HEADER))
    if key is None:
        return perform()
    digest = request_fingerprint(
        method=request.method or "",
        path=request.path,
        query=request.META.get("QUERY_STRING", ""),
        body=request.body,
    )
    fingerprint, now = bytes.fromhex(digest), timezone.now()
    if operation.changes_nothing:
        return asked(actor=call.actor, key=key, fingerprint=fingerprint, now=now, perform=perform)

    def performed() -> tuple[HttpResponse, KeptAnswer]:
        response = perform()
        headers = {name: response[name] for name in ("Content-Type", "ETag", "Location") if response.has_header(name)}
        body = _without(operation.secrets, response.content.decode())
        return response, KeptAnswer(response.status_code, body, headers)

    answer = once(actor=call.actor, key=key, fingerprint=fingerprint, now=now, perform=performed)
    if isinstance(answer, HttpResponse):
        return answer
    body = _without(operation.secrets, answer.body)  # the previous version stored secrets, too
    return HttpResponse(body.encode(), status=answer.status, headers={**answer.headers, REPLAYED: "true"})


def _without(secrets: tuple[str, ...], body: str) -> str:
    if not secrets:
        return body
    return json.dumps({**json.loads(body), **dict.fromkeys(secrets)}, ensure_ascii=False, separators=(",", ":"))
