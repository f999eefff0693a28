import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.api.errors import BadHeader
from controlplane.api.idempotency_key import idempotency_key, request_fingerprint
from tests.support.case_names import case_name


def fingerprint(body: bytes = b"{}", *, method: str = "POST", path: str = "/api/v1/orgs", query: str = "") -> str:
    return request_fingerprint(method=method, path=path, query=query, body=body)


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("a", "a"),
        ('"a"', "a"),
        (" a ", "a"),
        ("x" * 255, "x" * 255),
        (f'"{"x" * 255}"', "x" * 255),
        ('"', '"'),
        ("a,b", "a,b"),
    ],
)
def test_a_key_is_taken_with_or_without_quotes(header: str, key: str) -> None:
    assert idempotency_key(header) == key


def test_no_header_is_no_key() -> None:
    assert idempotency_key(None) is None


def test_other_keys_are_refused_by_name(subtests: pytest.Subtests) -> None:
    cases: list[str] = ["", '""', " ", "a b", "x" * 256, "é", "a\tb", "a\0", "a\n", '"a b"']
    for header in cases:
        with subtests.test(msg=case_name(header)):
            with pytest.raises(BadHeader, match="1 to 255") as caught:
                idempotency_key(header)
            assert caught.value.field == "Idempotency-Key"


@pytest.mark.parametrize(
    "body",
    [b'{"b": [1, 2], "a": "\\u00e9"}', '{"a":"é","b":[1,2]}'.encode(), b'\n{ "a" : "\xc3\xa9" , "b" : [ 1,2 ] }'],
)
def test_spelling_json_differently_is_the_same_request(body: bytes) -> None:
    assert fingerprint(body) == fingerprint('{"a": "é", "b": [1, 2]}'.encode())


@pytest.mark.parametrize(
    "other",
    [
        fingerprint(b'{"a": 1}'),
        fingerprint(b""),
        fingerprint(b"[]"),
        fingerprint(method="PUT"),
        fingerprint(path="/api/v1/orgs/"),
        fingerprint(query="a=1"),
        fingerprint(path="/api/v1/or", query="gs"),
    ],
)
def test_anything_else_that_differs_is_another_request(other: str) -> None:
    assert other != fingerprint()


@pytest.mark.parametrize(
    ("one", "other"), [(b"[1, 2]", b"[2, 1]"), (b"1", b"1.0"), (b"1", b"true"), (b"{", b"{ "), (b'"1"', b"1")]
)
def test_different_values_are_never_taken_for_the_same(one: bytes, other: bytes) -> None:
    assert fingerprint(one) != fingerprint(other)


@given(st.binary(max_size=60), st.text(max_size=20))
def test_any_request_has_a_fingerprint(body: bytes, path: str) -> None:
    assert len(fingerprint(body, path=path)) == 64
