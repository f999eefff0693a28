"""One meaning for every document, or none."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_agent.http.errors import ApiError
from engine_agent.http.strict_json import is_nested_deeper, read_object
from tests.support.case_names import case_name


def test_what_is_no_document_is_refused(subtests: pytest.Subtests) -> None:
    cases: list[tuple[bytes, str]] = [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "must be a JSON object"),
        (b'"x"', "must be a JSON object"),
        (b"\xff{}", "not UTF-8 at byte 0"),
        ('{"a": "é"}'.encode("utf-16"), "not UTF-8"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "-Infinity"),
        (b'{"a": 1e999}', "too large"),
        (b'{"a": ' + b"1" * 5_000 + b"}", "too long a number"),
        (b'{"a": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"a": "\n"}', "not JSON"),
        (b'{"a": 1, "a": 1}', "more than once"),
        (b'{"b": {"a": 1, "a": 2}}', "more than once"),
    ]
    for body, says in cases:
        with subtests.test(msg=case_name(body, says)):
            with pytest.raises(ApiError, match=says) as caught:
                read_object(body)
            assert (caught.value.status, caught.value.code) == (400, "invalid_json")


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (rb'{"a": "\ud800"}', "a"),
        (rb'{"a": [{"b": "\uDC00x"}]}', "a[0].b"),
        (rb'{"a": {"\udfff": 1}}', "a"),
        (rb'{"\udfff": 1}', None),
    ],
)
def test_half_of_a_character_is_refused_where_it_is(body: bytes, where: str | None) -> None:
    with pytest.raises(ApiError, match="half of a surrogate pair") as caught:
        read_object(body)
    assert caught.value.param == where


def test_a_whole_character_may_be_written_in_halves() -> None:
    assert read_object(rb'{"a": "\ud83d\ude00"}') == {"a": "😀"}


def test_half_of_a_character_deep_inside_is_a_refusal_too() -> None:
    depth = 800
    body = b'{"a":' + b"[" * depth + rb'"\ud800"' + b"]" * depth + b"}"
    with pytest.raises(ApiError):
        read_object(body)


def test_a_repeated_key_is_named() -> None:
    with pytest.raises(ApiError) as caught:
        read_object(b'{"model": "a", "model": "b"}')
    assert caught.value.param == "model"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"b": {"a": 1, "a": 2}}', "b.a"),
        (b'{"a": [1, NaN]}', "a[1]"),
        (b'{"a": {"b": 1e999}}', "a.b"),
        (b"[NaN]", "[0]"),
        ('{"é": 1, "é": 2}'.encode(), r"\xe9"),
        (b'{"' + b"x" * 200 + b'": NaN}', "x" * 80),
    ],
)
def test_refused_json_names_the_field(body: bytes, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        read_object(body)
    assert caught.value.param == param


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.dictionaries(_TEXTS, st.integers() | st.booleans() | _TEXTS))
def test_a_document_is_read_as_it_was_written(document: dict[str, Any]) -> None:
    assert read_object(json.dumps(document).encode()) == document


@given(st.binary(max_size=100))
def test_any_bytes_are_a_document_or_a_refusal(body: bytes) -> None:
    with suppress(ApiError):  # and nothing else
        assert isinstance(read_object(body), dict)


def test_depth_is_counted_in_containers() -> None:
    assert not is_nested_deeper({"a": 1}, 1)
    assert is_nested_deeper({"a": {"b": 1}}, 1)
    assert is_nested_deeper([[[1]]], 2)
    assert not is_nested_deeper("text", 0)
