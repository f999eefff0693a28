import contextlib
import json
import time
from typing import Any

import pytest
from django.http import QueryDict
from django.test import RequestFactory
from hypothesis import given
from hypothesis import strategies as st

from controlplane.api.errors import BadJson, BadQuery, UnsupportedMediaType
from controlplane.api.parser import StrictParser
from controlplane.api.strict_json import MAX_DEPTH, parse
from tests.support.case_names import case_name

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
scalars = st.none() | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False) | texts
values = st.recursive(
    scalars.filter(lambda value: value not in (float("inf"), float("-inf"))),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)
# Pieces that together come close to JSON far more often than random bytes do.
pieces = [
    *'[]{}:,"\\ \n-+.e0',
    "19" * 10,
    "NaN",
    "Infinity",
    "true",
    "nul",
    "\\u0000",
    "\\ud800",
    "\\ude00",
    "é",
    "\ufeff",
]
nearly_json = st.lists(st.sampled_from(pieces), max_size=40).map(lambda parts: "".join(parts).encode())


def refusal(body: bytes) -> tuple[str, str]:
    with pytest.raises(BadJson) as caught:
        parse(body)
    return caught.value.field, caught.value.message


@given(st.binary(max_size=200) | nearly_json)
def test_any_bytes_are_a_value_or_refused(body: bytes) -> None:
    with contextlib.suppress(BadJson):
        value = parse(body)
        assert value == json.loads(body)
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()


@given(values, st.booleans())
def test_every_json_value_comes_through(value: Any, ascii_only: bool) -> None:
    assert parse(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


def test_what_is_refused_is_named(subtests: pytest.Subtests) -> None:
    cases: list[tuple[bytes, str, str]] = [
        (b"", "body", "empty"),
        (b" \n", "body", "empty"),
        (b"\xef\xbb\xbf{}", "body", "byte order mark"),
        ("{}".encode("utf-16"), "body", "not UTF-8 at byte 0"),
        (b'{"a": "\xff"}', "body", "not UTF-8 at byte 7"),
        (b"{}x", "body", "Extra data at line 1, column 3"),
        (b"{}\n{}", "body", "Extra data at line 2, column 1"),
        (b"{'a': 1}", "body", "Expecting property name"),
        (b'{"a": 1,}', "body", "property name"),
        (b'{"a": "', "body", "Unterminated string"),
        (b'{"a": "\x00"}', "body", "control character"),
        (b'{"a": {"b": 1, "c": 2, "b": 3}}', "a.b", "more than once"),
        (b'[{"x": [{"b": 1, "b": 1}]}]', "0.x.0.b", "more than once"),
        (b'{"a": NaN}', "a", "NaN"),
        (b'{"a": [1, -Infinity]}', "a.1", "-Infinity"),
        (b"1e999", "body", "too large a number"),
        (b'{"a": -1e999}', "a", "too large a number"),
        (b'{"a": 9223372036854775808}', "a", "beyond"),
        (b'{"a": -9223372036854775808}', "a", "beyond"),
        (b'{"a": ' + b"9" * 5000 + b"}", "a", "beyond"),
        (b'{"a": "x\\u0000y"}', "a", "contains a NUL"),
        (b'{"a": {"\\u0000": 1}}', "a.\N{REPLACEMENT CHARACTER}", "has a name that contains a NUL"),
        (b'{"a": ["\\ud800"]}', "a.0", "surrogate"),
        (b'{"a": "\\uDE00 \\ud83d"}', "a", "surrogate"),
        (b'{"\\ud800": 1}', "\N{REPLACEMENT CHARACTER}", "has a name that contains half"),
    ]
    for body, field, message in cases:
        with subtests.test(msg=case_name(body, field)):
            found = refusal(body)
            assert found[0] == field
            assert message in found[1]


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"\\\\u0000"', "\\u0000"),
        (b"9223372036854775807", 2**63 - 1),
        (b" [1.5e3] ", [1500.0]),
        (b'{"": {"": 1}}', {"": {"": 1}}),
    ],
)
def test_what_only_looks_risky_is_read(body: bytes, value: object) -> None:
    assert parse(body) == value


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"]":', b"}")])
def test_nesting_ends_where_it_says(opening: bytes, closing: bytes) -> None:
    inside = b'"[{\\"[["'
    parse(opening * MAX_DEPTH + inside + closing * MAX_DEPTH)
    deeper = MAX_DEPTH + 1
    assert "nested more than 32 levels" in refusal(opening * deeper + inside + closing * deeper)[1]


def test_documents_made_to_hurt_are_refused_soon(subtests: pytest.Subtests) -> None:
    cases: list[bytes] = [
        b"[" * 2_000_000,
        b"[" * 1_000_000 + b"]" * 1_000_000,
        b'{"a":' * 400_000,
        b"[" + b"[]," * 30 + b"[" * 1_500 + b"]" * 1_500 + b"]",
        b"]" * 2_000_000,
        b'"' + b'\\"' * 1_000_000,
        b'"' + b"\\" * 2_000_001,
        b"[" + b"9" * 2_000_000 + b"]",
        b"[0." + b"9" * 2_000_000 + b"e999]",
    ]
    for body in cases:
        with subtests.test(msg=f"{body[:6]!r}…{len(body)}"):
            began = time.monotonic()
            refusal(body)
            assert time.monotonic() - began < 5  # generous: what it guards against takes minutes, or the process


def test_long_names_are_not_echoed_in_full() -> None:
    name = "x" * 5000
    assert len(refusal(f'{{"{name}": NaN}}'.encode())[0]) <= 100


def body_of(body: bytes, content_type: str) -> object:
    return StrictParser().parse_body(RequestFactory().post("/", body, content_type=content_type))


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "Application/JSON; charset=UTF-8",
        "application/merge-patch+json",
        'application/json; charset="utf-8"',
    ],
)
def test_json_by_any_of_its_names_is_read(content_type: str) -> None:
    assert body_of(b'{"a": 1}', content_type) == {"a": 1}


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", "json", ""]
)
def test_other_kinds_of_body_are_not_guessed_at(content_type: str) -> None:
    with pytest.raises(UnsupportedMediaType) as caught:
        body_of(b'{"a": 1}', content_type)
    assert caught.value.field == "Content-Type"


@pytest.mark.parametrize("body", [b"[]", b"1", b"null", b'"a"'])
def test_a_body_is_an_object(body: bytes) -> None:
    with pytest.raises(BadJson, match="must be a JSON object"):
        body_of(body, "application/json")


def query_of(query: str, list_fields: list[str]) -> dict[str, Any]:
    request = RequestFactory().get("/", QUERY_STRING=query)
    return StrictParser().parse_querydict(request.GET, list_fields, request)


def test_a_query_is_read_once_and_lists_as_often_as_they_come() -> None:
    assert query_of("a=1&b=2&b=3&c=%C3%A9+x", ["b"]) == {"a": "1", "b": ["2", "3"], "c": "é x"}


@pytest.mark.parametrize(
    ("query", "field", "message"),
    [
        ("limit=1&limit=2", "limit", "given 2 times"),
        ("limit=%zz", "limit", "hexadecimal"),
        ("limit=%", "limit", "hexadecimal"),
        ("limit=%FF", "limit", "not UTF-8"),
        ("limit=a%00", "limit", "NUL"),
        ("%00=a", "\N{REPLACEMENT CHARACTER}", "NUL"),
        ("%ff", "%ff", "not UTF-8"),
    ],
)
def test_a_broken_query_names_its_parameter(query: str, field: str, message: str) -> None:
    with pytest.raises(BadQuery, match=message) as caught:
        query_of(query, [])
    assert caught.value.field == field


@given(st.text(st.characters(max_codepoint=127), max_size=40))
def test_any_query_is_read_or_refused(query: str) -> None:
    request = RequestFactory().get("/")
    request.META["QUERY_STRING"] = query
    with contextlib.suppress(BadQuery):
        StrictParser().parse_querydict(QueryDict(query), [], request)
