"""JSON Schema as sentences and rows, for the reference for people."""

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from controlplane.api.openapi_words import Document
from tenants.models.organisations import SLUG_PATTERN

_CODE = re.compile(r"`([^`]+)`")
PATTERNS = {SLUG_PATTERN: "1 to 63 of a-z, 0-9 and inner hyphens"}
FORMATS = {"uuid": "UUID", "date-time": "time, as in 2036-01-01T00:00:00Z"}


@dataclass(frozen=True, slots=True)
class Row:
    """A parameter, or a member of a body."""

    name: str
    kind: SafeString
    bounds: str
    words: SafeString
    default: str = ""
    place: str = ""  # of a parameter: path, query or header
    is_required: bool = False


def resolved(document: Document, node: Document) -> Document:
    """Return what a reference refers to, merged with the members next to it."""
    if "$ref" not in node:
        return node
    _, _, kind, name = node["$ref"].split("/")
    siblings = {key: value for key, value in node.items() if key != "$ref"}
    return {**document["components"][kind][name], **siblings}


def prose(text: str) -> SafeString:
    """Return the text as HTML, with `words in backticks` as code."""
    return mark_safe(_CODE.sub(r"<code>\1</code>", escape(text)))  # escaped here


def body_rows(document: Document, schema: Document, *, linked: Collection[str]) -> list[Row]:
    """Return the members of a body; objects described elsewhere become links."""
    return list(_rows(document, schema, "", linked))


def object_rows(document: Document, schema: Document) -> list[Row]:
    return list(_rows(document, schema, "", ()))


def _rows(document: Document, schema: Document, prefix: str, linked: Collection[str]) -> Iterator[Row]:
    required = schema.get("required", [])
    for name, member in schema["properties"].items():
        yield Row(
            name=prefix + name,
            kind=type_words(document, member, linked),
            bounds=bounds_words(document, member),
            words=prose(description_of(document, member)),
            default=default_words(member),
            is_required=name in required,
        )


def description_of(document: Document, schema: Document) -> str:
    """Return the schema's description, or the first of its alternatives'."""
    resolved_schema = resolved(document, schema)
    if "description" in resolved_schema:
        return str(resolved_schema["description"])
    return next(
        (words for alternative in resolved_schema.get("anyOf", []) if (words := description_of(document, alternative))),
        "",
    )


def default_words(schema: Document) -> str:
    default = schema.get("default")
    if default in (None, "", {}):
        return ""
    return f"default {_number(default)}" if type(default) in (int, float) else f"default {_plain(default)}"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def type_words(document: Document, schema: Document, linked: Collection[str] = ()) -> SafeString:
    """Return the type in a word or two, or a link for an object described elsewhere."""
    name = schema.get("$ref", "").rpartition("/")[2]
    if name in linked:
        return format_html('<a href="objects#object-{0}">{0}</a>', name)
    resolved_schema = resolved(document, schema)
    if "anyOf" in resolved_schema:
        return _joined([type_words(document, alternative, linked) for alternative in resolved_schema["anyOf"]])
    if "enum" in resolved_schema or "const" in resolved_schema:
        choices = [
            format_html("<code>{}</code>", choice)
            for choice in resolved_schema.get("enum", [resolved_schema.get("const")])
        ]
        return _joined(choices, ", " if len(choices) > 3 else " or ")
    if resolved_schema.get("type") == "array":
        return format_html("list of {}", type_words(document, resolved_schema["items"], linked))
    if resolved_schema.get("type") == "object" and 0 < len(resolved_schema.get("properties", ())) <= 3:
        return format_html("{{{}}}", ", ".join(resolved_schema["properties"]))
    return SafeString(escape(FORMATS.get(resolved_schema.get("format", ""), resolved_schema.get("type", "any value"))))


def _joined(alternatives: list[SafeString], between: str = " or ") -> SafeString:
    return format_html_join(between, "{}", ((alternative,) for alternative in alternatives))


def bounds_words(document: Document, schema: Document) -> str:
    """Return the bounds of a value, as text."""
    resolved_schema = resolved(document, schema)
    parts = [bounds_words(document, alternative) for alternative in resolved_schema.get("anyOf", [])]
    if resolved_schema.get("type") == "array":
        parts += [
            _span(resolved_schema, "minItems", "maxItems", " of them"),
            bounds_words(document, resolved_schema["items"]),
        ]
    parts += [
        _span(resolved_schema, "minLength", "maxLength", " characters"),
        _span(resolved_schema, "minimum", "maximum", ""),
    ]
    if "pattern" in resolved_schema:
        parts.append(PATTERNS.get(resolved_schema["pattern"], ""))
    return "; ".join(dict.fromkeys(part for part in parts if part))


def _span(schema: Document, least: str, most: str, unit: str) -> str:
    low, high = schema.get(least), schema.get(most)
    if high is not None:
        return f"{_number(low)} to {_number(high)}{unit}" if low is not None else f"at most {_number(high)}{unit}"
    return "" if low is None or (unit and low == 1) else f"at least {_number(low)}{unit}"


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
