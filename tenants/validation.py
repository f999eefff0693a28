"""Validation errors of pydantic in our words, with the field's path in the document. No I/O."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tenants.errors import FieldProblem
from tenants.models.organisations import SLUG_PATTERN
from tenants.policy import MODEL_PATTERN

SLUG_WORDS = "must be 1 to 63 of a-z, 0-9 and inner hyphens"
PATTERNS = {
    SLUG_PATTERN: SLUG_WORDS,
    MODEL_PATTERN: "must be the name of a model: 1 to 200 letters, digits and . _ : / @ + -, first a letter or digit",
}
KINDS = {
    "missing": "is required",
    "model_type": "must be an object",
    "dict_type": "must be an object",
    "extra_forbidden": "is no field here",
}


def field_problems(errors: Iterable[Mapping[str, Any]], *, root: str = "document") -> Iterator[FieldProblem]:
    """Yield the problems of ValidationError.errors(). `root` is the name of the whole document."""
    for error in errors:
        path = [str(part) for part in error["loc"] if part != "[key]"]
        yield FieldProblem(".".join(path) or root, _words(error["type"], error["msg"], error.get("ctx", {})))


def _words(kind: str, message: str, context: Mapping[str, Any]) -> str:
    if kind == "string_pattern_mismatch" and context.get("pattern") in PATTERNS:
        return PATTERNS[context["pattern"]]
    return KINDS.get(kind) or message.removeprefix("Value error, ")
