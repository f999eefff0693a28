"""Answers in the formats of OpenAI's two APIs, complete or streamed. Pure: no HTTP and no engine."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine_agent.engine.outputs import Delta, Logprob, TokenLogprobs
from engine_agent.journal.records import Opened

LEAST_LOGPROB = -9999.0  # JSON cannot express infinity


class Vocabulary(Protocol):
    def token_text(self, token: int) -> str: ...
    def token_bytes(self, token: int) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Head:
    """The fields that all parts of an answer share."""

    id: str
    created: int
    model: str
    fingerprint: str

    def of(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        head = {"id": self.id, "object": kind, "created": self.created, "model": self.model}
        return {**head, "system_fingerprint": self.fingerprint, "choices": choices}


def usage(opened: Opened, completion_tokens: int) -> dict[str, Any]:
    """Return the usage in the journal's record, equal to the headers."""
    return {
        "prompt_tokens": opened.prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": opened.prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": opened.cached_tokens},
    }


class Shape(Protocol):
    """The answer format of one API. Choices are numbered over all prompts."""

    def opening(self) -> Iterator[dict[str, Any]]:
        """Iterate over the parts of a stream before its first token."""

    def part(self, delta: Delta) -> dict[str, Any] | None:
        """Return the part of a stream for a token, or None if there is nothing to send yet."""

    def whole(self, choices: Sequence[Sequence[Delta]]) -> dict[str, Any]: ...

    def closing(self) -> dict[str, Any]:
        """Return the last part of a stream, which has no choices."""


@dataclass(frozen=True, slots=True)
class ChatShape:
    head: Head
    vocabulary: Vocabulary
    choices: int
    prompt_ids: Sequence[int] | None  # None: not requested

    def opening(self) -> Iterator[dict[str, Any]]:
        for index in range(self.choices):
            choice = {"index": index, "delta": {"role": "assistant", "content": ""}, "logprobs": None}
            ids = {} if self.prompt_ids is None or index else {"prompt_token_ids": list(self.prompt_ids)}
            yield {**self._part([{**choice, "finish_reason": None}]), **ids}

    def part(self, delta: Delta) -> dict[str, Any] | None:
        if not _is_telling(delta, self.prompt_ids is not None):
            return None
        text = {"content": delta.text} if delta.text else {}
        return self._part([{"index": delta.choice, "delta": text, **self._about([delta])}])

    def whole(self, choices: Sequence[Sequence[Delta]]) -> dict[str, Any]:
        choice_objects = [self._choice(index, deltas) for index, deltas in enumerate(choices)]
        ids = {} if self.prompt_ids is None else {"prompt_token_ids": list(self.prompt_ids)}
        return {**self.head.of("chat.completion", choice_objects), **ids}

    def closing(self) -> dict[str, Any]:
        return self._part([])

    def _part(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return self.head.of("chat.completion.chunk", choices)

    def _choice(self, index: int, deltas: Sequence[Delta]) -> dict[str, Any]:
        message = {"role": "assistant", "content": _text(deltas), "refusal": None}
        return {"index": index, "message": message, **self._about(deltas)}

    def _about(self, deltas: Sequence[Delta]) -> dict[str, Any]:
        content = [self._logprob(delta.logprobs) for delta in deltas if delta.logprobs]
        logprobs = {"content": content, "refusal": None} if content else None
        return {"logprobs": logprobs, **_ending(deltas), **_token_ids(deltas, self.prompt_ids is not None)}

    def _logprob(self, token_logprobs: TokenLogprobs) -> dict[str, Any]:
        return {
            **self._token(token_logprobs.chosen),
            "top_logprobs": [self._token(alternative) for alternative in token_logprobs.top],
        }

    def _token(self, logprob: Logprob) -> dict[str, Any]:
        text, data = self.vocabulary.token_text(logprob.token), self.vocabulary.token_bytes(logprob.token)
        return {"token": text, "logprob": _finite(logprob.logprob), "bytes": list(data)}


@dataclass(frozen=True, slots=True)
class CompletionShape:
    head: Head
    vocabulary: Vocabulary
    choices: int
    echoes: Sequence[str]  # text before each choice's answer
    prompt_ids: Sequence[Sequence[int]] | None  # for each choice; None: not requested
    _said: dict[int, int] = field(default_factory=dict)  # characters of each choice, as its tokens spell them

    def opening(self) -> Iterator[dict[str, Any]]:
        for index, echo in enumerate(self.echoes):
            if echo or self.prompt_ids is not None:
                yield self._part([self._choice(index, echo, {**_NOTHING_YET, **self._prompt_ids(index)})])

    def part(self, delta: Delta) -> dict[str, Any] | None:
        if not _is_telling(delta, self.prompt_ids is not None):
            return None
        return self._part([self._choice(delta.choice, delta.text, self._about(delta.choice, [delta]))])

    def whole(self, choices: Sequence[Sequence[Delta]]) -> dict[str, Any]:
        return self._part(
            [
                self._choice(
                    index, self.echoes[index] + _text(deltas), self._about(index, deltas) | self._prompt_ids(index)
                )
                for index, deltas in enumerate(choices)
            ]
        )

    def closing(self) -> dict[str, Any]:
        return self._part([])

    def _part(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return self.head.of("text_completion", choices)

    def _choice(self, index: int, text: str, details: Mapping[str, Any]) -> dict[str, Any]:
        return {"index": index, "text": text, **details}

    def _prompt_ids(self, index: int) -> dict[str, Any]:
        return {} if self.prompt_ids is None else {"prompt_token_ids": list(self.prompt_ids[index])}

    def _about(self, index: int, deltas: Sequence[Delta]) -> dict[str, Any]:
        token_logprobs = [delta.logprobs for delta in deltas if delta.logprobs]
        logprobs = self._logprobs(index, token_logprobs) if token_logprobs else None
        return {"logprobs": logprobs, **_ending(deltas), **_token_ids(deltas, self.prompt_ids is not None)}

    def _logprobs(self, index: int, token_logprobs: Sequence[TokenLogprobs]) -> dict[str, Any]:
        tokens = [self.vocabulary.token_text(entry.chosen.token) for entry in token_logprobs]
        offsets = []
        for token in tokens:
            offsets.append(self._said.get(index, 0))
            self._said[index] = offsets[-1] + len(token)
        return {
            "tokens": tokens,
            "token_logprobs": [_finite(entry.chosen.logprob) for entry in token_logprobs],
            "top_logprobs": [self._top(entry) for entry in token_logprobs],
            "text_offset": offsets,
        }

    def _top(self, token_logprobs: TokenLogprobs) -> dict[str, float]:
        """Return log probabilities by text, as this API defines; of two tokens with equal text, the likelier one's."""
        top: dict[str, float] = {}
        for logprob in (*token_logprobs.top, token_logprobs.chosen):
            top.setdefault(self.vocabulary.token_text(logprob.token), _finite(logprob.logprob))
        return top


_NOTHING_YET: Mapping[str, Any] = {"logprobs": None, "finish_reason": None, "stop_reason": None}


def spelt(value: Any, depth: int = 5) -> Iterator[str]:
    """Iterate over JSON in pieces, because the encoder blocks all other threads during a piece.

    Below `depth`, where an answer's tokens are, each value is one piece.
    """
    if depth and isinstance(value, dict):
        for at, (name, element) in enumerate(value.items()):
            yield f"{',' if at else '{'}{_spelt(name)}:"
            yield from spelt(element, depth - 1)
        yield "}" if value else "{}"
    elif depth and isinstance(value, list):
        for at, element in enumerate(value):
            yield "," if at else "["
            yield from spelt(element, depth - 1)
        yield "]" if value else "[]"
    else:
        yield _spelt(value)


_spelt = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def gathered(deltas: Sequence[Delta], choices: int) -> list[list[Delta]]:
    by_choice: list[list[Delta]] = [[] for _ in range(choices)]
    for delta in deltas:
        by_choice[delta.choice].append(delta)
    return by_choice


def _is_telling(delta: Delta, asks_for_ids: bool) -> bool:
    has_token = asks_for_ids and delta.token is not None
    return bool(delta.text or delta.finish or delta.logprobs or has_token)


def _text(deltas: Sequence[Delta]) -> str:
    return "".join(delta.text for delta in deltas)


def _ending(deltas: Sequence[Delta]) -> dict[str, Any]:
    last = deltas[-1]
    return {"finish_reason": last.finish, "stop_reason": last.stopped_by}


def _token_ids(deltas: Sequence[Delta], is_asked: bool) -> dict[str, Any]:
    return {"token_ids": [delta.token for delta in deltas if delta.token is not None]} if is_asked else {}


def _finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else LEAST_LOGPROB
