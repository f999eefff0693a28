"""Reads prompts from text: bodies of the OpenAI API, lists and lines of those, or the prompt itself."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


class NoPrompt(Exception):
    """The input has no prompt; the message says why."""


@dataclass(frozen=True, slots=True)
class PromptText:
    text: str
    parts: tuple[tuple[int, str], ...]  # where each begins, and its name

    def where(self, position: int) -> tuple[str, int]:
        """Return the part at this position, and the offset within it."""
        start, name = max((part for part in self.parts if part[0] <= position), default=self.parts[0])
        return name, position - start


def prompts_of_file(content: str) -> list[PromptText]:
    """Return the prompts of a file: JSON is read as bodies, all else is one prompt's text. Raise NoPrompt."""
    parsed = _json(content)
    if parsed is None:
        lines = [_json(line) for line in content.splitlines() if line.strip()]
        if not lines or not all(isinstance(line, dict) for line in lines):
            return [prompt_of(content)]
        parsed = lines
    if isinstance(parsed, list) and not (parsed and all(_is_message(entry) for entry in parsed)):
        return [prompt_of(entry) for entry in parsed]
    return [prompt_of(parsed)]


def prompt_of(body: Any) -> PromptText:
    """Raise NoPrompt if the value has no prompt."""
    if isinstance(body, str):
        return PromptText(body, ((0, "text"),))
    if isinstance(body, list):
        body = {"messages": body}
    if isinstance(body, dict) and isinstance(body.get("prompt"), str):
        return PromptText(body["prompt"], ((0, "prompt"),))
    if isinstance(body, dict) and isinstance(body.get("messages"), list):
        return _joined(_parts(body))
    raise NoPrompt("a prompt is text, a list of messages, or an object with prompt or messages")


def _parts(body: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (name, what a template puts before it, content), in the order in which templates render them."""
    if body.get("tools"):
        yield "tools", "", json.dumps(body["tools"], ensure_ascii=False)
    for number, message in enumerate(body["messages"]):
        if not _is_message(message):
            raise NoPrompt(f"messages[{number}] is no message with a role")
        yield f"messages[{number}] ({message['role'][:40]})", f"<|{message['role']}|>\n", _content(message)


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        content = "\n".join(
            part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    calls = json.dumps(message["tool_calls"], ensure_ascii=False) if message.get("tool_calls") else ""
    return (content if isinstance(content, str) else "") + calls


def _joined(parts: Iterator[tuple[str, str, str]]) -> PromptText:
    texts: list[str] = []
    part_starts: list[tuple[int, str]] = []
    length = 0
    for name, before, content in parts:
        part_starts.append((length + len(before), name))
        texts.append(f"{before}{content}\n")
        length += len(texts[-1])
    if not part_starts:
        raise NoPrompt("there are no messages")
    return PromptText(
        "".join(texts), ((0, part_starts[0][1]), *part_starts[1:]) if part_starts[0][0] == 0 else tuple(part_starts)
    )


def _is_message(message: Any) -> bool:
    return isinstance(message, dict) and isinstance(message.get("role"), str)


def _json(text: str) -> Any:
    """Return the object or list in a JSON text, or None if it has neither."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict | list) else None


def shown_line(text: str, position: int) -> tuple[int, int]:
    """Return line and column, from 1."""
    before = text[:position]
    return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1
