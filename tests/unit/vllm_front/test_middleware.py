"""When headers leave, what they say, and what takes the place of an answer."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from engine_agent.engine.outputs import Admission
from engine_agent.http.errors import ApiError
from engine_agent.vllm_front.ask import CURRENT, Ask
from engine_agent.vllm_front.middleware import Identified
from engine_agent.vllm_front.whose import Caller

HIT = Admission(100, 64, "bf16", 3, "none", {"tail": 36})
MISS = Admission(50, 0, "bf16", 3, "cold", {"cold": 50})
START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]}
Send = Callable[[Any], Awaitable[None]]


def body(text: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": text}


def whose(headers: Mapping[str, str]) -> Caller:
    if headers.get("authorization") != "Bearer key":
        raise ApiError(401, "nobody", headers={"www-authenticate": "Bearer"})
    return Caller("acme", "acme")


async def asked(
    app: Callable[[Ask | None, Send, list[Any]], Awaitable[None]],
    *,
    method: str = "POST",
    path: str = "/v1/completions",
    key: bytes = b"Bearer key",
    kind: str = "http",
) -> list[Any]:
    """What left, in its order. The app is given the request as it is known, and what has left by now."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def run(scope: Any, receive: Any, reply: Send) -> None:
        await app(CURRENT.get(), reply, sent)

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    headers = [(b"authorization", key)] if key else []
    scope = {"type": kind, "method": method, "path": path, "headers": headers}
    await Identified(run, whose=whose, agent_id=lambda: "vllm-1")(scope, receive, send)
    assert CURRENT.get() is None
    return sent


def told(message: Any) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in message["headers"]}


async def test_a_streams_headers_leave_at_admission_before_its_first_token() -> None:
    async def app(ask: Ask | None, send: Send, sent: list[Any]) -> None:
        assert ask
        ask.expect()
        await send(START)
        await asyncio.sleep(0)
        assert sent == []
        ask.settle(HIT)
        while not sent:  # noqa: ASYNC110 (what is sent has no event)
            await asyncio.sleep(0)
        assert told(sent[0])["x-luminet-cached-tokens"] == "64"
        await send(body(b"token"))

    start, first = await asked(app)
    assert told(start)["x-luminet-cache-hit"] == "64.0"
    assert told(start)["content-type"] == "text/plain"
    assert first["body"] == b"token"


async def test_the_first_token_of_one_prompt_waits_for_what_the_others_hit() -> None:
    async def app(ask: Ask | None, send: Send, sent: list[Any]) -> None:
        assert ask
        ask.expect()
        ask.expect()
        ask.settle(HIT)
        await send(START)
        asyncio.get_running_loop().call_later(0.02, ask.settle, MISS)
        await send(body(b": keeps the stream alive"))
        assert sent == []
        await send(body(b"token"))

    start, first = await asked(app)
    assert (told(start)["x-luminet-prompt-tokens"], told(start)["x-luminet-miss-reason"]) == ("150", "cold")
    assert first["body"] == b"token"


async def test_what_the_engine_refuses_takes_the_place_of_the_answer() -> None:
    async def app(ask: Ask | None, send: Send, sent: list[Any]) -> None:
        assert ask
        ask.expect()
        await send(START)
        ask.settle(ApiError(503, "no room", code="overloaded"))
        await send(body(b"an error of vLLM's"))
        await send(body(b""))

    start, only = await asked(app)
    assert start["status"] == 503
    assert b'"overloaded"' in only["body"]


@pytest.mark.parametrize("is_tried", [False, True])
async def test_what_never_reaches_the_engine_is_answered_without_numbers(is_tried: bool) -> None:
    async def app(ask: Ask | None, send: Send, sent: list[Any]) -> None:
        assert ask
        ask.expect()
        if is_tried:
            ask.settle()
        await send({**START, "status": 400})
        await send(body(b"bad"))

    start, _ = await asked(app)
    assert start == {**START, "status": 400}


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/health"), ("POST", "/luminet/purge"), ("PUT", "/luminet/policies")]
)
async def test_who_only_looks_and_the_operator_are_nobody_in_particular(method: str, path: str) -> None:
    async def app(ask: Ask | None, send: Send, sent: list[Any]) -> None:
        assert ask is None
        await send(START)

    assert await asked(app, method=method, path=path, key=b"") == [START]


async def test_nobodys_request_never_reaches_vllm() -> None:
    async def app(ask: Ask | None, send: Send, sent: list[Any]) -> None:
        raise AssertionError("it was let in")

    start, _ = await asked(app, key=b"Bearer other")
    assert (start["status"], told(start)["www-authenticate"]) == (401, "Bearer")
    assert [one["type"] for one in await asked(app, key=b"", kind="websocket")] == ["websocket.close"]
