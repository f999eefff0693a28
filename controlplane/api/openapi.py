"""The OpenAPI 3.1 description: ninja's description of each operation, completed with what is common to all.

Its texts are in openapi_words.py. docs.py makes the pages for people from this document alone.
"""

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from functools import lru_cache
from typing import Any

from controlplane.api.api import api
from controlplane.api.idempotency_key import HEADER
from controlplane.api.openapi_problems import problem_kinds, problem_response, problem_schemas
from controlplane.api.openapi_words import (
    ABOUT,
    AN_ID,
    BEARER,
    HEADER_PARAMETERS,
    PATH_PARAMETERS,
    RESPONSE_HEADERS,
    TAGS,
    Document,
    reference,
    untitled,
    who,
)
from controlplane.api.problems import MEANINGS
from controlplane.api.routing import JSON, OPERATIONS, Operation
from tenants.json_schemas import defaults_described

BASE = "/api/v1"
SUCCESS = {200: "Done.", 201: "Created.", 202: "Begun: follow the operation.", 204: "Done; there is nothing to say."}
_PAGE = re.compile(r"Page_(\w+)_")


@lru_cache(maxsize=1)
def openapi_document() -> Document:
    """Return the whole description. All callers share the object: do not change it."""
    raw = json.loads(_PAGE.sub(r"\1Page", json.dumps(api.get_openapi_schema(path_prefix=""))))
    schemas = {name: untitled(schema) for name, schema in sorted(raw["components"]["schemas"].items())}
    schemas |= problem_schemas()
    for name in _sent_schemas(raw, schemas):
        defaults_described(schemas[name])
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        raw_operation = raw["paths"][operation.path][operation.method.lower()]
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation, raw_operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Luminet", "version": raw["info"]["version"], "description": ABOUT},
        "servers": [{"url": BASE, "description": "This Luminet."}],
        "security": [{"bearer": []}],
        "tags": [{"name": name, "description": words} for name, words in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "parameters": {
                name: {"name": name, "in": "header", **definition} for name, definition in HEADER_PARAMETERS.items()
            },
            "headers": {name: _header(*definition) for name, definition in RESPONSE_HEADERS.items()},
            "responses": {kind: problem_response(kind) for kind in MEANINGS},
            "securitySchemes": {"bearer": BEARER},
        },
    }


def _sent_schemas(raw: Document, schemas: Document) -> set[str]:
    """Return the names of all schemas used in request bodies."""
    operations = [operation for methods in raw["paths"].values() for operation in methods.values()]
    pending = [name for operation in operations for name in _referenced(operation.get("requestBody"))]
    names: set[str] = set()
    while pending:
        if (name := pending.pop()) not in names:
            names.add(name)
            pending += _referenced(schemas[name])
    return names


def _referenced(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(name := schema.get("$ref"), str):
            yield name.rpartition("/")[2]
        schema = [*schema.values()]
    for inner in schema if isinstance(schema, list) else ():
        yield from _referenced(inner)


def _described(operation: Operation, raw_operation: Document, schemas: Document) -> Document:
    body = raw_operation.get("requestBody")
    described = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": raw_operation["summary"],
        "description": " ".join([*raw_operation["description"].split(), *_table_words(operation)]),
        "x-luminet-who": who(operation.rule),
        "security": [{"bearer": [str(operation.rule.scope)] if operation.rule.scope else []}],
        "parameters": [*map(_parameter, raw_operation["parameters"]), *_header_parameters(operation)],
    }
    if body:
        (name,) = _referenced(body["content"][JSON]["schema"])  # next to a default if the body is optional
        content = _content(reference("schemas", name), schemas)
        described["requestBody"] = {"required": body["required"], "content": content}
    has_query = any(parameter["in"] == "query" for parameter in raw_operation["parameters"])
    kinds = problem_kinds(operation, has_body=body is not None, has_query=has_query)
    refused = {str(MEANINGS[kind][0]): reference("responses", kind) for kind in kinds}
    return described | {"responses": dict(sorted({**_success(operation, raw_operation, schemas), **refused}.items()))}


def _table_words(operation: Operation) -> Iterator[str]:
    """Describe CSV in words: two media types for one status would give generated clients a union to distinguish."""
    if operation.csv_heads:
        yield f"With `format=csv` the answer is `text/csv` with the columns `{', '.join(operation.csv_heads)}`."


def _success(operation: Operation, raw_operation: Document, schemas: Document) -> Document:
    answer = raw_operation["responses"][str(operation.status)]
    names = [name for name, is_sent in _sent_headers(operation).items() if is_sent]
    headers = {name: reference("headers", name) for name in names}
    response: Document = {"description": SUCCESS[operation.status], "headers": headers}
    if "content" in answer:
        response["content"] = _content(answer["content"][JSON]["schema"], schemas)
    if operation.method == "GET" and operation.gives_etag:
        cache_headers = {name: headers[name] for name in ("ETag", "RateLimit", "RateLimit-Policy")}
        return {
            str(operation.status): response,
            "304": {"description": "What you hold is current.", "headers": cache_headers},
        }
    return {str(operation.status): response}


def _sent_headers(operation: Operation) -> dict[str, bool]:
    return {
        "ETag": operation.gives_etag,
        "Location": gives_location(operation),
        "Idempotency-Replayed": operation.is_repeatable and not operation.changes_nothing,
        "RateLimit": True,
        "RateLimit-Policy": True,
    }


def gives_location(operation: Operation) -> bool:
    """Return whether the answer has a Location: when it starts an operation or creates an object that has a GET."""
    readable = re.compile(re.escape(operation.path) + r"/\{\w+\}")
    is_readable = any(candidate.method == "GET" and readable.fullmatch(candidate.path) for candidate in OPERATIONS)
    return operation.status == 202 or (operation.status == 201 and is_readable)


def _parameter(parameter: Document) -> Document:
    name, schema = parameter["name"], {key: value for key, value in parameter["schema"].items() if key != "title"}
    if parameter["in"] == "query":
        schema.pop("description", None)
        return {
            "name": name,
            "in": "query",
            "required": False,
            "description": parameter["description"],
            "schema": schema,
        }
    words, extra_schema, example = PATH_PARAMETERS[name]
    schema |= extra_schema
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": words,
        "schema": schema,
        "example": AN_ID if example is None else example,
    }


def _header_parameters(operation: Operation) -> list[Document]:
    conditions = {
        "If-Match": operation.wants_if_match,
        "If-None-Match": operation.method == "GET" and operation.gives_etag,
        HEADER: operation.is_repeatable,
    }
    return [reference("parameters", name) for name, is_wanted in conditions.items() if is_wanted]


def _content(schema: Document, schemas: Document) -> Document:
    return {JSON: {"schema": schema, "example": example_of(schema, schemas)}}


def example_of(schema: Document, schemas: Document) -> Any:
    """Return the schema's own example; a page's consists of an item's."""
    referenced_schema = schemas[schema["$ref"].rpartition("/")[2]]
    if "examples" in referenced_schema:
        example = deepcopy(referenced_schema["examples"][0])
        return {name: example[name] for name in referenced_schema.get("properties", example) if name in example}
    return {"items": [example_of(referenced_schema["properties"]["items"]["items"], schemas)], "next_cursor": None}


def _header(words: str, example: str) -> Document:
    return {"description": words, "schema": {"type": "string"}, "example": example}
