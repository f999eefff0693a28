"""Heads that the parser lets through and a proxy may read otherwise."""

import pytest

from engine_agent.http.heads import head_problem

Fields = list[tuple[bytes, bytes]]
HOST = (b"host", b"luminet.example.com")


@pytest.mark.parametrize(
    "host", [b"", b"luminet", b"a_b.example:8000", b"127.0.0.1:80", b"[::1]:80", b"[::1]", b"luminet.example.com."]
)
def test_sound_host_has_no_problem(host: bytes) -> None:
    assert head_problem("1.1", [(b"host", host)]) is None


def test_unsound_host_is_named(subtests: pytest.Subtests) -> None:
    cases: list[bytes] = [
        b"a,b",
        b"a b",
        b"me@a",
        b"a/b",
        b"a:80x",
        b"a:123456",
        b"[::1",
        b"\xc3\xa9",
        b"a:1:2",
        b"<a>",
    ]
    for host in cases:
        with subtests.test(msg=repr(host)):
            assert "Host" in (head_problem("1.1", [(b"host", host)]) or "")


@pytest.mark.parametrize("fields", [[], [HOST, HOST]])
def test_http_1_1_has_one_host(fields: Fields) -> None:
    assert "one Host" in (head_problem("1.1", fields) or "")


def test_http_1_0_may_have_no_host() -> None:
    assert head_problem("1.0", []) is None


@pytest.mark.parametrize("version", ["0.9", "1.2", "2.0"])
def test_other_versions_are_named(version: str) -> None:
    assert f"HTTP/{version}" in (head_problem(version, [HOST]) or "")


@pytest.mark.parametrize(
    "encodings", [[b"gzip, chunked"], [b", chunked"], [b"chunked", b"chunked"], [b"identity"], [b""]]
)
def test_only_encoding_is_chunked_once(encodings: list[bytes]) -> None:
    fields = [HOST, *((b"transfer-encoding", encoding) for encoding in encodings)]
    assert "chunked, once" in (head_problem("1.1", fields) or "")


def test_chunked_has_no_case() -> None:
    assert head_problem("1.1", [HOST, (b"transfer-encoding", b"CHUNKED")]) is None


def test_http_1_0_has_no_encoding() -> None:
    assert "Content-Length" in (head_problem("1.0", [(b"transfer-encoding", b"chunked")]) or "")
