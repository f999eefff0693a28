"""Random requests to every operation: what schemathesis makes of the description, mostly about things that are there.

Tests send them inside one process, `make bench` to a running stack: whoever sends gives a function that does. The
description is the one people have, docs/openapi.json; so nothing here needs Django.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as with_seed
from hypothesis import strategies as st
from openapi_schema_validator import OAS31Validator, oas31_format_checker
from requests import Request

from tests.web.openapi import SNAPSHOT

if TYPE_CHECKING:  # importing schemathesis takes a second, also of who only collects
    from schemathesis import Case

JSON, PROBLEM = "application/json", "application/problem+json"
EVERY_SCOPE = ("infer", "stats:read", "policy:read", "policy:write", "admin")
NAMING_A_FIELD = (400, 409, 412, 413, 415, 422, 428)  # refusals that have to say which part is to blame
OURS = ("Authorization", "Content-Length", "Accept-Encoding")  # headers that whoever sends sets
POLICY = {"policy": {"ttl_seconds": 600}}


@dataclass(frozen=True, slots=True)
class Sent:
    """`target` is path and query, as they stand in the request's first line."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answered:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


Send = Callable[[Sent], Answered]


@dataclass(frozen=True, slots=True)
class World:
    """One of everything a path can name, and a token of every kind of caller. `ids` goes by the parameters' names."""

    ids: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, str | None] = field(default_factory=dict)


def call(send: Send, token: str | None, method: str, path: str, body: Any = None, **headers: str) -> Answered:
    """`If_Match="*"` becomes the header If-Match. Paths are below /api/v1."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    named |= {} if token is None else {"Authorization": f"Bearer {token}"}
    named |= {} if body is None else {"Content-Type": JSON}
    return send(Sent(method, f"/api/v1{path}", named, b"" if body is None else json.dumps(body).encode()))


def world_make(send: Send, operator: str, slug: str) -> World:
    """Made through the API itself; `slug` is the organisation's, and every other name is made from it."""

    def made(method: str, path: str, body: Any = None, **headers: str) -> Answered:
        answer = call(send, operator, method, path, body, **headers)
        assert answer.status < 300, (method, path, answer.status, answer.body)
        return answer

    home, away = f"/orgs/{slug}", f"/orgs/{slug}-away"
    made("PUT", "/policy", POLICY, If_Match="*")  # first: whatever the fleet has reserved would leave no room
    for name in (slug, f"{slug}-away"):
        made("POST", "/orgs", {"slug": name, "name": name})
    made("POST", f"{home}/namespaces", {"slug": "support"})
    made("POST", "/agent-groups", {"slug": f"{slug}-spare", "name": "Spare"})
    for path in (home, f"{home}/namespaces/support"):
        made("PUT", f"{path}/policy", POLICY, If_Match="*")
    pin = made("POST", f"{home}/namespaces/support/pins", {"name": "p", "model": "m", "prompt": "Hello"})
    member = made("POST", f"{home}/members", {"email": f"{slug}@acme.example", "role": "viewer"})
    purge = made("POST", f"{home}/namespaces/support/purge", {})
    key = made("POST", f"{home}/keys", {"name": "spare", "scopes": ["infer"]})
    token = made("POST", "/operator-tokens", {"name": "spare", "scopes": ["policy:read"]})
    ids = {
        "org": slug,
        "ns": "support",
        "slug": f"{slug}-spare",
        "number": "1",
        "pin_id": pin.document["id"],
        "member_id": member.document["id"],
        "operation_id": purge.document["operation"],
        "key_id": key.document["id"],
        "token_id": token.document["id"],
    }

    def key_of(path: str, *scopes: str, **more: Any) -> str:
        return str(made("POST", f"{path}/keys", {"name": "k", "scopes": scopes, **more}).document["secret"])

    tokens: dict[str, str | None] = {
        "nobody": None,
        "garbage": "lmk_" + "x" * 49,
        "operator": operator,
        "operator, reading only": token.document["secret"],
        "key with every scope": key_of(home, *EVERY_SCOPE),
        "key, policy:read only": key_of(home, "policy:read"),
        "key, infer only": key_of(home, "infer"),
        "key bound to a namespace": key_of(home, "policy:write", namespaces=["support"]),
        "key of a suspended organisation": key_of(away, *EVERY_SCOPE),
    }
    made("PATCH", away, {"state": "suspended"}, If_Match="*")
    return World(ids, tokens)


@dataclass(frozen=True, slots=True)
class Target:
    """One operation, as described."""

    name: str
    method: str
    path: str
    described: dict[str, Any]
    operation: Any = field(repr=False)

    def cases(self) -> "st.SearchStrategy[Drawn]":
        """As the description allows and, as often, as it does not."""
        from schemathesis import GenerationMode

        takes = self.described["parameters"] or "requestBody" in self.described
        modes = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE] if takes else [GenerationMode.POSITIVE]
        kinds = [self.operation.as_strategy(generation_mode=mode) for mode in modes]
        return st.builds(Drawn, st.one_of(kinds), st.integers(0, 9), st.integers(0, 9))


@dataclass(frozen=True, slots=True)
class Drawn:
    """What was drawn for no world in particular. Eight of ten are about what is there, and six of ten would change
    whichever revision it has."""

    case: "Case[Any]"
    place: int
    tag: int

    def sent(self, world: World, token: str | None) -> Sent:
        case = self.case
        if self.place < 8:
            case.path_parameters.update({name: world.ids[name] for name in case.path_parameters if name in world.ids})
        if self.tag < 6 and "If-Match" in case.headers:
            case.headers["If-Match"] = "*"
        return _sent(case, {} if token is None else {"Authorization": f"Bearer {token}"})


@cache
def drawn(target_name: str, count: int, seed: int) -> tuple[Drawn, ...]:
    """The same ones for the same seed."""
    found: list[Drawn] = []

    @settings(
        max_examples=count, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=[*HealthCheck]
    )
    @with_seed(seed)
    @given(target_of(target_name).cases())
    def draw(one: Drawn) -> None:
        found.append(one)

    draw()
    return tuple(found)


def target_of(name: str) -> Target:
    return next(one for one in targets() if one.name == name)


def _sent(case: "Case[Any]", more: Mapping[str, str]) -> Sent:
    prepared = Request(**case.as_transport_kwargs(base_url="http://luminet/api/v1")).prepare()
    named = {name: value for name, value in prepared.headers.items() if name not in OURS}
    texts = {name: value.decode("latin-1") if isinstance(value, bytes) else value for name, value in named.items()}
    body = prepared.body or b""
    raw = body if isinstance(body, bytes) else str(body).encode()
    return Sent(prepared.method or "GET", prepared.path_url, {**texts, **more}, raw)


@cache
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SNAPSHOT.read_text(encoding="utf-8"))
    return found


@cache
def targets() -> tuple[Target, ...]:
    """Every operation, in the order of the description."""
    import schemathesis
    from schemathesis.core.result import Ok

    found = schemathesis.openapi.from_dict(document())
    every = [result.ok() for result in found.get_all_operations() if isinstance(result, Ok)]
    operations = {(one.method.upper(), one.path): one for one in every}
    return tuple(
        Target(described["operationId"], method.upper(), path, described, operations[method.upper(), path])
        for path, methods in document()["paths"].items()
        for method, described in methods.items()
    )


def complaints(target: Target, answer: Answered) -> Iterator[str]:
    """What the description did not lead one to expect of this answer."""
    if answer.status >= 500:
        yield f"status {answer.status}"
        return
    is_another_path = "{" in target.path and answer.status in (404, 405)  # random names can make it one, or none
    if not is_another_path and str(answer.status) not in target.described["responses"]:
        yield f"status {answer.status} is not described"
        return
    if answer.status >= 400:
        yield from _problem_complaints(answer)
    else:
        yield from _success_complaints(target, answer)


def _problem_complaints(answer: Answered) -> Iterator[str]:
    if answer.headers.get("Content-Type") != PROBLEM:
        yield f"{answer.status} is {answer.headers.get('Content-Type')}"
        return
    found = answer.document
    yield from _misfits("Problem", found)
    if answer.status in NAMING_A_FIELD and not all(one["field"] for one in found["errors"] or [{"field": ""}]):
        yield f"{answer.status} names no field: {found['detail']}"


def _success_complaints(target: Target, answer: Answered) -> Iterator[str]:
    described = target.described["responses"].get(str(answer.status), {})
    if "content" not in described:
        if answer.body:
            yield f"{answer.status} has a body"
        return
    if "format=csv" in target.described["description"] and answer.headers.get("Content-Type", "").startswith(
        "text/csv;"
    ):
        return
    if answer.headers.get("Content-Type") != JSON:
        yield f"{answer.status} is {answer.headers.get('Content-Type')}"
    yield from _misfits(described["content"][JSON]["schema"]["$ref"].rpartition("/")[2], answer.document)


def _misfits(schema: str, value: Any) -> Iterator[str]:
    yield from (f"{schema}: {error.message[:200]}" for error in _validator(schema).iter_errors(value))


@cache
def _validator(schema: str) -> OAS31Validator:
    whole = {"$ref": f"#/components/schemas/{schema}", "components": document()["components"]}
    return OAS31Validator(whole, format_checker=oas31_format_checker)
