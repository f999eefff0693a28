"""The descriptions of problems: each kind once, and the kinds that an operation can return."""

from collections.abc import Iterator

from controlplane.api.openapi_words import Document, reference, untitled
from controlplane.api.problem_json import CONTENT_TYPE, problem
from controlplane.api.problems import CHALLENGE, MEANINGS
from controlplane.api.routing import Operation
from controlplane.api.schemas.problems import Problem

HEADERS = {
    "unauthenticated": [*CHALLENGE],
    "rate-limited": ["Retry-After", "RateLimit", "RateLimit-Policy"],
    "unavailable": ["Retry-After"],
    "busy": ["Retry-After"],
    "overloaded": ["Retry-After"],
}
EXAMPLES: dict[str, tuple[str, str]] = {
    "invalid": ("policy.ttl_seconds", "Input should be less than or equal to 604800"),
    "forbidden": ("scope", "policy:write is needed"),
    "conflict": ("slug", "'acme' is the slug of another organisation; choose a different one"),
    "stale": ("If-Match", "expected revision 6, found 7: read it again, then decide anew"),
    "precondition-required": ("If-Match", 'is missing: send the ETag of the revision you change, as in "7"'),
    "malformed": ("body", "Expecting ',' delimiter at line 1, column 18"),
    "refused": (
        "policy.kv_dtype",
        "has no passing quality result: fp8_e4m3 is unresolved on luminet-demo at e8f2213dbc70 on torch-cpu; "
        "there is bf16, fp8, int8",
    ),
    "media-type": ("Content-Type", "must be application/json, not text/plain"),
    "too-large": ("body", "is larger than the 1048576 bytes taken here"),
}


def problem_kinds(operation: Operation, *, has_body: bool, has_query: bool) -> Iterator[str]:
    """Yield every kind of problem that the operation can return."""
    yield from ("malformed", "unauthenticated", "rate-limited", "unavailable", *operation.refuses)
    if operation.rule.scope is not None:
        yield "forbidden"
    if "{" in operation.path:
        yield "not-found"
    if operation.method in ("POST", "PUT", "PATCH"):
        yield "conflict"
    if operation.wants_if_match:
        yield from ("stale", "precondition-required")
    if has_body:
        yield from ("too-large", "media-type")
    if has_body or has_query:
        yield "invalid"


def problem_schemas() -> Document:
    schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    inner = schema.pop("$defs")
    return {name: untitled(definition) for name, definition in {**inner, "Problem": schema}.items()}


def problem_response(kind: str) -> Document:
    status, title, meaning = MEANINGS[kind]
    kinds = [candidate for candidate, entry in MEANINGS.items() if entry[0] == status and candidate != kind]
    also = f" Also with this status: {', '.join(kinds)}." if kinds else ""  # operations refer to one for each
    response: Document = {
        "description": f"{title}: {meaning}{also}",
        "content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}, "example": _example(kind)}},
    }
    headers = {name: reference("headers", name) for name in HEADERS.get(kind, [])}
    return response | ({"headers": headers} if headers else {})


def _example(kind: str) -> Document:
    status, title, meaning = MEANINGS[kind]
    field, message = EXAMPLES.get(kind, (None, meaning))
    errors = [] if field is None else [(field, message)]
    detail = message if field is None else f"{field}: {message}"
    return problem(status, type=kind, title=title, detail=detail, errors=errors) | {"request_id": "4f6d3c1c9b8e4a0f"}
