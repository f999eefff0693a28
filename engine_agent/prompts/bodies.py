"""Extracts the prompt from a request's JSON body, for a process with a bundle. It checks no more than it needs.

The engine's server checks every field and then calls the same template and tokenizer. A body that the server refuses
may be refused here as well, or rendered anyway; a body that it accepts gets the same tokens here. Templates get tools,
their calls and documents, which not every engine accepts, in the form that vLLM uses.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine_agent.prompts.errors import BadRequest
from engine_agent.prompts.templates import FIELD, KWARGS, Chat

_TEXTS = {str}


@dataclass(frozen=True, slots=True)
class PromptText:
    text: str = field(repr=False)
    adds_special: bool  # whether the tokenizer adds its special tokens around it


def chat_read(body: Mapping[str, Any]) -> Chat:
    """Return the chat in a body of `/v1/chat/completions`. Raise BadRequest if it is invalid."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise BadRequest(FIELD, "must be a list of objects")
    continues = bool(body.get("continue_final_message"))
    begins = body.get("add_generation_prompt")
    return Chat(
        [message_plain(message) for message in messages],
        tools=_objects("tools", body.get("tools")),
        documents=_objects("documents", body.get("documents")),
        add_generation_prompt=not continues if begins is None else bool(begins),
        continue_final_message=continues,
        kwargs=_kwargs(body.get(KWARGS)),
    )


def rendered_chat(body: Mapping[str, Any], text: str) -> PromptText:
    """Return the prompt of a rendered chat. The template writes special tokens itself."""
    return PromptText(text, bool(body.get("add_special_tokens")))


def completion_prompts(body: Mapping[str, Any]) -> list[PromptText | list[int]]:
    """Return the prompts in a body of `/v1/completions`: texts or token ids. Raise BadRequest if it is invalid."""
    prompt = body.get("prompt")
    adds_special = body.get("add_special_tokens") is not False
    if isinstance(prompt, str):
        return [PromptText(prompt, adds_special)]
    if not isinstance(prompt, list) or not prompt:
        raise BadRequest("prompt", "must be a text, token ids, or a list of such")
    if type(prompt[0]) is int:
        return [_ids(prompt)]
    return [
        PromptText(single_prompt, adds_special) if isinstance(single_prompt, str) else _ids(single_prompt)
        for single_prompt in prompt
    ]


def message_plain(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the message without empty fields: clients send messages back as they got them, with all fields."""
    if {*map(type, message.values())} == _TEXTS:  # true for nearly all messages, of which a long chat has hundreds
        return message
    plain = {name: value for name, value in message.items() if value is not None and value != []}
    calls = plain.get("tool_calls")
    if plain.get("role") != "assistant" or not isinstance(calls, list):
        return plain
    # Templates rely on a content, which a message with only tool calls lacks.
    return {**plain, "content": plain.get("content", []), "tool_calls": [_call_plain(call) for call in calls]}


def _call_plain(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return call
    return {**call, "function": {**function, "arguments": _arguments(function.get("arguments"))}}


def _arguments(arguments: Any) -> Any:
    """Parse the arguments. A model may write anything: what is not JSON becomes an empty object."""
    if isinstance(arguments, str):
        try:
            return json.loads(arguments)
        except (ValueError, RecursionError):
            return {}
    return arguments if isinstance(arguments, dict | list) else {}


def _objects(name: str, objects: Any) -> Sequence[Mapping[str, Any]] | None:
    if not objects:
        return None
    if not isinstance(objects, list) or not all(isinstance(entry, dict) for entry in objects):
        raise BadRequest(name, "must be a list of objects")
    return objects


def _kwargs(kwargs: Any) -> Mapping[str, object]:
    if kwargs is not None and not isinstance(kwargs, dict):
        raise BadRequest(KWARGS, "must be an object")
    return kwargs or {}


def _ids(prompt: Any) -> list[int]:
    if not isinstance(prompt, list) or not all(type(token) is int and 0 <= token < 2**32 for token in prompt):
        raise BadRequest("prompt", "must be a text, token ids, or a list of such")
    return prompt
