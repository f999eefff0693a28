"""Stop strings in streamed text. Text that may be the beginning of one is held back until that is known.

A stop string matches when its last character comes, however the text is divided; of several that end there, the longest
wins. Each has an automaton (Knuth, Morris and Pratt), so the cost per character does not depend on their length.
"""

from collections.abc import Sequence


class StopStrings:
    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        """`include`: also release the stop string itself."""
        self._stops = [(stop, _fallbacks(stop)) for stop in stops]
        self._include = include
        self._matched = [0] * len(self._stops)  # for each stop string, the length of its prefix that ends the text
        self._held = ""

    def push(self, text: str) -> tuple[str, str | None]:
        """Return the text that can be released, and the stop string that matched, if any. Text behind it is dropped."""
        if not self._stops:
            return text, None
        pending = self._held + text
        for at, letter in enumerate(text, start=len(self._held) + 1):
            if matched_stop := self._advance(letter):
                self._held = ""
                return pending[: at if self._include else at - len(matched_stop)], matched_stop
        certain = len(pending) - max(self._matched)
        self._held = pending[certain:]
        return pending[:certain], None

    def finish(self) -> str:
        """Return the text that was held back and is not a stop string."""
        text, self._held = self._held, ""
        return text

    def copy(self) -> "StopStrings":
        duplicate = StopStrings((), include=self._include)
        duplicate._stops, duplicate._matched, duplicate._held = self._stops, self._matched.copy(), self._held
        return duplicate

    def _advance(self, letter: str) -> str:
        """Return the longest stop string that ends with this letter, or ""."""
        longest = ""
        for number, (stop, fallbacks) in enumerate(self._stops):
            matched = self._matched[number]
            while matched and stop[matched] != letter:
                matched = fallbacks[matched - 1]
            matched += stop[matched] == letter
            if matched == len(stop):
                matched = fallbacks[matched - 1]
                longest = max(longest, stop, key=len)
            self._matched[number] = matched
        return longest


def _fallbacks(stop: str) -> list[int]:
    """Return the length of each prefix's longest proper suffix that is also a prefix."""
    fallbacks = [0] * len(stop)
    length = 0
    for at in range(1, len(stop)):
        while length and stop[length] != stop[at]:
            length = fallbacks[length - 1]
        length += stop[length] == stop[at]
        fallbacks[at] = length
    return fallbacks
