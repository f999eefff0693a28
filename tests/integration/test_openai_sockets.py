"""Clients that are not as they should be, on raw sockets, and `curl`: the engine serves on, with every block freed."""

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from engine_agent.http import connections
from engine_agent.journal.journal import Closed, Opened
from tests.integration.openai_engine import MODEL, OpenAiEngine, running
from tests.unit.server.identities import KEY

SECONDS = 20
RESET = b"\1\0\0\0\0\0\0\0"  # not a goodbye
LONG = {"model": MODEL, "prompt": "The sea", "max_tokens": 1_500, "ignore_eos": True}
SHORT = {"model": MODEL, "prompt": "The sea", "max_tokens": 2}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAiEngine]:
    with running(tmp_path_factory.mktemp("journal"), patience=0.5) as engine:
        yield engine


@pytest.fixture(autouse=True)
def serves_on(engine: OpenAiEngine) -> Iterator[None]:
    """After each of them: nothing runs, every block is accounted for, and the next client is served."""
    yield
    engine.until_idle()
    with closing(connected(engine)) as client:
        client.sendall(request(SHORT))
        assert read_response(client)[0] == 200


def connected(engine: OpenAiEngine, *, receive_buffer: int | None = None) -> socket.socket:
    client = socket.socket()
    client.settimeout(SECONDS)
    if receive_buffer:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.connect(("127.0.0.1", engine.port))
    return client


def request(body: Any, *, path: str = "/v1/completions", more: str = "", key: str = KEY) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n{more}"
    length = "" if "transfer-encoding" in more else f"content-length: {len(data)}\r\n"
    return f"{head}{length}\r\n".encode() + data


def read_head(client: socket.socket) -> tuple[int, bytes, bytes]:
    """Status, headers, and what came of the body."""
    received = b""
    while b"\r\n\r\n" not in received:
        data = client.recv(4_096)
        assert data, f"the server hung up after {received!r}"
        received += data
    head, _, rest = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), head, rest


def read_response(client: socket.socket) -> tuple[int, Any]:
    status, head, body = read_head(client)
    length = re.search(rb"content-length: (\d+)", head)
    assert length
    while len(body) < int(length[1]):
        body += client.recv(65_536)
    return status, json.loads(body)


def everything(client: socket.socket) -> bytes:
    """Until the server hangs up."""
    received = b""
    while data := client.recv(65_536):
        received += data
    return received


def closings(engine: OpenAiEngine) -> list[Closed]:
    return [record for record in engine.records if isinstance(record, Closed)]


def test_a_connection_that_is_cut_in_a_stream_ends_its_generation(engine: OpenAiEngine) -> None:
    client = connected(engine)
    client.sendall(request({**LONG, "stream": True}))
    assert read_head(client)[0] == 200
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    client.close()
    engine.until_idle()
    assert closings(engine)[-1].outcome == "cancelled"
    assert closings(engine)[-1].generated_tokens < 1_500


def test_a_connection_that_is_cut_before_the_answer_ends_its_generation_and_counts_nowhere(
    engine: OpenAiEngine,
) -> None:
    seen = len(engine.records)
    with closing(connected(engine)) as client:
        client.sendall(request(LONG))
        engine.until_busy()
    engine.until_idle()
    assert len(engine.records) == seen


@pytest.mark.parametrize("is_stream", [False, True])
def test_who_has_said_all_it_will_say_gets_all_of_its_answer(engine: OpenAiEngine, is_stream: bool) -> None:
    with closing(connected(engine)) as client:
        client.sendall(request({**LONG, "max_tokens": 200, "stream": is_stream}))
        client.shutdown(socket.SHUT_WR)
        received = everything(client)
    assert b"HTTP/1.1 200" in received
    assert received.rstrip().endswith(b"0" if is_stream else b"}")  # the last chunk, or JSON's end
    assert (b"data: [DONE]" in received) == is_stream
    engine.until_idle()
    assert closings(engine)[-1].outcome == "length"


@pytest.mark.parametrize("is_stream", [False, True])
def test_who_asks_again_before_it_is_answered_and_then_leaves_is_cancelled(
    engine: OpenAiEngine, is_stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    seen = len(engine.records)
    client = connected(engine)
    client.sendall(request({**LONG, "stream": is_stream}))
    if is_stream:
        assert read_head(client)[0] == 200
    engine.until_busy()
    client.sendall(request(SHORT))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    client.close()
    engine.until_idle()
    told = engine.records[seen:]
    assert [one.outcome for one in told if isinstance(one, Closed)] == ["cancelled"] * is_stream
    assert len(told) == 2 * is_stream
    assert [line for line in caplog.records if line.levelname == "ERROR"] == []


def test_who_reads_nothing_and_asks_on_is_not_counted_for_what_it_is_not_told(engine: OpenAiEngine) -> None:
    seen = len(engine.records)
    large = {**SHORT, "max_tokens": 400, "ignore_eos": True, "logprobs": 20}
    with closing(connected(engine, receive_buffer=4_096)) as client:
        client.sendall(request(large))
        engine.until_busy()
        engine.until_idle()  # its answer is larger than what the sockets hold
        client.sendall(request(SHORT))
        received = everything(client)
    assert received.count(b"HTTP/1.1 200") == 1
    assert len([one for one in engine.records[seen:] if isinstance(one, Opened)]) == 1


def test_who_is_refused_cannot_go_on_sending_for_ever(engine: OpenAiEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "DISCARD_SECONDS", 0.2)
    with closing(connected(engine)) as client:
        client.sendall(request(b"", key="sk-other").replace(b"content-length: 0", b"content-length: 9999"))
        assert read_response(client)[0] == 401
        client.sendall(b"x")
        assert client.recv(1) == b""


def test_a_stream_for_http_1_0_has_no_chunks(engine: OpenAiEngine) -> None:
    with closing(connected(engine)) as client:
        client.sendall(request({**SHORT, "stream": True}).replace(b"HTTP/1.1", b"HTTP/1.0"))
        head, _, body = everything(client).partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert body.startswith(b"data: {")
    assert body.endswith(b"data: [DONE]\n\n")


def test_who_does_not_read_is_given_up_after_a_while(engine: OpenAiEngine) -> None:
    with closing(connected(engine, receive_buffer=4_096)) as client:
        client.sendall(request({**LONG, "stream": True, "logprobs": 20}))
        engine.until_busy()
        engine.until_idle()  # though nobody has read a byte
    assert closings(engine)[-1].outcome == "cancelled"


def test_a_body_that_does_not_come_is_not_waited_for(engine: OpenAiEngine) -> None:
    with closing(connected(engine)) as client:
        client.sendall(request(b'{"model":').replace(b"content-length: 9", b"content-length: 99"))
        status, answer = read_response(client)
        assert (status, answer["error"]["code"]) == (408, "request_timeout")
        assert client.recv(1) == b""


def test_a_body_may_come_in_chunks(engine: OpenAiEngine) -> None:
    data = json.dumps(SHORT).encode()
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in data) + b"0\r\n\r\n"
    with closing(connected(engine)) as client:
        client.sendall(request(chunks, more="transfer-encoding: chunked\r\n"))
        assert read_response(client)[0] == 200


def test_who_asks_before_sending_is_not_sent_for_in_vain(engine: OpenAiEngine) -> None:
    with closing(connected(engine)) as client:
        head = request(b"", more="expect: 100-continue\r\n").replace(b"content-length: 0", b"content-length: 99999999")
        client.sendall(head)
        assert read_response(client)[0] == 413


def test_after_a_refusal_the_connection_still_serves(engine: OpenAiEngine) -> None:
    with closing(connected(engine)) as client:
        for body, status in (
            ({**SHORT, "tools": [{}]}, 400),
            (b"x" * 3_000_000, 413),
            (SHORT, 200),
        ):
            client.sendall(request(body))
            assert read_response(client)[0] == status
        client.sendall(request(SHORT, key="sk-other"))
        assert read_response(client)[0] == 401


def curl(engine: OpenAiEngine, *arguments: str, body: Any = None, path: str = "/v1/chat/completions") -> str:
    if not (program := shutil.which("curl")):
        pytest.skip("curl is not installed here")
    data = [] if body is None else ["-d", json.dumps(body)]
    command = [program, "-sS", "--max-time", "20", "-H", f"authorization: Bearer {KEY}", *arguments, *data]
    return subprocess.run([*command, engine.url + path], check=True, capture_output=True, text=True).stdout


def test_curl_is_answered(engine: OpenAiEngine) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
    answer = json.loads(curl(engine, body=body))
    assert answer["usage"]["completion_tokens"] <= 4
    head, _, streamed = curl(engine, "-i", "-N", body={**body, "stream": True}).partition("\n\n")
    assert "x-luminet-cache-hit:" in head
    assert "x-request-id:" in head
    assert streamed.rstrip().endswith("data: [DONE]")
    assert json.loads(curl(engine, path="/v1/models"))["data"][0]["id"] == MODEL
    assert json.loads(curl(engine, path="/health")) == {"status": "ok"}
    assert "vllm:prefix_cache_queries_total" in curl(engine, path="/metrics")
