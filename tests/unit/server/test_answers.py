"""What both APIs answer: their shapes, whole and in parts."""

from typing import Any

import pytest

from tests.unit.server.asking import Asker
from tests.unit.server.scripted import ScriptedBackend, saying


async def test_a_chat_is_answered_in_openais_shape(asker: Asker) -> None:
    answer = await asker.chat()
    assert answer.status == 200
    told = answer.document
    assert told["id"].startswith("chatcmpl-")
    assert told["object"] == "chat.completion"
    assert told["model"] == "tiny"
    message = {"role": "assistant", "content": "Hello", "refusal": None}
    assert told["choices"] == [
        {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop", "stop_reason": None}
    ]
    prompt = len("user: Hi\nassistant: ")
    assert told["usage"] == {
        "prompt_tokens": prompt,
        "completion_tokens": 5,
        "total_tokens": prompt + 5,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


async def test_a_completion_is_answered_in_openais_shape(asker: Asker) -> None:
    told = (await asker.complete()).document
    assert told["id"].startswith("cmpl-")
    assert told["object"] == "text_completion"
    assert told["choices"] == [
        {"index": 0, "text": "Hello", "logprobs": None, "finish_reason": "stop", "stop_reason": None}
    ]


async def test_a_streamed_chat_begins_with_the_role_and_ends_with_done(asker: Asker) -> None:
    answer = await asker.chat(stream=True)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    *parts, done = answer.events
    assert done == "[DONE]"
    assert {part["object"] for part in parts} == {"chat.completion.chunk"}
    assert len({part["id"] for part in parts}) == 1
    assert parts[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(part["choices"][0]["delta"].get("content", "") for part in parts) == "Hello"
    assert [part["choices"][0]["finish_reason"] for part in parts] == [None] * 5 + ["stop"]
    assert not any("usage" in part for part in parts)


async def test_usage_comes_last_where_it_is_asked_for(asker: Asker) -> None:
    *parts, last, done = (await asker.chat(stream=True, stream_options={"include_usage": True})).events
    assert done == "[DONE]"
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 5
    assert [part["usage"] for part in parts] == [None] * len(parts)


async def test_usage_can_come_with_every_part(asker: Asker) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    *parts, _ = (await asker.complete(stream=True, stream_options=options)).events
    assert [part["usage"]["completion_tokens"] for part in parts] == [1, 2, 3, 4, 5, 5]


async def test_choices_of_several_prompts_are_numbered_through(asker: Asker) -> None:
    told = (await asker.complete(prompt=["One", "Three"], n=2, echo=True)).document
    assert [choice["index"] for choice in told["choices"]] == [0, 1, 2, 3]
    assert [choice["text"] for choice in told["choices"]] == ["OneHello"] * 2 + ["ThreeHello"] * 2
    assert told["usage"]["prompt_tokens"] == 8
    assert told["usage"]["completion_tokens"] == 20


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [("ab", [[97, 98]]), (["ab", "c"], [[97, 98], [99]]), ([97, 98], [[97, 98]]), ([[97], [98, 99]], [[97], [98, 99]])],
)
async def test_a_prompt_is_text_or_token_ids_one_or_many(
    asker: Asker, backend: ScriptedBackend, prompt: Any, tokens: list[list[int]]
) -> None:
    assert (await asker.complete(prompt=prompt)).status == 200
    assert [list(one) for one in backend.requests[0].prompts] == tokens


async def test_token_ids_are_echoed_as_text(asker: Asker) -> None:
    assert (await asker.complete(prompt=[72, 105], echo=True)).document["choices"][0]["text"] == "HiHello"


async def test_an_echo_comes_first_in_a_stream(asker: Asker) -> None:
    *parts, _ = (await asker.complete(prompt="Hi ", echo=True, stream=True)).events
    assert "".join(part["choices"][0]["text"] for part in parts) == "Hi Hello"


async def test_a_chats_logprobs_have_tokens_and_bytes(asker: Asker, backend: ScriptedBackend) -> None:
    backend.script = saying("A", logprobs=True)
    logprobs = (await asker.chat(logprobs=True, top_logprobs=2)).document["choices"][0]["logprobs"]
    a = {"token": "A", "logprob": -0.5, "bytes": [65]}
    end = {"token": "<end>", "logprob": -9999.0, "bytes": list(b"<end>")}  # JSON has no infinity
    assert logprobs == {"content": [{**a, "top_logprobs": [a, end]}], "refusal": None}
    assert backend.requests[0].sampling.logprobs == 2


async def test_a_completions_logprobs_have_offsets_also_over_parts(asker: Asker, backend: ScriptedBackend) -> None:
    backend.script = saying("Abc", logprobs=True)
    logprobs = (await asker.complete(logprobs=1)).document["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["A", "b", "c"]
    assert logprobs["token_logprobs"] == [-0.5] * 3
    assert logprobs["text_offset"] == [0, 1, 2]
    assert logprobs["top_logprobs"][0] == {"A": -0.5, "<end>": -9999.0}
    *parts, _ = (await asker.complete(logprobs=1, stream=True)).events
    assert [part["choices"][0]["logprobs"]["text_offset"] for part in parts] == [[0], [1], [2]]


async def test_what_stopped_an_answer_is_told(asker: Asker, backend: ScriptedBackend) -> None:
    from engine_agent.engine.outputs import Delta

    backend.script = lambda _: [Delta(0, 65, "A", None, "stop", "\n\n")]
    choice = (await asker.complete(stop="\n\n")).document["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "\n\n")


async def test_token_ids_are_returned_where_they_are_asked_for(asker: Asker) -> None:
    told = (await asker.complete(prompt=[72, 105], return_token_ids=True)).document
    assert told["choices"][0]["prompt_token_ids"] == [72, 105]
    assert told["choices"][0]["token_ids"] == list(b"Hello")
    *parts, _ = (await asker.chat(return_token_ids=True, stream=True)).events
    assert bytes(parts[0]["prompt_token_ids"]) == b"user: Hi\nassistant: "
    assert [part["choices"][0]["token_ids"] for part in parts[1:]] == [[one] for one in b"Hello"]


async def test_the_model_is_listed(asker: Asker) -> None:
    listed = (await asker.get("/v1/models")).document
    assert [one["id"] for one in listed["data"]] == ["tiny"]
    assert (await asker.get("/v1/models/tiny")).document == listed["data"][0]
    missing = await asker.get("/v1/models/some/other")
    assert (missing.status, missing.error["code"]) == (404, "model_not_found")
    assert missing.error["message"] == "There is no model 'some/other' here. Served here: tiny."
