"""Strict JSON: one meaning for every document, and nothing that PostgreSQL or another parser rejects.

Schemas check the values. parser.py uses this for django-ninja.
"""

import json
import re

from controlplane.api.errors import BadJson, shown
from engine_agent.contracts.strict_json import UnsafeJson, loads

MAX_DEPTH = 32
LARGEST_INTEGER = 2**63 - 1
# Possessive, so that no document causes backtracking; json.loads reports a missing closing quote.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_SQUARE = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def parse(body: bytes, *, max_depth: int = MAX_DEPTH) -> object:
    """Return the value of `body`, or raise BadJson."""
    text = _decoded(body)
    if _is_too_deep(body, max_depth):
        raise BadJson("body", f"is nested more than {max_depth} levels deep")
    try:
        return loads(text, largest_integer=LARGEST_INTEGER, allows_nul=False)
    except json.JSONDecodeError as error:
        raise BadJson("body", f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except UnsafeJson as problem:
        opening = "has a name that " if problem.is_name else ""
        raise BadJson(shown(".".join(map(str, problem.path))) or "body", opening + problem.message) from None


def _decoded(body: bytes) -> str:
    if not body.strip(b" \t\r\n"):
        raise BadJson("body", "is empty: send a JSON document")
    if body.startswith(b"\xef\xbb\xbf"):
        raise BadJson("body", "begins with a byte order mark: send UTF-8 without one")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise BadJson("body", f"is not UTF-8 at byte {error.start}") from None


def _is_too_deep(body: bytes, max_depth: int) -> bool:
    """Return whether `body` is nested too deeply for json.loads, whose parser recurses for each level.

    Without strings and scalars only brackets remain, and each pass removes one level of them.
    """
    brackets = _STRING.sub(b"", body).translate(_SQUARE, _NOT_BRACKETS)
    for _ in range(max_depth):
        brackets = brackets.replace(b"[]", b"")
    return b"[]" in brackets or brackets.count(b"[") > max_depth
