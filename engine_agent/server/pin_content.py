"""A pin's content as users write it, and its tokens, equal to those of requests that begin with it."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

from engine_agent.backends.base import ModelCard
from engine_agent.engine.errors import BadRequest
from engine_agent.prompts.templates import Chat
from engine_agent.server.face import Template

MOST_TOKENS = 4_000_000
PinKind = Literal["token_ids", "prompt", "messages"]
KINDS: tuple[PinKind, ...] = get_args(PinKind)


class Encoder(Protocol):
    def encode(self, text: str, add_special: bool = True) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class PinContent:
    """`value` is a tuple of token ids, a text, or a tuple of messages: the beginning of a completion or of a chat."""

    kind: PinKind
    value: Any = field(repr=False)

    async def tokens(self, tokenizer: Encoder, template: Template | None) -> list[int]:
        """Return the tokens of a request that begins with this content. Raises RequestError."""
        if self.kind == "token_ids":
            return list(self.value)
        if self.kind == "prompt":
            return await asyncio.to_thread(tokenizer.encode, self.value)
        if template is None:
            raise BadRequest("messages", "this model has no chat template: pin a prompt")
        text = await template.render(template.pack(Chat(self.value, add_generation_prompt=False)))
        return await asyncio.to_thread(tokenizer.encode, text, add_special=False)

    @property
    def size_bytes(self) -> int:
        return 4 * len(self.value) if self.kind == "token_ids" else len(str(self.value))


def pin_content(fields: Mapping[str, Any], prefix: str = "") -> PinContent:
    """Return the content in a JSON object. Raises BadRequest."""
    kinds = [kind for kind in KINDS if kind in fields]
    if len(kinds) != 1 or len(fields) != 1:
        raise BadRequest(prefix + "content", f"must be one of {', '.join(KINDS)}")
    value, (is_good, requirement) = fields[kinds[0]], _CHECKS[kinds[0]]
    if not is_good(value):
        raise BadRequest(prefix + kinds[0], requirement)
    return PinContent(kinds[0], tuple(value) if isinstance(value, list) else value)


async def pin_tokens(content: PinContent, card: ModelCard, tokenizer: Encoder, template: Template | None) -> list[int]:
    """Return the content's tokens. Raises BadRequest if they are invalid for this model."""
    tokens = await content.tokens(tokenizer, template)
    if len(tokens) > card.context_tokens:
        raise BadRequest(content.kind, f"{len(tokens):,} tokens are more than the context, {card.context_tokens:,}")
    if not tokens or max(tokens) >= card.vocab_size:
        raise BadRequest(content.kind, f"must be one token or more, each below {card.vocab_size:,}")
    return tokens


def _are_tokens(value: Any) -> bool:
    whole = isinstance(value, list) and all(type(token) is int and 0 <= token < 2**31 for token in value)
    return whole and 0 < len(value) <= MOST_TOKENS


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _are_messages(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_message, value))


def _is_message(value: Any) -> bool:
    named = isinstance(value, dict) and value.keys() == {"role", "content"}
    return named and all(isinstance(text, str) for text in value.values())


_CHECKS: Mapping[PinKind, tuple[Callable[[Any], bool], str]] = {
    "token_ids": (_are_tokens, f"must be a list of 1 to {MOST_TOKENS:,} token ids"),
    "prompt": (_is_text, "must be a text, and not empty"),
    "messages": (_are_messages, 'must be a list of {"role", "content"}, both texts, and not empty'),
}
