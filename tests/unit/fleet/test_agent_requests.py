"""HTTP as agents speak it: bodies within bounds, and no text that the database could not hold."""

import gzip
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.fleet.requests import Members, Refused, bearer, body_read, body_unpacked, object_read, storable

Texts = st.text(st.characters(codec=None) | st.sampled_from('\\\x00u0d8"\ud800\udc00\udfff'), max_size=12)
Values = st.recursive(st.none() | st.integers() | Texts, lambda inner: st.lists(inner) | st.dictionaries(Texts, inner))


async def read(
    chunks: Sequence[bytes], *, limit: int = 10, announced: str | None = None, is_cut: bool = False
) -> bytes:
    messages: list[Any] = [
        {"type": "http.request", "body": one, "more_body": number < len(chunks) or is_cut}
        for number, one in enumerate(chunks, start=1)
    ]
    left = iter([*messages, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(left)

    headers = [] if announced is None else [(b"content-length", announced.encode())]
    return await body_read({"headers": headers}, receive, limit=limit)


async def test_a_body_of_exactly_the_limit_is_taken_in_one_piece_or_several() -> None:
    assert await read([b"0123456789"]) == b"0123456789"
    assert await read([b"01234", b"", b"56789"]) == b"0123456789"


@pytest.mark.parametrize("chunks", [[b"0123456789x"], [b"01234", b"56789", b"x"], [b"01234", b"56789x", b""]])
async def test_a_body_that_is_too_large_is_refused(chunks: list[bytes]) -> None:
    with pytest.raises(Refused) as refused:
        await read(chunks)
    assert (refused.value.status, refused.value.code) == (413, "too_large")


async def test_a_body_that_announces_too_much_is_refused_unread() -> None:
    for announced in ("11", "9" * 5_000):
        with pytest.raises(Refused) as refused:
            await read([], announced=announced)
        assert refused.value.status == 413


async def test_a_body_that_is_cut_off_is_refused() -> None:
    for chunks in ([], [b"01"]):
        with pytest.raises(Refused) as refused:
            await read(chunks, is_cut=True)
        assert refused.value.code == "cut_off"


@pytest.mark.parametrize("value", [b"", b"Bearer", b"Bearer ", b"Basic YTpi", b"lat_x"])
def test_without_a_token_nobody_is_known(value: bytes) -> None:
    with pytest.raises(Refused) as refused:
        bearer({"headers": [(b"authorization", value)]})
    assert (refused.value.status, refused.value.code) == (401, "unknown_token")


def test_the_scheme_is_known_in_any_case() -> None:
    assert bearer({"headers": [(b"authorization", b"bearer lat_x")]}) == "lat_x"


def test_an_object_has_its_members_and_no_others_each_of_its_type() -> None:
    members: Members = {"rotate": bool, "name": (str, type(None))}
    assert object_read(b'{"rotate": true, "name": null}', members) == {"rotate": True, "name": None}
    assert object_read(b'{"rotate": false}', members) == {"rotate": False, "name": None}
    for body in (b"[]", b"nonsense", b'"\xff"', b'{"rotate": 1}', b'{"name": null}', b"[" * 100_000):
        with pytest.raises(Refused) as refused:
            object_read(body, members)
        assert (refused.value.status, refused.value.code) == (400, "malformed")
    with pytest.raises(Refused, match="more: is not a member we know"):
        object_read(b'{"rotate": true, "name": null, "more": 1}', members)


def test_what_the_database_cannot_hold_is_replaced_and_nothing_else(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        (r'"a\u0000b"', "a\ufffdb"),
        (r'"\ud800"', "\ufffd"),
        (r'"\udc00\ud800"', "\ufffd\ufffd"),
        (r'"\ud83d\ude00"', "\U0001f600"),
        (r'"\ud83d\ud83d\ude00"', "\ufffd\U0001f600"),
        (r'"\\u0000"', r"\u0000"),
        (r'"\\\u0000"', "\\\ufffd"),
        (r'"\\\\ud800"', r"\\ud800"),
        ('"é\\uD800"', "é\ufffd"),
    ]
    for told, kept in cases:
        with subtests.test(msg=f"{told!r}, {kept!r}"):
            assert json.loads(storable(told.encode())) == kept


@given(Values)
def test_whatever_is_told_can_be_stored(value: Any) -> None:
    body = storable(json.dumps(value).encode())
    kept = json.dumps(json.loads(body), ensure_ascii=False)
    assert "\\u0000" not in kept.replace("\\\\", "")
    kept.encode()  # which halves of pairs cannot be
    assert storable(body) == body


def unpacked(body: bytes, encoding: str = "gzip", *, limit: int = 1_000) -> bytes:
    return body_unpacked({"headers": [(b"content-encoding", encoding.encode())]}, body, limit=limit)


def test_a_body_may_come_in_gzip() -> None:
    assert unpacked(gzip.compress(b"x" * 1_000)) == b"x" * 1_000
    assert body_unpacked({"headers": []}, b"plain") == b"plain"
    assert unpacked(b"plain", "identity") == b"plain"


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = gzip.compress(b"0" * 50_000_000)
    with pytest.raises(Refused) as refused:
        unpacked(bomb)
    assert (refused.value.status, refused.value.code) == (413, "too_large")


# Without the time: tests are named after their bodies, and every worker must find the same names.
PACKED = gzip.compress(b"x", mtime=0)


@pytest.mark.parametrize("body", [b"", b"plain", PACKED[:-1], PACKED * 2, PACKED + b"more"])
def test_what_is_no_whole_gzip_is_refused(body: bytes) -> None:
    with pytest.raises(Refused) as refused:
        unpacked(body)
    assert (refused.value.status, refused.value.code) == (400, "malformed")


def test_another_encoding_is_refused_with_what_is_taken() -> None:
    with pytest.raises(Refused) as refused:
        unpacked(b"x", "br")
    assert (refused.value.status, refused.value.headers["accept-encoding"]) == (415, "gzip")
