"""Stop strings in text that comes in pieces. What may be the beginning of one is held back until it is known.

A stop string is found when its last character comes, whatever pieces the text is cut into; of several that end there
the longest. Knuth, Morris and Pratt's automaton for each: a character costs the same however long the strings are.
"""

from collections.abc import Sequence


class StopStrings:
    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        """`include`: the stop string itself is released as well."""
        self._stops = [(stop, _fallbacks(stop)) for stop in stops]
        self._include = include
        self._matched = [0] * len(self._stops)  # how many of each one's characters the text ends with
        self._held = ""

    def push(self, text: str) -> tuple[str, str | None]:
        """What can be released by now, and the stop string that was found. What comes behind it is dropped."""
        if not self._stops:
            return text, None
        held = self._held + text
        for at, letter in enumerate(text, start=len(self._held) + 1):
            if found := self._advance(letter):
                self._held = ""
                return held[: at if self._include else at - len(found)], found
        certain = len(held) - max(self._matched)
        self._held = held[certain:]
        return held[:certain], None

    def finish(self) -> str:
        """What was held back, and became no stop string."""
        held, self._held = self._held, ""
        return held

    def copy(self) -> "StopStrings":
        other = StopStrings((), include=self._include)
        other._stops, other._matched, other._held = self._stops, self._matched.copy(), self._held
        return other

    def _advance(self, letter: str) -> str:
        """The longest stop string that ends with this letter, if any does."""
        found = ""
        for number, (stop, fallbacks) in enumerate(self._stops):
            matched = self._matched[number]
            while matched and stop[matched] != letter:
                matched = fallbacks[matched - 1]
            matched += stop[matched] == letter
            if matched == len(stop):
                matched = fallbacks[matched - 1]
                found = max(found, stop, key=len)
            self._matched[number] = matched
        return found


def _fallbacks(stop: str) -> list[int]:
    """For each prefix the length of its longest proper ending that is a prefix too."""
    fallbacks = [0] * len(stop)
    length = 0
    for at in range(1, len(stop)):
        while length and stop[length] != stop[at]:
            length = fallbacks[length - 1]
        length += stop[length] == stop[at]
        fallbacks[at] = length
    return fallbacks
