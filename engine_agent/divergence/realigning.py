"""Finds where prompts that diverged agree again: at a stretch that most of them have, wherever it is."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from engine_agent.divergence.branches import Branching
from engine_agent.divergence.marks import MARK_BYTES, count

ANCHOR_TOKENS = 8  # so many equal marks are neither chance nor a chat template's
WINDOW_TOKENS = 1_024  # the longest part that varies
LEAST_COVERAGE = 0.5  # the share of the diverging prompts that must have the anchor
NEARLY = 0.9  # an earlier anchor wins with this share of the prompts that the most frequent one has


@dataclass(frozen=True, slots=True)
class Realigned:
    """A part that varies: in each prompt from `start` until the position in `until`."""

    start: int
    until: dict[int, int]  # by prompt


def realigned(prompts: Sequence[bytes], branching: Branching) -> Realigned | None:
    start = branching.depth
    windows = {index: _window(prompts[index], start) for index in branching.members if count(prompts[index]) > start}
    anchor = _anchor(windows)
    if anchor is None:
        return None
    offsets = {index: _place(window, anchor) for index, window in windows.items()}
    until = {index: start + offset for index, offset in offsets.items() if offset is not None}
    return Realigned(start, _drawn_near(prompts, start, until))


def _window(prompt: bytes, start: int) -> bytes:
    return prompt[start * MARK_BYTES : (start + WINDOW_TOKENS + ANCHOR_TOKENS) * MARK_BYTES]


def _anchor(windows: dict[int, bytes]) -> bytes | None:
    """Return the first of the stretches that nearly the most prompts have; None if fewer than half have the same."""
    prompt_counts, offset_sums, branches = Counter[bytes](), Counter[bytes](), dict[bytes, bytes | None]()
    for window in windows.values():
        for gram, offset in _grams(window).items():
            prompt_counts[gram] += 1
            offset_sums[gram] += offset
            first = window[:MARK_BYTES]
            branches[gram] = first if branches.get(gram, first) == first else None
    # The other grams belong to one branch only.
    shared_counts = {gram: prompt_count for gram, prompt_count in prompt_counts.items() if branches[gram] is None}
    most = max(shared_counts.values(), default=0)
    if most < max(2, LEAST_COVERAGE * len(windows)):
        return None
    return min(
        (gram for gram, prompt_count in shared_counts.items() if prompt_count >= NEARLY * most),
        key=lambda gram: offset_sums[gram] / prompt_counts[gram],
    )


def _grams(window: bytes) -> dict[bytes, int]:
    width = ANCHOR_TOKENS * MARK_BYTES
    first_offsets: dict[bytes, int] = {}
    for offset in range(count(window) - ANCHOR_TOKENS + 1):
        first_offsets.setdefault(window[offset * MARK_BYTES : offset * MARK_BYTES + width], offset)
    return first_offsets


def _place(window: bytes, anchor: bytes) -> int | None:
    position = window.find(anchor)
    while position > 0 and position % MARK_BYTES:  # a chance match between two marks
        position = window.find(anchor, position + 1)
    return None if position < 0 else position // MARK_BYTES


def _drawn_near(prompts: Sequence[bytes], start: int, until: dict[int, int]) -> dict[int, int]:
    """Move each end back past the marks before the anchor that all prompts share: those do not vary."""
    steps_back = 0
    while all(end - steps_back > start for end in until.values()):
        preceding_marks = {_mark(prompts[index], end - steps_back - 1) for index, end in until.items()}
        if len(preceding_marks) > 1:
            break
        steps_back += 1
    return {index: end - steps_back for index, end in until.items()}


def _mark(prompt: bytes, index: int) -> bytes:
    return prompt[index * MARK_BYTES : (index + 1) * MARK_BYTES]
