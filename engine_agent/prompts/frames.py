"""Encodes requests to a renderer process, and its answers.

The bytes are in an exchange; only a head crosses the socket: their length, and for an answer its kind. Both ends run
the same interpreter, so requests use `marshal`, the fastest codec for JSON's types. Answers do not, because a template
decides their content.
"""

import json
import marshal
import struct
from typing import Any, Literal, cast

from engine_agent.prompts.errors import BadRequest, TemplateExhausted
from engine_agent.prompts.templates import FIELD, Chat, TemplateSource

HEAD = struct.Struct("<Qc")
ASKS, READY = b"?", b"!"
LONGEST_PROBLEM = 2_000  # characters of a template's error
Answer = tuple[bytes, bytes]  # its kind and its data
Request = tuple[Literal["render"], TemplateSource, Chat] | tuple[Literal["inspect"], str]
_VERSION = 2  # the newest version of `marshal` that does not search for repeated values
_TEXT, _REFUSED, _EXHAUSTED, _OUT_OF_MEMORY = b"t", b"r", b"e", b"m"
OUT_OF_MEMORY: Answer = (_OUT_OF_MEMORY, b"")


class OutOfMemory(Exception):
    """The process had no memory left for a template."""


def render_request(source: TemplateSource, chat: Chat) -> bytes:
    """Encode a request to render. Raise BadRequest if the chat is nested too deeply."""
    template = (source.text, dict(source.special_tokens), source.contents)
    fields: Any = (
        list(chat.messages),
        chat.tools,
        chat.documents,
        chat.add_generation_prompt,
        chat.continue_final_message,
        dict(chat.kwargs),
    )
    try:
        return marshal.dumps(("render", template, fields), _VERSION)
    except ValueError:
        raise BadRequest(FIELD, "are nested too deeply") from None


def inspect_request(text: str) -> bytes:
    return marshal.dumps(("inspect", text), _VERSION)


def request_decode(data: bytes) -> Request:
    kind, *rest = marshal.loads(data)
    if kind == "inspect":
        return kind, rest[0]
    source, chat = rest
    return kind, TemplateSource(*source), Chat(*chat)


def text_answer(text: str) -> Answer:
    return _TEXT, text.encode("utf-8", "surrogatepass")


def refused_answer(error: BadRequest) -> Answer:
    kind = _EXHAUSTED if isinstance(error, TemplateExhausted) else _REFUSED
    return kind, json.dumps([error.field, error.problem[:LONGEST_PROBLEM]]).encode()


def answer_decode(kind: bytes, data: bytes) -> str:
    """Return the text in an answer, or raise the error in it: BadRequest or OutOfMemory."""
    if kind == _TEXT:
        return data.decode("utf-8", "surrogatepass")
    if kind == _OUT_OF_MEMORY:
        raise OutOfMemory
    field, problem = cast("list[str]", json.loads(data))
    raise (BadRequest if kind == _REFUSED else TemplateExhausted)(field, problem)
