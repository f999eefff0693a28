"""Strict parsing of bodies and query strings for django-ninja. The schemas check the values.

Ninja wraps whatever `parse_body` raises in its own HttpError(400); the reason is its `__cause__`.
"""

import re
from typing import Any
from urllib.parse import unquote_to_bytes

from django.http import HttpRequest
from django.utils.datastructures import MultiValueDict
from ninja.parser import Parser

from controlplane.api.errors import BadJson, BadQuery, UnsupportedMediaType, shown
from controlplane.api.strict_json import parse

_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class StrictParser(Parser):
    def parse_body(self, request: HttpRequest) -> dict[str, Any]:
        media_type_check(request)
        value = parse(request.body)
        if not isinstance(value, dict):
            raise BadJson("body", "must be a JSON object")
        return value

    def parse_querydict(
        self, data: MultiValueDict[str, Any], list_fields: list[str], request: HttpRequest
    ) -> dict[str, Any]:
        query_check(request.META.get("QUERY_STRING", ""))
        for name, values in data.lists():
            if "\0" in name or any("\0" in value for value in values if isinstance(value, str)):
                raise BadQuery(shown(name) or "query", "contains a NUL character")
            if len(values) > 1 and name not in list_fields:
                raise BadQuery(shown(name) or "query", f"is given {len(values)} times: give it once")
        return super().parse_querydict(data, list_fields, request)


def media_type_check(request: HttpRequest) -> None:
    kind = request.content_type or ""
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        actual = f", not {shown(kind)}" if kind else ""
        raise UnsupportedMediaType("Content-Type", f"must be application/json{actual}")
    charset = (request.content_params or {}).get("charset", "utf-8")
    if charset.lower() != "utf-8":
        raise UnsupportedMediaType("Content-Type", f"must have the charset utf-8, not {shown(charset)}")


def query_check(query: str) -> None:
    """Refuse malformed queries: Django would replace unreadable parts, so a typing error would change the request."""
    for part in query.split("&"):
        name = shown(part.partition("=")[0]) or "query"
        if _BROKEN_ESCAPE.search(part):
            raise BadQuery(name, "has a % that is not followed by two hexadecimal digits")
        try:
            unquote_to_bytes(part).decode()
        except UnicodeDecodeError:
            raise BadQuery(name, "is not UTF-8") from None
