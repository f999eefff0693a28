"""A streamed answer: its headers, its pieces and their times, its usage."""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine_agent.tools.loadgen.outcome import Outcome

SHOWN_CHARACTERS = 200


class Answer:
    def __init__(self, began: float, *, sent: float, late: float) -> None:
        self._began, self._last = began, began
        self._outcome = Outcome(sent_seconds=sent, late_seconds=late)
        self._ttft: float | None = None
        self._gaps: list[float] = []
        self._usage: Mapping[str, Any] = {}
        self._error: str | None = None
        self._detail = ""
        self._is_done = False

    def headers(self, headers: Mapping[str, str]) -> None:
        cached = headers.get("x-luminet-cached-tokens")
        header = int(cached) if cached is not None and cached.isdigit() else None
        self._outcome = replace(
            self._outcome,
            header_cached_tokens=header,
            miss_reason=headers.get("x-luminet-miss-reason"),
            kv_dtype=headers.get("x-luminet-kv-dtype"),
        )

    def take(self, event: str, now: float) -> None:
        if event == "[DONE]":
            self._is_done = True
            return
        chunk = json.loads(event)
        if error := chunk.get("error"):
            self.fail("an error in the stream", str(error.get("message")))
        self._usage = chunk.get("usage") or self._usage
        if any(_says_something(choice) for choice in chunk.get("choices", ())):
            self._piece(now)

    def _piece(self, now: float) -> None:
        if self._ttft is None:
            self._ttft = now - self._began
        else:
            self._gaps.append(now - self._last)
        self._last = now

    def fail(self, kind: str, detail: str = "") -> None:
        """Record a failure. Only the first counts, because later ones follow from it."""
        if self._error is None:
            self._error, self._detail = kind, shown(detail)

    def end(self) -> None:
        if not self._is_done:
            self.fail("the stream broke off")
        elif self._ttft is None:
            self.fail("an answer without a token")

    def outcome(self) -> Outcome:
        details = self._usage.get("prompt_tokens_details") or {}
        cached = details.get("cached_tokens")
        return replace(
            self._outcome,
            ttft_seconds=self._ttft,
            gaps_seconds=tuple(self._gaps),
            seconds=(self._last if self._error is None else time.perf_counter()) - self._began,
            prompt_tokens=int(self._usage.get("prompt_tokens") or 0),
            output_tokens=int(self._usage.get("completion_tokens") or 0),
            cached_tokens=None if cached is None else int(cached),
            error=self._error,
            detail=self._detail,
        )


def _says_something(choice: Mapping[str, Any]) -> bool:
    """Return whether a choice has a token. Some servers send the role first. A token's text may be empty."""
    delta = choice.get("delta")
    if delta is None:
        return True
    return not (delta.get("role") and not delta.get("content")) or choice.get("finish_reason") is not None


def shown(text: str) -> str:
    """Return the text in one line, shortened."""
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]}…"
