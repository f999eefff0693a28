"""Streaming text from tokens: emitted text is final, and all of it together equals `decode` of all tokens."""

import codecs
from typing import Protocol

from engine_agent.engine.spelling import Spelling


class Detokenizer(Protocol):
    """One choice's text. It never emits part of a UTF-8 character."""

    def push(self, token: int) -> str:
        """Return the text that is certain by now: nothing, or this token's text and all pending text."""

    def finish(self) -> str:
        """Return the pending text. Bytes that never became a character are U+FFFD."""

    def copy(self) -> "Detokenizer":
        """Return a copy for a choice that diverges from here."""


def make_detokenizer(spelling: Spelling, *, skip_special: bool) -> Detokenizer:
    skipped = spelling.special if skip_special else frozenset[int]()
    return _Bytes(spelling, skipped) if spelling.is_byte_level else _Words(spelling, skipped)


class _Bytes:
    """Byte-level vocabularies: decode the tokens' bytes as they come."""

    def __init__(self, spelling: Spelling, skipped: frozenset[int]) -> None:
        self._spelling, self._skipped = spelling, skipped
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        return "" if token in self._skipped else self._decoder.decode(self._spelling.bytes_of(token))

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)

    def copy(self) -> "_Bytes":
        duplicate = _Bytes(self._spelling, self._skipped)
        duplicate._decoder.setstate(self._decoder.getstate())
        return duplicate


class _Words:
    """Other vocabularies: decode a few tokens together, since a word's spelling depends on the word before it.

    Bytes wait for the next word. Only then is it known whether they are characters: one bad byte spoils its neighbours.
    """

    def __init__(self, spelling: Spelling, skipped: frozenset[int]) -> None:
        self._spelling, self._skipped = spelling, skipped
        self._window: list[int] = []  # the last emitted word, and all pending tokens
        self._said = 0  # number of its characters that were emitted

    def push(self, token: int) -> str:
        if token in self._skipped or self._spelling.raw.id_to_token(token) is None:
            return ""
        self._window.append(token)
        if token in self._spelling.half_characters:
            return ""
        text = self._text()
        self._window = [token]
        emitted, self._said = self._said, len(self._text())
        return text[emitted:]

    def finish(self) -> str:
        text = self._text()[self._said :]
        self._said += len(text)
        return text

    def copy(self) -> "_Words":
        duplicate = _Words(self._spelling, self._skipped)
        duplicate._window, duplicate._said = self._window.copy(), self._said
        return duplicate

    def _text(self) -> str:
        return self._spelling.raw.decode(self._window, skip_special_tokens=False)
