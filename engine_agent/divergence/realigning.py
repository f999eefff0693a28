"""Whether prompts that part agree again, and from where on: by what most of them have in common, wherever it lies."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from engine_agent.divergence.branches import Branching
from engine_agent.divergence.marks import MARK_BYTES, count

ANCHOR_TOKENS = 8  # so many marks in a row are no chance, and no chat template's own
WINDOW_TOKENS = 1_024  # what varies is no longer
LEAST_COVERAGE = 0.5  # of those that part
NEARLY = 0.9  # an earlier anchor is better than one that a few more prompts have


@dataclass(frozen=True, slots=True)
class Realigned:
    """What varies, in each prompt in which something does: from `start` until its own place."""

    start: int
    until: dict[int, int]  # by prompt


def realigned(prompts: Sequence[bytes], branching: Branching) -> Realigned | None:
    start = branching.depth
    parting = {one: _window(prompts[one], start) for one in branching.members if count(prompts[one]) > start}
    anchor = _anchor(parting)
    if anchor is None:
        return None
    places = {one: _place(window, anchor) for one, window in parting.items()}
    until = {one: start + place for one, place in places.items() if place is not None}
    return Realigned(start, _drawn_near(prompts, start, until))


def _window(prompt: bytes, start: int) -> bytes:
    return prompt[start * MARK_BYTES : (start + WINDOW_TOKENS + ANCHOR_TOKENS) * MARK_BYTES]


def _anchor(windows: dict[int, bytes]) -> bytes | None:
    """The first stretch that nearly as many have as have any; None where fewer than half agree on one."""
    held, places, branches = Counter[bytes](), Counter[bytes](), dict[bytes, bytes | None]()
    for window in windows.values():
        for gram, place in _grams(window).items():
            held[gram] += 1
            places[gram] += place
            first = window[:MARK_BYTES]
            branches[gram] = first if branches.get(gram, first) == first else None
    across = {gram: n for gram, n in held.items() if branches[gram] is None}  # else it is of one branch alone
    most = max(across.values(), default=0)
    if most < max(2, LEAST_COVERAGE * len(windows)):
        return None
    return min((gram for gram, n in across.items() if n >= NEARLY * most), key=lambda gram: places[gram] / held[gram])


def _grams(window: bytes) -> dict[bytes, int]:
    width = ANCHOR_TOKENS * MARK_BYTES
    found: dict[bytes, int] = {}
    for place in range(count(window) - ANCHOR_TOKENS + 1):
        found.setdefault(window[place * MARK_BYTES : place * MARK_BYTES + width], place)
    return found


def _place(window: bytes, anchor: bytes) -> int | None:
    at = window.find(anchor)
    while at > 0 and at % MARK_BYTES:  # a chance between two marks
        at = window.find(anchor, at + 1)
    return None if at < 0 else at // MARK_BYTES


def _drawn_near(prompts: Sequence[bytes], start: int, until: dict[int, int]) -> dict[int, int]:
    """What all have just before the anchor varies in none of them."""
    back = 0
    while all(place - back > start for place in until.values()):
        before = {_mark(prompts[one], place - back - 1) for one, place in until.items()}
        if len(before) > 1:
            break
        back += 1
    return {one: place - back for one, place in until.items()}


def _mark(prompt: bytes, place: int) -> bytes:
    return prompt[place * MARK_BYTES : (place + 1) * MARK_BYTES]
