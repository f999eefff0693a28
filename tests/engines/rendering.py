"""Chats rendered in the tests' own process: the text that a process within bounds must come to as well."""

from collections.abc import Mapping
from typing import Any

from engine_agent.prompts.bodies import PromptText, chat_read, rendered_chat
from engine_agent.prompts.chat import ChatTemplate
from engine_agent.prompts.frames import render_request, request_decode
from engine_agent.prompts.templates import Chat, TemplateSource


def template_made(source: TemplateSource) -> ChatTemplate:
    return ChatTemplate.from_source(source.text, source.special_tokens, source.contents)


def chat_text(source: TemplateSource, body: Mapping[str, Any]) -> PromptText:
    """Raises BadRequest."""
    return rendered_chat(body, template_made(source).render_chat(chat_read(body)))


def chat_unpacked(packed: bytes) -> Chat:
    request = request_decode(packed)
    assert request[0] == "render"
    return request[2]


class InlineTemplate:
    """A server's template without a process."""

    def __init__(self, source: TemplateSource) -> None:
        self._source, self._template = source, template_made(source)

    def pack(self, chat: Chat) -> bytes:
        return render_request(self._source, chat)

    async def render(self, packed: bytes) -> str:
        return self._template.render_chat(chat_unpacked(packed))
