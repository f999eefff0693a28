"""`extra_body` in a request: OpenAI's Python client merges it into the body, its JavaScript client sends it as a field.

Examples in guides use it for both, so a request with the field means the same as one with its contents.
"""

from typing import Any, Final

from engine_agent.http.errors import invalid
from engine_agent.http.strict_json import read_object

EXTRA_BODY: Final = "extra_body"


def read_request(body: bytes) -> dict[str, Any]:
    """Return the request with the contents of `extra_body` among its own fields. Raise ApiError if it is invalid."""
    return merge_extra_body(read_object(body))


def merge_extra_body(request: dict[str, Any]) -> dict[str, Any]:
    if EXTRA_BODY not in request:
        return request
    fields = {name: value for name, value in request.items() if name != EXTRA_BODY}
    extra = request[EXTRA_BODY]
    if extra is None:
        return fields
    if not isinstance(extra, dict):
        raise invalid(EXTRA_BODY, "must be an object of further parameters")
    if EXTRA_BODY in extra:
        raise invalid(f"{EXTRA_BODY}.{EXTRA_BODY}", "must not contain itself: put its parameters into the outer one")
    for name in extra.keys() & fields.keys():
        _check_same(name, fields[name], extra[name])
    return fields | extra


def _check_same(name: str, value: Any, extra_value: Any) -> None:
    # 1 and true are equal in Python, but not the same parameter.
    if type(value) is not type(extra_value) or value != extra_value:
        printable_name = ascii(name[:80])[1:-1]
        raise invalid(printable_name, f"has one value in the request and another in {EXTRA_BODY}: send it once")
