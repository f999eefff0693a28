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

    def where(self, place: int) -> tuple[str, int]:
        """Return the part at this position, and the offset within it."""
        start, name = max((one for one in self.parts if one[0] <= place), default=self.parts[0])
        return name, place - start


def prompts_of_file(content: str) -> list[PromptText]:
    """Return the prompts of a file: JSON is read as bodies, all else is one prompt's text. Raise NoPrompt."""
    told = _json(content)
    if told is None:
        lines = [_json(line) for line in content.splitlines() if line.strip()]
        if not lines or not all(isinstance(line, dict) for line in lines):
            return [prompt_of(content)]
        told = lines
    if isinstance(told, list) and not (told and all(_is_message(one) for one in told)):
        return [prompt_of(one) for one in told]
    return [prompt_of(told)]


def prompt_of(told: Any) -> PromptText:
    """Raise NoPrompt if the value has no prompt."""
    if isinstance(told, str):
        return PromptText(told, ((0, "text"),))
    if isinstance(told, list):
        told = {"messages": told}
    if isinstance(told, dict) and isinstance(told.get("prompt"), str):
        return PromptText(told["prompt"], ((0, "prompt"),))
    if isinstance(told, dict) and isinstance(told.get("messages"), list):
        return _joined(_parts(told))
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
            one["text"] for one in content if isinstance(one, dict) and isinstance(one.get("text"), str)
        )
    calls = json.dumps(message["tool_calls"], ensure_ascii=False) if message.get("tool_calls") else ""
    return (content if isinstance(content, str) else "") + calls


def _joined(parts: Iterator[tuple[str, str, str]]) -> PromptText:
    texts: list[str] = []
    places: list[tuple[int, str]] = []
    length = 0
    for name, before, content in parts:
        places.append((length + len(before), name))
        texts.append(f"{before}{content}\n")
        length += len(texts[-1])
    if not places:
        raise NoPrompt("there are no messages")
    return PromptText("".join(texts), ((0, places[0][1]), *places[1:]) if places[0][0] == 0 else tuple(places))


def _is_message(told: Any) -> bool:
    return isinstance(told, dict) and isinstance(told.get("role"), str)


def _json(text: str) -> Any:
    """Return the object or list in a JSON text, or None if it has neither."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict | list) else None


def shown_line(text: str, place: int) -> tuple[int, int]:
    """Return line and column, from 1."""
    before = text[:place]
    return before.count("\n") + 1, place - (before.rfind("\n") + 1) + 1
