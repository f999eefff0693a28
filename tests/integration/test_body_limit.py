import json
import logging

import pytest
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from hypothesis import given
from hypothesis import strategies as st

from controlplane.api.body_limit import MEBIBYTE, body_limit_of, head_refusal
from controlplane.web.middleware import StrongETagGZip
from tests.servers.asgi_clients import ask

pytestmark = pytest.mark.django_db(transaction=True)
FORM = {"content-type": "application/x-www-form-urlencoded"}


def test_only_configuration_documents_may_be_large() -> None:
    limits = {path: body_limit_of(path) for path in ("/", "/api/v1/orgs", "/api/v1/config", "/api/v1/config/plan")}
    assert limits == {
        "/": MEBIBYTE,
        "/api/v1/orgs": MEBIBYTE,
        "/api/v1/config": MEBIBYTE,
        "/api/v1/config/plan": 8 * MEBIBYTE,
    }
    assert max(limits.values()) == settings.DATA_UPLOAD_MAX_MEMORY_SIZE


async def test_a_body_that_announces_too_much_is_refused_unread() -> None:
    headers = {"content-length": str(MEBIBYTE + 1), "x-request-id": "mine-1"}
    status, answered, body = await ask("/api/v1/orgs", method="POST", headers=headers, chunks=())
    assert (status, answered["content-type"]) == (413, "application/problem+json")
    assert json.loads(body) == {
        "type": "/api/v1/docs#problem-too-large",
        "title": "The body is too large",
        "status": 413,
        "detail": "body is larger than the 1048576 bytes taken here",
        "errors": [{"field": "body", "message": "is larger than the 1048576 bytes taken here"}],
        "request_id": "mine-1",
    }


async def test_a_page_says_it_in_words() -> None:
    headers = {"content-length": str(MEBIBYTE + 1)}
    status, answered, body = await ask("/sign-in", method="POST", headers=headers, chunks=())
    assert (status, answered["content-type"]) == (413, "text/plain; charset=utf-8")
    assert body == b"The body is too large: body is larger than the 1048576 bytes taken here\n"


async def test_a_body_that_announces_nothing_is_cut_when_it_grows_too_large() -> None:
    chunks = [b"x" * (MEBIBYTE // 4)] * 4
    status, _, _ = await ask("/api/v1/orgs", method="POST", chunks=[*chunks, b"x", *chunks])
    assert status == 413


@pytest.mark.parametrize(("path", "size"), [("/no/such", MEBIBYTE), ("/api/v1/config/plan", 8 * MEBIBYTE)])
async def test_a_body_of_exactly_the_limit_reaches_django(path: str, size: int) -> None:
    chunks = [b"x" * (size // 2)] * 2
    status, _, _ = await ask(path, method="POST", headers={"content-length": str(size)}, chunks=chunks)
    assert status in {401, 403, 404, 405}


async def test_a_body_that_lies_about_its_length_is_cut_as_well() -> None:
    chunks = [b"x" * MEBIBYTE] * 2
    assert (await ask("/sign-in", method="POST", headers={"content-length": "5"}, chunks=chunks))[0] == 413


@pytest.mark.parametrize("length", ["-1", "+5", "1e3", "", " ", "0x10", "5, 5", "9" * 30, "٣"])
async def test_a_malformed_length_is_refused(length: str) -> None:
    status, _, body = await ask("/api/v1/orgs", method="POST", headers={"content-length": length})
    assert status == 400
    assert json.loads(body)["errors"][0]["field"] == "Content-Length"


def test_two_lengths_that_differ_are_refused() -> None:
    def refused(*values: bytes) -> bool:
        headers = [(b"content-length", value) for value in values]
        return head_refusal({"path": "/", "headers": headers}, 100) is not None

    assert refused(b"5", b"6")
    assert not refused(b"5", b"5")


async def test_a_path_or_query_that_django_would_stumble_over_is_refused() -> None:
    status, _, body = await ask("/api/v1/orgs/a\0b")
    assert (status, json.loads(body)["errors"][0]["field"]) == (400, "path")
    status, _, body = await ask("/api/v1/orgs", query=b"a=\xff")
    assert (status, json.loads(body)["errors"][0]["field"]) == (400, "query")


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json; x*=no-such''y", 400),
        ("text/plain; charset=base64", 415),
        ("text/plain; charset=utf-16", 415),
    ],
)
async def test_a_content_type_that_django_would_stumble_over_is_refused(content_type: str, status: int) -> None:
    answer = await ask("/api/v1/orgs", method="POST", headers={"content-type": content_type})
    assert answer[0] == status
    assert json.loads(answer[2])["errors"][0]["field"] == "Content-Type"


@given(
    st.binary(max_size=60)
    | st.text(st.sampled_from("application/json; charset*0='\"=utf-8%,"), max_size=60).map(str.encode)
)
def test_any_content_type_is_read_or_refused(value: bytes) -> None:
    head_refusal({"path": "/", "headers": [(b"content-type", value)]}, 100)


async def test_a_head_request_gets_no_body() -> None:
    status, _, body = await ask("/api/v1/orgs", method="HEAD", headers={"content-length": "no"})
    assert (status, body) == (400, b"")


@pytest.mark.parametrize(("etag", "encoding"), [('"7"', None), (None, "gzip")])
def test_a_strong_tag_stays_strong_because_its_answer_is_not_compressed(etag: str | None, encoding: str | None) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse(b"a" * 5000, headers={"ETag": etag} if etag else {})

    answer = StrongETagGZip(view)(RequestFactory().get("/", headers={"accept-encoding": "gzip"}))
    assert isinstance(answer, HttpResponse)
    assert (answer.get("ETag"), answer.get("Content-Encoding")) == (etag, encoding)


@pytest.mark.parametrize(
    "path", ["/invitation/hush-hush", "/reset/hush-hush", "/reset/hush-hush/", "/invitation/hush-hush/x"]
)
def test_the_log_does_not_know_one_time_links(path: str, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "luminet.web"):
        client.get(path)
    lines = [vars(record)["path"] for record in caplog.records if record.name == "luminet.web"]
    assert lines
    assert not [line for line in lines if "hush" in line]
    assert "…" in lines[0]
