"""What one request uses of its organisation's limits: estimated before, known by what its client is sent.

A request is counted when an engine answered it; one that came to nothing here is none. Tokens are the prompt's and the
answer's. Before the answer the prompt is a quarter of the body's bytes, and the answer as long as it may become.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from engine_agent.gateway.quotas.rates import Level, Taken
from engine_agent.gateway.refusals import duration

Headers = Iterable[tuple[str, str]]
PROMPT_TOKENS = "x-luminet-prompt-tokens"
BYTES_OF_TOKEN = 4
SILENT_TOKENS = 16  # of an answer whose length nobody says
TOO_MANY, FAILED = 429, 500
_USAGE = re.compile(rb'"(prompt_tokens|completion_tokens)": ?(\d{1,9})')
_EVENT = re.compile(rb"^data: ?\{", re.MULTILINE)


def tokens_asked(told: Mapping[str, Any], body_bytes: int, *, most: int) -> int:
    """What a request may come to; `most`: the longest context there is."""
    longest = next((told[name] for name in ("max_completion_tokens", "max_tokens") if name in told), None)
    each = min(_whole(longest, SILENT_TOKENS), most)
    answers = max(1, min(_whole(told.get("n"), 1), 128))
    return min(body_bytes // BYTES_OF_TOKEN, most) + each * answers


def _whole(value: Any, default: int) -> int:
    return value if type(value) is int and value > 0 else default


def rate_headers(levels: Mapping[str, Level]) -> list[tuple[str, str]]:
    """OpenAI's; none of what is not limited."""
    return [
        (f"x-ratelimit-{name}-{of}", value)
        for of, level in levels.items()
        for name, value in (
            ("limit", str(level.limit)),
            ("remaining", str(level.remaining)),
            ("reset", duration(level.reset_seconds)),
        )
    ]


class Telling:
    """For answers that count for nothing."""

    def __init__(self, levels: Callable[[], Mapping[str, Level]]) -> None:
        self._levels = levels

    def begins(self, status: int, headers: Headers) -> Headers:
        return rate_headers(self._levels())

    def passes(self, data: bytes) -> None:
        pass


class Meter:
    """One request's, from when it was let in to its end."""

    def __init__(self, taken: Taken, asked_tokens: int, body_bytes: int, now: Callable[[], float]) -> None:
        self._taken, self._now = taken, now
        self._prompt = min(asked_tokens, body_bytes // BYTES_OF_TOKEN)
        self._longest = asked_tokens - self._prompt
        self._answered: int | None = None  # tokens, as the answer says itself
        self._events = 0
        self._status = 0  # nothing yet
        self._is_refused = False

    def begins(self, status: int, headers: Headers) -> Headers:
        self._status = status
        told = dict(headers).get(PROMPT_TOKENS, "")
        if told.isascii() and told.isdecimal() and len(told) < 10:
            self._prompt = int(told)
            self._taken.settle(self._prompt + self._longest, self._now())
        if status >= FAILED or status == TOO_MANY:
            self._taken.give_back(self._now())
        return rate_headers(self._taken.levels(self._now()))

    def passes(self, data: bytes) -> None:
        if not self._taken.has_tokens:
            return
        found = {name: int(count) for name, count in _USAGE.findall(data)}
        self._answered = found.get(b"completion_tokens", self._answered)
        self._prompt = found.get(b"prompt_tokens", self._prompt)
        self._events += len(_EVENT.findall(data))

    def refused(self) -> None:
        """Here, whether it waited or not: it is none of those that are counted."""
        self._is_refused = True
        self._taken.give_back(self._now())

    def end(self) -> None:
        """What it came to; of a stream that does not say, as many tokens as it had parts."""
        if self._status < FAILED:
            generated = self._events if self._answered is None else self._answered
            self._taken.settle(self._prompt + generated if self._is_counted else 0, self._now())
        self._taken.end()

    @property
    def _is_counted(self) -> bool:
        """Also of a client that left early: its prompt was computed, or might have been. Not of what was refused."""
        return not self._is_refused and self._status < 400
