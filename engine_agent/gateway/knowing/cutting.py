"""Cuts a text into pieces whose tokens, concatenated, are the text's tokens, so that no piece is tokenised twice.

A text may be cut before the tokens that its bundle lists. This is tested when a tokenizer is loaded; if the test fails,
a text is one piece.
"""

import re
from array import array
from collections.abc import Collection
from dataclasses import dataclass

import tokenizers

LEAST_PIECE = 2_048  # characters: many short pieces would cost more than tokenising the end of a text again
CUT_TOKENS = 32  # dropped from a truncated text: its continuation could change that many
_TRIED = ("Hello there", " two  blanks, and\n\n\tlines ", "", "\n", "Grüße, 世界! 12345 don't", " x")


@dataclass(frozen=True, slots=True)
class Around:
    """The tokens that a tokenizer puts before and after a text on request."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


class Cutter:
    """Wraps one tokenizer, thread-safe. A text may be cut before each of the `special` tokens."""

    def __init__(
        self, tokenizer: tokenizers.Tokenizer, special: Collection[str], *, least_piece: int = LEAST_PIECE
    ) -> None:
        self._tokenizer, self._least = tokenizer, least_piece
        self._cuts = sorted(filter(None, special), key=lambda text: (-len(text), text))
        self._pattern = re.compile("|".join(map(re.escape, self._cuts)) or r"(?!)")
        self.can_cut = bool(self._cuts) and self._is_exact()
        self.around = self._found_around()  # None: they depend on the text

    def pieces(self, text: str) -> list[str]:
        """Return the pieces of a text. A longer text that begins with it has the same pieces, except the last."""
        if not self.can_cut:
            return [text]
        return _parted(text, self._places(text, self._least))

    def tokens(self, text: str) -> "array[int]":
        """Tokenise a text, without special tokens around it. Other threads can run: this releases the GIL."""
        return array("I", self._encoded(text))

    def head_tokens(self, text: str, most_characters: int) -> "array[int]":
        """Return the tokens of the beginning, without the last ones, which later characters could change."""
        tokens = self.tokens(text[:most_characters])
        return tokens if len(text) <= most_characters else tokens[: max(0, len(tokens) - CUT_TOKENS)]

    def _places(self, text: str, least: int) -> list[int]:
        offsets, least = [0], max(1, least)  # these texts never overlap, so that a search may start anywhere
        while match := self._pattern.search(text, offsets[-1] + least):
            offsets.append(match.start())
        return offsets

    def _encoded(self, text: str, *, with_around: bool = False) -> list[int]:
        ids: list[int] = self._tokenizer.encode_batch_fast([text], add_special_tokens=with_around)[0].ids
        return ids

    def _is_exact(self) -> bool:
        cuts = self._cuts[:8]
        texts = [*_TRIED, *("".join(f"{text}{cut}{text}" for cut in cuts) for text in _TRIED)]
        texts += [f"{cut}{''.join(cuts)}{text}{cut}" for cut in cuts for text in _TRIED]
        return all(self._is_same(text) for text in texts)

    def _is_same(self, text: str) -> bool:
        pieces = _parted(text, self._places(text, 1))
        return [token for piece in pieces for token in self._encoded(piece)] == self._encoded(text)

    def _found_around(self) -> Around | None:
        arounds = {self._tried_around(text) for text in (_TRIED[0], _TRIED[4])}
        return arounds.pop() if len(arounds) == 1 else None

    def _tried_around(self, text: str) -> Around | None:
        plain_ids, all_ids = self._encoded(text), self._encoded(text, with_around=True)
        for offset in range(len(all_ids) - len(plain_ids) + 1):
            if all_ids[offset : offset + len(plain_ids)] == plain_ids:
                return Around(tuple(all_ids[:offset]), tuple(all_ids[offset + len(plain_ids) :]))
        return None


def _parted(text: str, offsets: list[int]) -> list[str]:
    return [text[start:end] for start, end in zip(offsets, [*offsets[1:], len(text)], strict=True)]
