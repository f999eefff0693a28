"""Renders a model's chat template in Jinja's sandbox: messages become the text that the model was trained on.

The environment is the one that such templates are written for. A template comes from its model, but messages come from
any client: every failure is the request's. The sandbox stops the cheapest excesses with a clear message, but does not
limit time and memory, so servers render in a process that does (`child.py`).
"""

import copy
import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine_agent.prompts.errors import BadRequest, TemplateExhausted
from engine_agent.prompts.templates import CONTINUE, FIELD, KWARGS, Chat, Contents

MOST_CHARACTERS = 64 << 20  # limit of a rendered chat
PIECES = 1_024  # pieces of rendered text that are counted together
MOST_REPEATED = 1 << 20  # items or characters of anything a template multiplies
RESERVED = frozenset(("messages", "tools", "documents", "add_generation_prompt"))

Message = Mapping[str, Any]
_TEXTS = {str}
_FAILURES = (TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class ChatTemplate:
    def __init__(self, template: Template | None, special: Mapping[str, str], contents: Contents = "text") -> None:
        self._template, self._special, self.contents = template, special, contents

    @classmethod
    def from_source(
        cls, source: str | None, special: Mapping[str, str], contents: Contents | None = None
    ) -> "ChatTemplate":
        """Raise TemplateSyntaxError for an invalid source. Without `contents`, detect how the template takes them.

        This evaluates constant expressions, so it needs the same bounds as rendering.
        """
        if source is None:
            return cls(None, special)
        return cls(_environment().from_string(source), special, contents or _contents(source))

    def render_chat(self, chat: Chat) -> str:
        """Raise BadRequest if the chat cannot be rendered."""
        return self.render(
            chat.messages,
            tools=chat.tools,
            documents=chat.documents,
            add_generation_prompt=chat.add_generation_prompt,
            continue_final_message=chat.continue_final_message,
            kwargs=chat.kwargs,
        )

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        kwargs: Mapping[str, object] | None = None,
    ) -> str:
        """Return the text to tokenise, without the tokenizer's special tokens. Raise BadRequest if it fails."""
        if not messages:
            raise BadRequest(FIELD, "must be one message or more")
        if continue_final_message and add_generation_prompt:
            raise BadRequest(CONTINUE, "cannot go with add_generation_prompt")
        if reserved := sorted(RESERVED & set(kwargs or {})):
            raise BadRequest(KWARGS, f"{reserved[0]} cannot be given here")
        try:
            plain = [self._plain(message) for message in messages]
        except RecursionError:
            raise BadRequest(FIELD, "are nested too deeply") from None
        tools_and_documents = {"tools": copy.deepcopy(tools), "documents": copy.deepcopy(documents)}
        own_variables = {**tools_and_documents, "add_generation_prompt": add_generation_prompt}
        variables = {**self._special, **(kwargs or {}), **own_variables}
        return self._continued(plain, variables) if continue_final_message else self._rendered(plain, variables)

    def _plain(self, message: Message) -> Message:
        """Give the content the template's form. A text-only message is not copied: that costs more than rendering."""
        is_text = {*map(type, message.values())} == _TEXTS
        if is_text and self.contents != "parts":
            return message
        plain = dict(message) if is_text else copy.deepcopy(dict(message))
        content = plain.get("content")
        if isinstance(content, list | tuple) and self.contents == "text":
            plain["content"] = "\n".join(_text_of(part) for part in content)
        elif isinstance(content, str) and self.contents == "parts":
            plain["content"] = [{"type": "text", "text": content}]
        return plain

    def _continued(self, messages: list[Message], variables: Mapping[str, object]) -> str:
        """Return the chat up to the end of its last message's text, which a temporary mark locates."""
        mark = f"end-{secrets.token_hex(16)}"
        last_message = dict(messages[-1])
        last_text = _append(last_message, f"{mark} ")
        text = self._rendered([*messages[:-1], last_message], variables)
        position = text.rfind(mark)
        if position < 0 or last_text.strip() not in text:
            raise BadRequest(CONTINUE, "this model's template leaves out some of the last message's text")
        is_trimmed = not text.startswith(f"{mark} ", position)  # then it would also trim spaces before the mark
        return text[:position].rstrip() if is_trimmed else text[:position]

    def _rendered(self, messages: list[Message], variables: Mapping[str, object]) -> str:
        if self._template is None:
            raise BadRequest(FIELD, "this model has no chat template: use /v1/completions")
        texts, length = list[str](), 0
        pieces = self._template.generate(messages=messages, **variables)
        try:
            while chunk := list(islice(pieces, PIECES)):
                texts.append("".join(chunk))
                length += len(texts[-1])
                if length > MOST_CHARACTERS:
                    raise TemplateExhausted(FIELD, f"come to more than {MOST_CHARACTERS:,} characters")
        except _FAILURES as problem:
            raise BadRequest(FIELD, f"the model's chat template: {problem}") from problem
        return "".join(texts)


def _text_of(part: object) -> str:
    text = part.get("text") if isinstance(part, dict) else part
    if not isinstance(text, str):
        raise BadRequest(FIELD, "a part of a content is no text")
    return text


def _append(message: dict[str, Any], text: str) -> str:
    """Append to the content, or to the last text of its parts. Return the previous text."""
    content = message.get("content")
    if isinstance(content, str):
        message["content"] = content + text
        return content
    listed = content if isinstance(content, list | tuple) else ()  # a client may have sent anything
    parts = [part for part in listed if isinstance(part, dict) and isinstance(part.get("text"), str)]
    if not parts:
        raise BadRequest(CONTINUE, "the last message has no text")
    previous_text: str = parts[-1]["text"]
    parts[-1]["text"] = previous_text + text
    return previous_text


# Compiling a template


def _contents(source: str) -> Contents:
    """Return "parts" if the template loops over contents, "either" if it also tests for text, else "text"."""
    tree = _environment().parse(source)
    if not any(_is_content(loop.iter) for loop in tree.find_all(nodes.For)):
        return "text"
    is_asked = any(test.name == "string" and _is_content(test.node) for test in tree.find_all(nodes.Test))
    return "either" if is_asked else "parts"


def _is_content(node: nodes.Node) -> bool:
    if isinstance(node, nodes.Getattr):
        return node.attr == "content"
    if isinstance(node, nodes.Getitem):
        return isinstance(node.arg, nodes.Const) and node.arg.value == "content"
    return isinstance(node, nodes.Name) and node.name == "content"


class _Generation(Extension):
    """Renders the content of `{% generation %}`, which marks an assistant's text for training."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_said"), [], [], body).set_lineno(line)

    def _said(self, caller: Macro) -> str:
        return str(caller())


class _Sandbox(ImmutableSandboxedEnvironment):
    """A sandbox in which nothing can be changed, private attributes are hidden, and no operator makes a huge value."""

    intercepted_binops = frozenset(("*", "**"))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and not (isinstance(left, int | float) and isinstance(right, int | float) and right < 64):
            raise SecurityError("** is for small numbers")
        if operator == "*":
            for items, times in ((left, right), (right, left)):
                if hasattr(items, "__len__") and isinstance(times, int) and len(items) * times > MOST_REPEATED:
                    raise SecurityError(f"* makes more than {MOST_REPEATED:,} items")
        return super().call_binop(context, operator, left, right)


def _environment() -> _Sandbox:
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _raise, "strftime_now": _now}
    return environment


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON without the HTML escapes of Jinja's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise TemplateError(message)


def _now(pattern: str) -> str:
    return datetime.now().strftime(pattern)
