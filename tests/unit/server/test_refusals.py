"""What is not supported is refused by name, and what is wrong is told in OpenAI's shape with the parameter at fault."""

from typing import Any

import pytest

from engine_agent.engine.errors import BadRequest, DeadlinePassed, EngineFailed, Overloaded, Overlong, UnknownTenant
from engine_agent.server.schemas import ChatRequest, CompletionRequest
from engine_agent.server.unsupported import CHAT as UNSUPPORTED_IN_CHATS
from engine_agent.server.unsupported import COMPLETIONS as UNSUPPORTED_IN_COMPLETIONS
from tests.unit.server.asking import Answered, Asker
from tests.unit.server.scripted import ScriptedBackend

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
USER = {"role": "user", "content": "Hi"}


def refused(answer: Answered, param: str | None, status: int = 400) -> None:
    assert (answer.status, answer.error["param"]) == (status, param), answer.body
    assert answer.error.keys() == {"message", "type", "param", "code"}
    assert answer.error["type"] == ("invalid_request_error" if status < 500 else "server_error")
    assert answer.error["message"]


@pytest.mark.parametrize("name", UNSUPPORTED_IN_CHATS)
async def test_what_a_chat_cannot_have_is_refused_by_name(asker: Asker, name: str) -> None:
    answer = await asker.chat(**{name: {"anything": 1}})
    refused(answer, name)
    assert answer.error["code"] == "unsupported_parameter"
    for harmless in (None, *UNSUPPORTED_IN_CHATS[name].harmless):
        assert (await asker.chat(**{name: harmless})).status == 200


@pytest.mark.parametrize("name", UNSUPPORTED_IN_COMPLETIONS)
async def test_what_a_completion_cannot_have_is_refused_by_name(asker: Asker, name: str) -> None:
    refused(await asker.complete(**{name: 1}), name)
    for harmless in (None, *UNSUPPORTED_IN_COMPLETIONS[name].harmless):
        assert (await asker.complete(**{name: harmless})).status == 200


async def test_what_nobody_knows_is_refused_by_name(asker: Asker) -> None:
    answer = await asker.chat(temprature=0.5)
    refused(answer, "temprature")
    assert answer.error["code"] == "unknown_parameter"
    assert (await asker.chat(temprature=None)).status == 200


def test_no_parameter_is_both_understood_and_refused() -> None:
    assert not ChatRequest.model_fields.keys() & UNSUPPORTED_IN_CHATS.keys()
    assert not CompletionRequest.model_fields.keys() & UNSUPPORTED_IN_COMPLETIONS.keys()


async def test_harmless_values_are_told_from_those_that_only_look_like_them(asker: Asker) -> None:
    refused(await asker.chat(store=0), "store")


async def test_fields_without_effect_are_accepted_and_have_none(asker: Asker, backend: ScriptedBackend) -> None:
    plain = await asker.chat()
    fields = {"user": "u", "safety_identifier": "s", "prompt_cache_key": "k", "metadata": {"a": "b"}}
    answer = await asker.chat(**fields, store=False, service_tier="auto", parallel_tool_calls=True)
    assert answer.document["choices"] == plain.document["choices"]
    first, second = backend.requests
    assert (first.prompts, first.sampling, first.cache_salt) == (second.prompts, second.sampling, second.cache_salt)


_ENORMOUS = 10**4_000  # as many digits as Python reads


@pytest.mark.parametrize(
    "fields",
    [
        {"logit_bias": {"1": _ENORMOUS}},
        {"logit_bias": {"1": -_ENORMOUS}},
        {"stop_token_ids": [_ENORMOUS]},
        {"max_tokens": _ENORMOUS, "max_completion_tokens": _ENORMOUS + 1},
        *(
            {name: _ENORMOUS}
            for name in (
                *("n", "max_tokens", "max_completion_tokens", "min_tokens", "top_k", "seed", "priority", "ttl_seconds"),
                *("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"),
            )
        ),
    ],
)
async def test_a_number_of_thousands_of_digits_is_refused_in_few_words(
    asker: Asker, backend: ScriptedBackend, fields: dict[str, Any]
) -> None:
    backend.refusal = BadRequest("stop_token_ids", "the engine knows which tokens there are")
    answer = await asker.chat(**fields)
    refused(answer, list(fields)[-1] + "[0]" * (answer.error["param"] or "").endswith("[0]"))
    assert len(answer.error["message"]) < 200


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": True}, "n"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"n": 1.0}, "n"),
        ({"n": 10**30}, "n"),
        ({"temperature": "1"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": 1.5}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
        ({"seed": 2**63}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_completion_tokens"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stop": [1]}, "stop"),
        ({"stop": {"a": 1}}, "stop"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
        ({"stop_token_ids": [True]}, "stop_token_ids[0]"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"01": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"logit_bias": {"1": "2"}}, "logit_bias"),
        ({"logit_bias": [1]}, "logit_bias"),
        ({"logit_bias": {str(one): 0 for one in range(1_025)}}, "logit_bias"),
        ({"logprobs": 1}, "logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ({"stream": 1}, "stream"),
        ({"stream_options": {}}, "stream_options"),
        ({"stream": True, "stream_options": {"more": 1}}, "stream_options.more"),
        ({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
        ({"length_penalty": 2.0}, "length_penalty"),
        ({"early_stopping": True}, "early_stopping"),
        ({"use_beam_search": True, "length_penalty": 11}, "length_penalty"),
        ({"cache_salt": ""}, "cache_salt"),
        ({"cache_salt": "é" * 129}, "cache_salt"),
        ({"ttl_seconds": 0}, "ttl_seconds"),
        ({"ttl_seconds": 604_801}, "ttl_seconds"),
        ({"ttl_seconds": True}, "ttl_seconds"),
        ({"kv_cache_dtype": 8}, "kv_cache_dtype"),
        ({"priority": 2**31}, "priority"),
        ({"metadata": [1]}, "metadata"),
        ({"user": 5}, "user"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"add_generation_prompt": True, "continue_final_message": True}, "continue_final_message"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": [5]}, "messages[0]"),
        ({"messages": [USER, {"role": "robot", "content": ""}]}, "messages[1].role"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content"),
        ({"messages": [{**USER, "tool_calls": [{}]}]}, "messages[0].tool_calls"),
        ({"messages": [{**USER, "weight": 1}]}, "messages[0].weight"),
        ({"messages": [{"role": "developer", "content": "x"}]}, "messages"),  # the template says so
        ({"model": None}, "model"),
        ({"model": 5}, "model"),
    ],
)
async def test_a_chat_that_makes_no_sense_is_refused(asker: Asker, fields: dict[str, Any], param: str) -> None:
    refused(await asker.chat(**fields), param)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": {}}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": ["a", [1]]}, "prompt"),
        ({"prompt": [[1], [True]]}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": ["a"] * 129}, "prompt"),
        ({"prompt": ["a"] * 100, "n": 3}, "n"),
        ({"best_of": 2}, "best_of"),
        ({"logprobs": True}, "logprobs"),
        ({"logprobs": 21}, "logprobs"),
        ({"echo": True, "logprobs": 1}, "logprobs"),
        ({"max_completion_tokens": 5}, "max_completion_tokens"),
        ({"messages": [USER]}, "messages"),
    ],
)
async def test_a_completion_that_makes_no_sense_is_refused(asker: Asker, fields: dict[str, Any], param: str) -> None:
    refused(await asker.complete(**fields), param)


async def test_parts_that_are_no_text_are_refused(asker: Asker) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    answer = await asker.chat(messages=[{"role": "user", "content": [{"type": "text", "text": "x"}, image]}])
    refused(answer, "messages[0].content")
    assert answer.error["code"] == "unsupported_value"


async def test_parts_of_text_reach_the_template_as_parts(asker: Asker, backend: ScriptedBackend) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert (await asker.chat(messages=[{"role": "user", "content": parts}])).status == 200
    assert bytes(backend.requests[0].prompts[0]) == b"user: one|two\nassistant: "


async def test_a_message_may_be_sent_back_as_it_was_answered(asker: Asker) -> None:
    message = (await asker.chat()).document["choices"][0]["message"]
    empty = {"annotations": None, "audio": None, "function_call": None, "tool_calls": None}
    assert (await asker.chat(messages=[USER, message | empty, USER])).status == 200


async def test_an_answer_can_be_continued(asker: Asker, backend: ScriptedBackend) -> None:
    messages = [USER, {"role": "assistant", "content": "Well"}]
    assert (await asker.chat(messages=messages, continue_final_message=True)).status == 200
    assert bytes(backend.requests[0].prompts[0]) == b"user: Hi\nassistant: Well\n"


async def test_what_is_understood_reaches_the_engine(asker: Asker, backend: ScriptedBackend) -> None:
    fields = {"kv_cache_dtype": "int4", "cache_salt": "s", "ttl_seconds": 60, "priority": -1, "top_k": -1}
    fields |= {"logit_bias": {"7": -3}, "stop": "x", "stop_token_ids": [5], "max_completion_tokens": 9}
    fields |= {"use_beam_search": True, "n": 2, "length_penalty": 0.5, "early_stopping": True}
    assert (await asker.chat(**fields)).status == 200
    request = backend.requests[0]
    assert (request.kv_dtype, request.cache_salt, request.ttl_seconds, request.priority) == ("int4", b"s", 60, -1)
    sampling = request.sampling
    assert (sampling.top_k, sampling.logit_bias, sampling.stop, sampling.stop_token_ids) == (0, {7: -3}, ("x",), (5,))
    assert (sampling.max_tokens, sampling.n) == (9, 2)
    assert sampling.beam is not None
    assert (sampling.beam.length_penalty, sampling.beam.early_stopping) == (0.5, True)
    assert request.namespace == "ns-1"


async def test_a_completion_has_sixteen_tokens_unless_it_says(asker: Asker, backend: ScriptedBackend) -> None:
    await asker.complete()
    await asker.chat()
    assert [request.sampling.max_tokens for request in backend.requests] == [16, None]


async def test_another_model_is_not_found(asker: Asker) -> None:
    for answer in (await asker.chat(model="gpt-9"), await asker.complete(model="gpt-9")):
        refused(answer, "model", 404)
        assert answer.error["code"] == "model_not_found"
        assert answer.error["message"] == "There is no model 'gpt-9' here. Served here: tiny."


@pytest.mark.parametrize(
    ("problem", "status", "code", "param"),
    [
        (BadRequest("prompt", "has no tokens"), 400, "invalid_value", "messages"),
        (BadRequest("kv_cache_dtype", "nvfp4 is not served"), 400, "invalid_value", "kv_cache_dtype"),
        (Overlong("prompt", "600 tokens are more than 512"), 400, "context_length_exceeded", "messages"),
        (Overloaded("", "9 requests wait already"), 503, "overloaded", None),
        (DeadlinePassed("", "too late"), 504, "deadline_exceeded", None),
        (UnknownTenant("", "no such namespace"), 503, "unknown_namespace", None),
        (EngineFailed("", "the step failed"), 500, "engine_failed", None),
        (RuntimeError("a bug"), 500, "internal_error", None),
    ],
)
async def test_each_of_the_engines_errors_has_its_status(
    asker: Asker, backend: ScriptedBackend, problem: Exception, status: int, code: str, param: str | None
) -> None:
    backend.refusal = problem
    for stream in (False, True):
        answer = await asker.chat(stream=stream)
        refused(answer, param, status)
        assert answer.error["code"] == code
        assert ("retry-after" in answer.headers) == (status == 503)
        assert "a bug" not in answer.error["message"]


async def test_a_body_beyond_what_the_context_allows_is_refused(asker: Asker) -> None:
    answer = await asker.post(COMPLETIONS, b"x" * (2**20 + 1))
    refused(answer, None, 413)


async def test_a_body_is_refused_by_what_it_announces(asker: Asker) -> None:
    call = asker.call(CHAT, b"", headers={"content-length": str(2**40)}, stalls_after=0)
    refused(await call.answered(), None, 413)


async def test_bodies_of_all_clients_together_are_bounded(asker: Asker) -> None:
    half = b" " * 2**20
    slow = [asker.call(CHAT, chunks=[half, b""], stalls_after=1) for _ in range(2)]
    refused(await asker.chat(), None, 503)
    assert [(await call.answered()).status for call in slow] == [408, 408]
    assert (await asker.chat()).status == 200


async def test_an_encoded_body_is_refused(asker: Asker) -> None:
    refused(await asker.post(CHAT, b"\x1f\x8b", headers={"content-encoding": "gzip"}), None, 415)


@pytest.mark.parametrize(
    ("method", "path"), [("GET", CHAT), ("PUT", COMPLETIONS), ("POST", "/v1/models"), ("DELETE", "/health")]
)
async def test_a_method_that_does_not_fit_is_told_which_do(asker: Asker, method: str, path: str) -> None:
    answer = await asker.call(path, method=method).answered()
    refused(answer, None, 405)
    assert method not in answer.headers["allow"]


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/chat", "/v1/chat/completions/", "/v1/embeddings", "/docs"])
async def test_other_paths_have_nothing(asker: Asker, path: str) -> None:
    refused(await asker.get(path), None, 404)


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/metrics"])
async def test_a_head_is_answered_without_a_body(asker: Asker, path: str) -> None:
    answer = await asker.get(path, method="HEAD")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["content-length"]) > 0
