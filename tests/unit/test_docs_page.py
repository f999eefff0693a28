from typing import Any

import pytest

from controlplane.api.docs import highlighted, slug
from controlplane.api.docs_schemas import bounds_words, default_words, description_of, prose, type_words

DOCUMENT: dict[str, Any] = {
    "components": {
        "schemas": {
            "Range": {"type": "object", "properties": {"min": {}, "max": {}}, "description": "From `min` to `max`."},
            "Large": {"type": "object", "properties": {name: {} for name in "abcd"}},
        }
    }
}
RANGE = {"$ref": "#/components/schemas/Range"}


def test_a_type_is_said_in_a_word_or_two(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"type": "integer"}, "integer"),
        ({"type": "string", "format": "uuid"}, "UUID"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer or null"),
        ({"enum": ["a", "b"]}, "<code>a</code> or <code>b</code>"),
        ({"const": "all"}, "<code>all</code>"),
        ({"enum": ["a", "b", "c", "d"]}, "<code>a</code>, <code>b</code>, <code>c</code>, <code>d</code>"),
        ({"type": "array", "items": {"type": "string"}}, "list of string"),
        (RANGE, "{min, max}"),
        ({"$ref": "#/components/schemas/Large"}, "object"),
        ({}, "any value"),
        ({"enum": ["<b>"]}, "<code>&lt;b&gt;</code>"),
    ]
    for schema, words in cases:
        with subtests.test(msg=f"{schema!r}, {words!r}"):
            assert type_words(DOCUMENT, schema) == words


def test_an_object_that_is_described_elsewhere_is_a_link() -> None:
    assert type_words(DOCUMENT, RANGE, linked=("Range",)) == '<a href="objects#object-Range">Range</a>'


def test_bounds_are_said_in_words(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"minimum": 1, "maximum": 604_800}, "1 to 604,800"),
        ({"minimum": 0}, "at least 0"),
        ({"maximum": 0.5}, "at most 0.5"),
        ({"minLength": 1, "maxLength": 100}, "1 to 100 characters"),
        ({"minLength": 1}, ""),
        ({"type": "array", "maxItems": 8, "items": {"type": "integer", "minimum": 3}}, "at most 8 of them; at least 3"),
        ({"anyOf": [{"minimum": 1, "maximum": 9}, {"type": "null"}]}, "1 to 9"),
        ({"pattern": "^unknown$"}, ""),
        ({}, ""),
    ]
    for schema, words in cases:
        with subtests.test(msg=f"{schema!r}, {words!r}"):
            assert bounds_words(DOCUMENT, schema) == words


def test_a_default_is_shown_unless_it_is_nothing(subtests: pytest.Subtests) -> None:
    cases: list[tuple[Any, str]] = [
        (False, "default false"),
        (300, "default 300"),
        (0.0, "default 0"),
        ("all", "default all"),
        (["int4"], 'default ["int4"]'),
        (None, ""),
        ("", ""),
        ({}, ""),
    ]
    for default, words in cases:
        with subtests.test(msg=f"{default!r}, {words!r}"):
            assert default_words({"default": default}) == words


def test_a_field_without_words_of_its_own_has_those_of_what_it_holds() -> None:
    assert description_of(DOCUMENT, {"anyOf": [{"type": "null"}, RANGE]}) == "From `min` to `max`."
    assert description_of(DOCUMENT, {**RANGE, "description": "How far."}) == "How far."


def test_what_a_schema_says_cannot_become_markup() -> None:
    assert prose("<b> `a<b`") == "&lt;b&gt; <code>a&lt;b</code>"
    assert highlighted({"<i>": "<i>: "}) == "{\n  <b>&quot;&lt;i&gt;&quot;</b>: &quot;&lt;i&gt;: &quot;\n}"


def test_anchors_are_words_with_hyphens() -> None:
    assert slug("People and keys") == "people-and-keys"
