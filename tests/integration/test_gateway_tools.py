"""What a backend can do and the gateway cannot: tools, and answers in a form. It passes through untouched, both ways,
and tools are part of the prompt by which requests are routed.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from engine_agent.http.client import Asgi
from tests.integration.gateway_fleet import Gateway
from tests.integration.openai_doors import before
from tests.integration.openai_engine import MODEL, SECONDS, OpenAiEngine, running
from tests.integration.tools_face import ARGUMENTS, BUNDLE, ToolsFace
from tests.support.waiting import wait_until
from tests.unit.server.identities import KEY

SYSTEM = "You know the weather of every harbour, and say it in few words. " * 8
MESSAGES: Any = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "How is the wind?"}]


def tool(name: str) -> Any:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
    return {"type": "function", "function": {"name": name, "parameters": parameters, "description": f"{name}. " * 20}}


@dataclass(frozen=True, slots=True)
class Backend:
    engine: OpenAiEngine
    face: ToolsFace
    gateway: Gateway
    sent: list[bytes]
    client: OpenAI

    def foretold(self) -> dict[str, float]:
        names = ("predicted", "cached", "prompt")
        registry = self.gateway.observer.registry
        return {name: registry.get_sample_value(f"luminet_gateway_{name}_tokens_total") or 0.0 for name in names}


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    faces: list[ToolsFace] = []

    def face(app: Asgi) -> Asgi:
        faces.append(ToolsFace(app))
        return faces[-1]

    sent: list[bytes] = []
    hooks: Any = {"request": [lambda request: sent.append(request.content)]}
    with (
        running(tmp_path_factory.mktemp("journal"), bundle=BUNDLE, face=face) as engine,
        before(engine) as gateway,
        OpenAI(
            base_url=f"{gateway.url}/v1",
            api_key=KEY,
            max_retries=0,
            http_client=openai.DefaultHttpxClient(event_hooks=hooks, timeout=SECONDS),
        ) as client,
    ):
        yield Backend(engine, faces[0], gateway, sent, client)


@pytest.mark.parametrize("stream", [False, True])
def test_whatever_the_backend_can_do_reaches_it_byte_for_byte(backend: Backend, stream: bool) -> None:
    schema = {"name": "wind", "strict": True, "schema": {"type": "object", "properties": {"knots": {"type": "number"}}}}
    create: Any = backend.client.chat.completions.create
    calls = create(
        model=MODEL,
        messages=MESSAGES,
        tools=[tool("weather"), tool("tides")],
        tool_choice={"type": "function", "function": {"name": "weather"}},
        response_format={"type": "json_schema", "json_schema": schema},
        parallel_tool_calls=True,
        reasoning_effort="low",
        temperature=0.1 + 0.2,
        metadata={"ü\u2028": "\U0001f600"},
        stream=stream,
        extra_body={"structured_outputs": {"regex": "\\d+"}, "something_new": [1e300, 10**30, None, {}]},
    )
    told = _call_of(calls) if stream else calls.choices[0].message.tool_calls[0].function
    assert backend.face.bodies[-1] == backend.sent[-1]
    assert json.loads(backend.sent[-1])["something_new"][1] == 10**30
    assert (told.name, told.arguments) == ("weather", ARGUMENTS)


def _call_of(stream: Any) -> Any:
    """Put together again, as clients do."""
    *parts, last = stream
    assert last.choices[0].finish_reason == "tool_calls"
    first, *others = [call for part in parts for call in part.choices[0].delta.tool_calls]
    for other in others:
        first.function.arguments += other.function.arguments
    return first.function


def test_a_body_that_is_odd_but_json_reaches_it_as_it_is_written(backend: Backend) -> None:
    written = b' {"messages":[{"role":"user","content":"\\u0041"}], "tools":%b,\t"model":"%b", "x": 1.0e+2}\n' % (
        json.dumps([tool("odd")], indent=3).encode(),
        MODEL.encode(),
    )
    headers = {"authorization": f"Bearer {KEY}"}
    answer = httpx.post(f"{backend.gateway.url}/v1/chat/completions", content=written, headers=headers)
    assert answer.status_code == 200
    assert backend.face.bodies[-1] == written


def test_tools_and_their_calls_are_part_of_the_prompt_that_requests_are_routed_by(backend: Backend) -> None:
    """With the same words and other tools the prompt is another from its beginning on, and the gateway knows it."""
    call = {"id": "call-1", "type": "function", "function": {"name": "tides", "arguments": '{"city":"Brest"}'}}
    history: Any = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call-1", "content": "High at noon, low at six. " * 10},
    ]
    ask = backend.client.chat.completions.with_raw_response.create
    tools = [tool("tides")]
    ask(model=MODEL, messages=history, tools=tools)

    def is_foretold() -> bool:
        """Whether the gateway knows the whole prompt: it hears of its blocks in more than one message."""
        known_before = backend.foretold()["predicted"]
        ask(model=MODEL, messages=history, tools=tools)
        return backend.foretold()["predicted"] - known_before == (len(backend.face.prompts[-1]) - 1) // 16 * 16

    wait_until(is_foretold)
    start = backend.foretold()
    known = [ask(model=MODEL, messages=history, tools=tools).headers for _ in range(2)]
    middle = backend.foretold()
    other = ask(model=MODEL, messages=history, tools=[tool("currents")]).headers
    end = backend.foretold()
    cached = sum(int(headers["x-luminet-cached-tokens"]) for headers in known)
    matchable = (len(backend.face.prompts[-2]) - 1) // 16 * 16
    assert middle["predicted"] - start["predicted"] == middle["cached"] - start["cached"] == cached == 2 * matchable
    shared = int(other["x-luminet-cached-tokens"])  # how every list of tools begins
    assert end["predicted"] - middle["predicted"] == shared < matchable / 4
    assert int(other["x-luminet-prompt-tokens"]) == len(backend.face.prompts[-1])


def test_headers_leave_the_gateway_before_anything_of_the_answer_is_there(backend: Backend) -> None:
    create = backend.client.chat.completions.with_streaming_response.create
    backend.engine.loop.call_soon_threadsafe(backend.face.goes_on.clear)
    with create(model=MODEL, messages=MESSAGES, tools=[tool("late")], stream=True) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        assert int(answer.headers["x-luminet-prompt-tokens"]) == len(backend.face.prompts[-1])
        assert not backend.face.goes_on.is_set()
        backend.engine.loop.call_soon_threadsafe(backend.face.goes_on.set)
        assert list(answer.parse())[-1].choices[0].finish_reason == "tool_calls"


def test_a_stream_that_breaks_off_raises_the_clients_own_error_after_what_had_come(backend: Backend) -> None:
    backend.face.breaks_off = True
    try:
        create: Any = backend.client.chat.completions.create
        stream = create(model=MODEL, messages=MESSAGES, tools=[tool("broken")], stream=True)
        first = next(iter(stream))
        assert first.choices[0].delta.tool_calls[0].function.name == "broken"
        with pytest.raises(openai.APIError) as caught:
            list(stream)
    finally:
        backend.face.breaks_off = False
    assert caught.value.code == "engine_lost"
