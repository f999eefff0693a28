"""Measures one request against its organisation's limits: first by an estimate, then by what its client is sent.

A request counts if an engine answers it; one that is refused here does not. Tokens are the prompt's and the answer's.
The estimate is a quarter of the body's bytes for the prompt, and the maximum length for the answer.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from engine_agent.gateway.quotas.rates import Level, Taken
from engine_agent.gateway.refusals import duration

Headers = Iterable[tuple[str, str]]
PROMPT_TOKENS = "x-luminet-prompt-tokens"
BYTES_OF_TOKEN = 4
SILENT_TOKENS = 16  # estimate for an answer without a maximum length
TOO_MANY, FAILED = 429, 500
_USAGE = re.compile(rb'"(prompt_tokens|completion_tokens)": ?(\d{1,9})')
_EVENT = re.compile(rb"^data: ?\{", re.MULTILINE)


def tokens_asked(fields: Mapping[str, Any], body_bytes: int, *, most: int) -> int:
    """Estimate a request's tokens; `most` is the longest context of all models."""
    longest = next((fields[name] for name in ("max_completion_tokens", "max_tokens") if name in fields), None)
    answer_tokens = min(_whole(longest, SILENT_TOKENS), most)
    answers = max(1, min(_whole(fields.get("n"), 1), 128))
    return min(body_bytes // BYTES_OF_TOKEN, most) + answer_tokens * answers


def _whole(value: Any, default: int) -> int:
    return value if type(value) is int and value > 0 else default


def rate_headers(levels: Mapping[str, Level]) -> list[tuple[str, str]]:
    """Return OpenAI's headers, for limited rates only."""
    return [
        (f"x-ratelimit-{name}-{unit}", value)
        for unit, level in levels.items()
        for name, value in (
            ("limit", str(level.limit)),
            ("remaining", str(level.remaining)),
            ("reset", duration(level.reset_seconds)),
        )
    ]


class Telling:
    """Adds the headers to answers that do not count."""

    def __init__(self, levels: Callable[[], Mapping[str, Level]]) -> None:
        self._levels = levels

    def begins(self, status: int, headers: Headers) -> Headers:
        return rate_headers(self._levels())

    def passes(self, data: bytes) -> None:
        pass


class Meter:
    """The usage of one request, from its admission to its end."""

    def __init__(self, grant: Taken, asked_tokens: int, body_bytes: int, now: Callable[[], float]) -> None:
        self._taken, self._now = grant, now
        self._prompt = min(asked_tokens, body_bytes // BYTES_OF_TOKEN)
        self._longest = asked_tokens - self._prompt
        self._answered: int | None = None  # tokens, as the answer reports them
        self._events = 0
        self._status = 0  # none yet
        self._is_refused = False

    def begins(self, status: int, headers: Headers) -> Headers:
        self._status = status
        prompt_tokens = dict(headers).get(PROMPT_TOKENS, "")
        if prompt_tokens.isascii() and prompt_tokens.isdecimal() and len(prompt_tokens) < 10:
            self._prompt = int(prompt_tokens)
            self._taken.settle(self._prompt + self._longest, self._now())
        if status >= FAILED or status == TOO_MANY:
            self._taken.give_back(self._now())
        return rate_headers(self._taken.levels(self._now()))

    def passes(self, data: bytes) -> None:
        if not self._taken.has_tokens:
            return
        counts = {name: int(count) for name, count in _USAGE.findall(data)}
        self._answered = counts.get(b"completion_tokens", self._answered)
        self._prompt = counts.get(b"prompt_tokens", self._prompt)
        self._events += len(_EVENT.findall(data))

    def refused(self) -> None:
        """Count nothing: this gateway refused the request, at once or after a wait."""
        self._is_refused = True
        self._taken.give_back(self._now())

    def end(self) -> None:
        """Settle the final usage. A stream that does not report it counts one token for each event."""
        if self._status < FAILED:
            generated = self._events if self._answered is None else self._answered
            self._taken.settle(self._prompt + generated if self._is_counted else 0, self._now())
        self._taken.end()

    @property
    def _is_counted(self) -> bool:
        """Return whether tokens count. They do if a client left early (its prompt may be computed), not if refused."""
        return not self._is_refused and self._status < 400
