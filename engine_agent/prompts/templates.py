"""A model's chat template and a chat for it, as data. Nothing here renders: see `renderer.py`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

FIELD, KWARGS, CONTINUE = "messages", "chat_template_kwargs", "continue_final_message"
Contents = Literal["text", "parts", "either"]
CONTENTS: tuple[Contents, ...] = get_args(Contents)
Objects = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class TemplateSource:
    text: str | None = field(repr=False)  # None: the model takes no chats
    special_tokens: Mapping[str, str]  # `bos_token` and the like, as templates know them
    contents: Contents = "text"  # how the template takes a message's content


@dataclass(frozen=True, slots=True)
class Chat:
    """The arguments of a chat template in a request."""

    messages: Objects = field(repr=False)
    tools: Objects | None = field(default=None, repr=False)
    documents: Objects | None = field(default=None, repr=False)
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    kwargs: Mapping[str, object] = field(default_factory=dict, repr=False)
