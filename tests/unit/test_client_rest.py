"""The client against a server that misbehaves on purpose."""

import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controlplane.client.errors import ClientError, Refused
from controlplane.client.rest import Rest, segment
from tests.servers.misbehaving import Reply, Server, misbehaving
from tests.support.ports import free_port

PROBLEM = {"title": "Some fields cannot be accepted", "detail": "x", "errors": [{"field": "a.b", "message": "is odd"}]}


@pytest.fixture
def server() -> Iterator[Server]:
    with misbehaving() as server:
        yield server


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def rest(server: Server, waits: list[float]) -> Iterator[Rest]:
    rest = Rest(server.url, "lmo_secret", timeout=5, sleep=waits.append)
    yield rest
    rest.close()


def ok(body: Any, **headers: str) -> Reply:
    return 200, headers, json.dumps(body).encode()


def test_requests_share_a_connection_and_say_who_asks(server: Server, rest: Rest) -> None:
    server.replies = [ok({"slug": "acme"}, ETag='"7"')]
    assert rest.get("/orgs/acme").revision == '"7"'
    assert rest.get("/orgs", limit=2, cursor=None).body == {"slug": "acme"}
    assert server.connections == 1
    assert [path for _, path, _, _ in server.seen] == ["/api/v1/orgs/acme", "/api/v1/orgs?limit=2"]
    assert server.seen[0][2]["Authorization"] == "Bearer lmo_secret"
    assert "lmo_secret" not in repr(rest)


def test_a_control_plane_below_a_path_is_found(server: Server, rest: Rest) -> None:
    rest.url += "/luminet/"
    rest.get("/orgs")
    assert server.seen[0][1] == "/luminet/api/v1/orgs"


def test_pages_are_followed_to_the_end(server: Server, rest: Rest) -> None:
    pages = [
        {"items": [1, 2], "next_cursor": "a b&c"},
        {"items": [], "next_cursor": "x"},
        {"items": [3], "next_cursor": None},
    ]
    server.replies = [ok(page) for page in pages]
    assert list(rest.pages("/orgs")) == [1, 2, 3]
    assert server.seen[1][1] == "/api/v1/orgs?limit=200&cursor=a+b%26c"


def test_a_page_that_leads_to_itself_is_not_read_for_ever(server: Server, rest: Rest) -> None:
    server.replies = [ok({"items": [1], "next_cursor": "x"})]
    with pytest.raises(ClientError, match="leads to itself"):
        list(rest.pages("/orgs"))


def test_a_problem_names_every_field(server: Server, rest: Rest) -> None:
    server.replies = [(422, {"Content-Type": "application/problem+json"}, json.dumps(PROBLEM).encode())]
    with pytest.raises(Refused) as caught:
        rest.post("/orgs", {})
    assert str(caught.value) == "Some fields cannot be accepted (422)\n  a.b: is odd"
    assert (caught.value.status, caught.value.fields) == (422, [("a.b", "is odd")])


def test_a_long_list_of_problems_is_cut() -> None:
    many = {"title": "No", "errors": [{"field": f"f{n}", "message": "m"} for n in range(80)]}
    assert str(Refused(422, many)).endswith("  and 30 more")


def test_a_problem_says_nothing_to_the_terminal_itself(server: Server, rest: Rest) -> None:
    evil = "a\x1b[2J\x9b2J\nluminet: all is well"
    problem = {"title": evil, "errors": [{"field": evil, "message": evil}], "request_id": evil}
    for status in (422, 500):
        words = str(Refused(status, problem))
        assert all(line.isprintable() for line in words.split("\n"))
        assert not any(line.startswith("luminet:") for line in words.split("\n"))
    server.replies = [(302, {"Location": "https://x/\x9b2J", "Content-Type": "text/html"}, b"")]
    with pytest.raises(ClientError) as caught:
        rest.get("/orgs")
    assert str(caught.value).isprintable()


def test_our_fault_comes_with_the_number_to_tell_an_operator() -> None:
    text = str(Refused(500, {"title": "Broken", "detail": "Nothing was changed.", "request_id": "abc"}))
    assert text == "Broken (500): Nothing was changed.\n  request_id: abc"


def test_a_deed_is_sent_again_with_the_same_key_when_the_line_breaks(
    server: Server, rest: Rest, waits: list[float]
) -> None:
    server.replies = [None, (503, {"Retry-After": "2"}, b""), ok({"operation": "x"})]
    assert rest.post("/orgs/acme/purge", {}).body == {"operation": "x"}
    keys = {headers["Idempotency-Key"] for _, _, headers, _ in server.seen}
    assert (len(server.seen), len(keys), waits) == (3, 1, [0.5, 2.0])


def test_a_question_carries_no_key_and_a_new_deed_a_new_one(server: Server, rest: Rest) -> None:
    rest.post("/config/plan", {}, repeatable=True)
    rest.post("/orgs", {})
    rest.post("/orgs", {})
    keys = [headers.get("Idempotency-Key") for _, _, headers, _ in server.seen]
    assert keys[0] is None
    assert len({*keys}) == 3


def test_what_has_no_key_is_sent_once(server: Server, rest: Rest) -> None:
    server.replies = [None]
    with pytest.raises(ClientError, match="does not answer"):
        rest.delete("/orgs/acme", headers={"If-Match": '"1"'})
    assert len(server.seen) == 1


def test_it_does_not_wait_for_ever(server: Server, rest: Rest, waits: list[float]) -> None:
    server.replies = [(429, {"Retry-After": "9999999"}, json.dumps({"title": "Too many requests"}).encode())]
    with pytest.raises(Refused, match="Too many requests"):
        rest.get("/orgs")
    assert waits == [60.0, 60.0]


def test_an_idle_connection_is_not_trusted(server: Server, rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    rest.get("/orgs")
    monkeypatch.setattr("controlplane.client.rest.IDLE_SECONDS", -1)
    rest.get("/orgs")
    assert server.connections == 2


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ((200, {"Content-Type": "text/html"}, b"<html>"), "no JSON"),
        ((200, {}, b"{broken"), "no JSON"),
        ((200, {}, b"[" * 200_000), "no JSON"),
        ((200, {}, b"[" * 100 + b"]" * 100), "no JSON"),
        ((404, {"Content-Type": "text/html"}, b"nginx"), "status 404"),
        ((302, {"Location": "https://elsewhere/", "Content-Type": "text/html"}, b"moved"), "https://elsewhere/"),
    ],
)
def test_who_is_no_control_plane_is_called_so(server: Server, rest: Rest, reply: Reply, said: str) -> None:
    server.replies = [reply]
    with pytest.raises(ClientError, match=said):
        rest.get("/orgs")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:{free}", "http://no.such.host.invalid", "http://a..b", "http://127.0.0.1:1/a b"]
)
def test_nobody_there_is_a_sentence(url: str) -> None:
    rest = Rest(url.replace("{free}", str(free_port())), "t", timeout=2, sleep=lambda seconds: None)
    with pytest.raises(ClientError, match="does not answer"):
        rest.get("/orgs")


def test_too_slow_is_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        slow = Rest(f"http://127.0.0.1:{mute.getsockname()[1]}", "t", timeout=0.05, sleep=lambda seconds: None)
        with pytest.raises(ClientError, match="no answer in time"):
            slow.get("/orgs")


def test_what_json_cannot_say_is_not_sent(server: Server, rest: Rest) -> None:
    bodies: list[Callable[[], Any]] = [lambda: float("nan"), lambda: "\ud800"]
    for body in bodies:
        with pytest.raises(ClientError, match="JSON cannot say"):
            rest.post("/config/plan", {"x": body()})
    assert server.seen == []


def test_a_body_is_no_longer_than_it_must_be(server: Server, rest: Rest) -> None:
    rest.post("/config/plan", {"a": [1, 2], "b": "é"}, repeatable=True)
    assert server.seen[0][3] == '{"a":[1,2],"b":"é"}'.encode()


def test_what_is_no_letter_is_asked_for_and_not_found(server: Server, rest: Rest) -> None:
    rest.get(f"/orgs/{segment(chr(0xDCFF))}", organisation=chr(0xDCFF))
    assert server.seen[0][1] == "/api/v1/orgs/%ED%B3%BF?organisation=%ED%B3%BF"


def test_a_name_cannot_leave_its_segment() -> None:
    assert segment("../a?b#c") == "..%2Fa%3Fb%23c"
