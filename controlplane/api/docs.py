"""The API reference for people: the OpenAPI document as rows and sentences, with a page for each group of operations.

The conventions are in a template. docs/decisions/0021-rest-libraries.md says why no ready-made reference is used.
"""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from controlplane.api.docs_schemas import Row, body_rows, bounds_words, object_rows, prose, resolved, type_words
from controlplane.api.openapi_words import Document
from controlplane.api.problem_json import CONTENT_TYPE

OBJECTS = ("Policy", "Bounds", "Limits")  # described once, and linked from the bodies that contain them
_MEMBER = re.compile(r"^( *)(&quot;.*?&quot;)(?=: )", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Refusal:
    kind: str
    status: int
    title: str
    words: str


@dataclass(frozen=True, slots=True)
class Answered:
    status: str
    words: SafeString
    headers: list[str]
    example: SafeString | None


@dataclass(frozen=True, slots=True)
class Listed:
    """An operation in the table of contents."""

    anchor: str
    method: str
    path: SafeString
    summary: str


@dataclass(frozen=True, slots=True)
class Described(Listed):
    """An operation on its group's page."""

    words: SafeString | None
    who: SafeString
    parameters: list[Row]
    body: list[Row]
    body_words: SafeString | None
    curl: SafeString
    answers: list[Answered]
    refusals: list[Refusal]


@dataclass(frozen=True, slots=True)
class Section:
    """A group of operations, with its own page."""

    slug: str
    name: str
    words: SafeString
    operations: list[Listed]


@dataclass(frozen=True, slots=True)
class Shape:
    """An object that several bodies contain."""

    anchor: str
    name: str
    words: SafeString
    rows: list[Row]


def sections(document: Document) -> list[Section]:
    return [
        Section(
            slug(tag["name"]),
            tag["name"],
            prose(tag["description"]),
            [Listed(**_names(*operation)) for operation in _operations(document, tag["name"])],
        )
        for tag in document["tags"]
    ]


def described(document: Document, section: Section) -> list[Described]:
    """Return the full descriptions of a group's operations."""
    return [_described(document, *operation) for operation in _operations(document, section.name)]


def shapes(document: Document) -> list[Shape]:
    schemas = document["components"]["schemas"]
    return [
        Shape(f"object-{name}", name, prose(schemas[name]["description"]), object_rows(document, schemas[name]))
        for name in OBJECTS
    ]


def problems(document: Document) -> list[Refusal]:
    """Return every kind of problem, ordered by status."""
    refusals = [_refusal(kind, response) for kind, response in document["components"]["responses"].items()]
    return sorted(refusals, key=lambda refusal: refusal.status)


def problem_example(document: Document) -> SafeString:
    return highlighted(document["components"]["responses"]["invalid"]["content"][CONTENT_TYPE]["example"])


def _refusal(kind: str, response: Document) -> Refusal:
    example = response["content"][CONTENT_TYPE]["example"]
    return Refusal(
        kind, example["status"], example["title"], response["description"].removeprefix(f"{example['title']}: ")
    )


def slug(name: str) -> str:
    return name.lower().replace(" ", "-")


def _operations(document: Document, tag: str) -> Iterator[tuple[str, str, Document]]:
    """Yield the path, the method and the description of each operation of a group."""
    for path, methods in document["paths"].items():
        yield from ((path, method, operation) for method, operation in methods.items() if tag in operation["tags"])


def _names(path: str, method: str, operation: Document) -> dict[str, Any]:
    return {
        "anchor": operation["operationId"],
        "method": method.upper(),
        "path": _path(path),
        "summary": operation["summary"],
    }


def _described(document: Document, path: str, method: str, operation: Document) -> Described:
    words, summary = operation["description"], operation["summary"]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    schema = None if body is None else resolved(document, body["schema"])
    parameters = [resolved(document, parameter) for parameter in operation["parameters"]]
    return Described(
        **_names(path, method, operation),
        words=None if words.removesuffix(".") == summary else prose(words),
        who=prose(operation["x-luminet-who"]),
        parameters=[_parameter(document, parameter) for parameter in parameters],
        body=[] if schema is None else body_rows(document, schema, linked=OBJECTS),
        body_words=None if schema is None or "description" not in schema else prose(schema["description"]),
        curl=_curl(path, method, parameters, body),
        answers=list(_answers(document, operation)),
        refusals=list(_refusals(document, operation)),
    )


def _path(path: str) -> SafeString:
    """Return the path with its variables marked, and with places for line breaks."""
    breakable = escape(path).replace("/", "/<wbr>")
    return mark_safe(re.sub(r"\{(\w+)\}", r"<var>{\1}</var>", breakable))  # escaped above


def _parameter(document: Document, parameter: Document) -> Row:
    schema = resolved(document, parameter["schema"])
    return Row(
        name=parameter["name"],
        kind=type_words(document, schema),
        bounds="" if parameter["in"] == "path" else bounds_words(document, schema),
        words=prose(parameter["description"]),
        place=parameter["in"],
        is_required=parameter["required"] and parameter["in"] != "path",
    )


def _curl(path: str, method: str, parameters: list[Document], body: Document | None) -> SafeString:
    """Return a curl command that can be pasted where URL and TOKEN are set."""
    for parameter in parameters:
        path = path.replace(f"{{{parameter['name']}}}", str(parameter.get("example", "")))
    verb = "" if method == "get" else f"-X {method.upper()} "
    headers = [
        f"{parameter['name']}: {parameter['example']}"
        for parameter in parameters
        if parameter["in"] == "header" and parameter["required"]
    ]
    parts = [f'curl {verb}"$URL{path}"', '-H "Authorization: Bearer $TOKEN"']
    parts += [f"-H {shlex.quote(header)}" for header in headers]
    if body is not None:
        example = json.dumps(body["example"], ensure_ascii=False, indent=2).replace("\n", "\n  ")
        parts += ["-H 'Content-Type: application/json'", f"-d {shlex.quote(example)}"]
    return format_html("{}", " \\\n  ".join(parts))


def _answers(document: Document, operation: Document) -> Iterator[Answered]:
    for status, response in operation["responses"].items():
        if status < "400":
            answer = resolved(document, response)
            content = answer.get("content", {}).get("application/json")
            headers = [name for name in answer.get("headers", {}) if not name.startswith("RateLimit")]
            yield Answered(
                status,
                prose(answer["description"]),
                headers,
                None if content is None else highlighted(content["example"]),
            )


def _refusals(document: Document, operation: Document) -> Iterator[Refusal]:
    for status, response in operation["responses"].items():
        if status >= "400":
            yield _refusal(response["$ref"].rpartition("/")[2], resolved(document, response))


def highlighted(value: Any) -> SafeString:
    """Return the value as JSON with the members' names marked."""
    text = escape(json.dumps(value, indent=2, ensure_ascii=False))
    return mark_safe(_MEMBER.sub(r"\1<b>\2</b>", text))  # escaped above
