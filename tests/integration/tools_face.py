"""A backend that has tools, as vLLM has them: it stands before a real engine, which has none.

Its chats' tools are part of the prompt, which the engine computes and caches; what is answered is a call of the first
tool. It holds a stream back until it may go on, and can break it off.
"""

import json
from asyncio import Event
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from engine_agent.http.client import Asgi, Message, Receive, Scope, Send
from engine_agent.prompts.bundle import Bundle
from tests.engines.rendering import template_made
from tests.integration.openai_engine import FOLDER, MODEL

CHAT = "/v1/chat/completions"
TEMPLATE = (
    "{%- if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n"
    "{% endif -%}"
    "{%- for message in messages -%}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{%- for call in message.tool_calls %}<tool_call>{{ call.function.arguments | tojson }}</tool_call>{% endfor -%}"
    "<|im_end|>\n{% endfor -%}{%- if add_generation_prompt -%}<|im_start|>assistant\n{% endif -%}"
)
BUNDLE = replace(Bundle.from_folder(FOLDER), template_source=TEMPLATE, contents="text")
TOOLS = template_made(BUNDLE.template)
ARGUMENTS = '{"city": "Brest", "days": 3}'


class ToolsFace:
    def __init__(self, engine: Asgi) -> None:
        self._engine = engine
        self.bodies: list[bytes] = []
        self.prompts: list[list[int]] = []
        self.goes_on, self.breaks_off = Event(), False
        self.goes_on.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != CHAT:
            await self._engine(scope, receive, send)
            return
        body = await _read(receive)
        self.bodies.append(body)
        asked = json.loads(body)
        headers = await self._computed(scope, asked)
        if asked.get("stream"):
            await self._stream(asked, headers, send)
        else:
            told = {"object": "chat.completion", "choices": [_choice("message", _call(asked), "tool_calls")]}
            await _answer(send, headers, "application/json", [json.dumps({**_about(), **told}).encode()])

    async def _computed(self, scope: Scope, asked: Mapping[str, Any]) -> list[tuple[bytes, bytes]]:
        """The prompt, by the engine; what it says of its cache."""
        text = TOOLS.render(_objects_again(asked["messages"]), tools=asked.get("tools"))
        self.prompts.append(BUNDLE.encode(text, add_special=False))
        inner = json.dumps({"model": MODEL, "prompt": self.prompts[-1], "max_tokens": 1}).encode()
        length = (b"content-length", str(len(inner)).encode())
        headers = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
        said: list[Message] = []
        sending = iter([{"type": "http.request", "body": inner, "more_body": False}])

        async def receive() -> Message:
            for message in sending:
                return message
            await Event().wait()  # whoever asks stays
            raise AssertionError

        async def send(message: Message) -> None:
            said.append(message)

        await self._engine({**scope, "path": "/v1/completions", "headers": [*headers, length]}, receive, send)
        assert said[0]["status"] == 200, said
        return [(name, value) for name, value in said[0]["headers"] if name.startswith(b"x-luminet-")]

    async def _stream(self, asked: Mapping[str, Any], headers: list[tuple[bytes, bytes]], send: Send) -> None:
        await send(_start(headers, "text/event-stream"))
        await self.goes_on.wait()
        first, *others = _deltas(asked)
        await send(_body(_event(first), more=True))
        if self.breaks_off:
            raise ConnectionAbortedError("as it was told to")
        for delta in others:
            await send(_body(_event(delta), more=True))
        await send(_body(_event(_choice("delta", {}, "tool_calls")) + b"data: [DONE]\n\n", more=False))


def _objects_again(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Arguments of calls, which come as text."""
    found = [{"content": "", **{name: one for name, one in message.items() if one is not None}} for message in messages]
    for message in found:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return found


# What it says


def _about() -> dict[str, Any]:
    return {"id": "chatcmpl-1", "created": 1_700_000_000, "model": MODEL}


def _call(asked: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": asked["tools"][0]["function"]["name"], "arguments": ARGUMENTS}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call-1", "type": "function", "function": function}],
    }


def _deltas(asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The call's name, then what it is called with, piece by piece."""
    (call,) = _call(asked)["tool_calls"]
    named = {**call, "index": 0, "function": {**call["function"], "arguments": ""}}
    pieces = [{"index": 0, "function": {"arguments": ARGUMENTS[at : at + 9]}} for at in range(0, len(ARGUMENTS), 9)]
    return [_choice("delta", {"tool_calls": [one]}, None) for one in (named, *pieces)]


def _choice(kind: str, said: Mapping[str, Any], why: str | None) -> dict[str, Any]:
    return {"index": 0, kind: said, "finish_reason": why}


def _event(choice: Mapping[str, Any]) -> bytes:
    told = {**_about(), "object": "chat.completion.chunk", "choices": [choice]}
    return f"data: {json.dumps(told)}\n\n".encode()


# ASGI


async def _read(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


async def _answer(send: Send, headers: list[tuple[bytes, bytes]], kind: str, parts: Iterable[bytes]) -> None:
    await send(_start(headers, kind))
    for part in parts:
        await send(_body(part, more=True))
    await send(_body(b"", more=False))


def _start(headers: list[tuple[bytes, bytes]], kind: str) -> Message:
    return {"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind.encode()), *headers]}


def _body(data: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}
