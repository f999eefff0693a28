"""Finds the parts that vary inside prompts that are otherwise the same, one part after the other from the beginning.

Each part found is treated as moved to the prompt's end, and the analysis continues as if it had always been there. A
part counts only if the cache would then serve more: a difference because of another question costs nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from statistics import median_low

from engine_agent.divergence.branches import Branching, branchings
from engine_agent.divergence.findings import Analysis, Finding, Parting, Span
from engine_agent.divergence.lines import Line, line_of, line_without
from engine_agent.divergence.marks import SHINGLE_TOKENS, count, cut
from engine_agent.divergence.realigning import ANCHOR_TOKENS, Realigned, realigned
from engine_agent.divergence.reuse import BLOCK_TOKENS, best_matches, hit_tokens

MOST_FINDINGS = 8
MOST_LOOKS = 96  # branchings that an analysis looks at, in total
MOST_AT_ONCE = 16  # branchings that one round looks at: those with the most prompts
MOST_TOGETHER = 4  # parts that are moved together, if only all of them together pay
LEAST_GAIN = 0.01  # the share of all tokens that moving a part must gain
BUCKETS = 24


@dataclass(frozen=True, slots=True)
class Sample:
    marks: bytes
    is_whole: bool = True  # False: the marks are only the prompt's head


@dataclass(frozen=True, slots=True)
class _Step:
    """A part that is treated as moved: the realignment, and the lines before and after."""

    found: Realigned
    before: Sequence[Line]
    after: Sequence[Line]


def analyse(
    samples: Sequence[Sample],
    *,
    shingle: int = SHINGLE_TOKENS,
    block_tokens: int = BLOCK_TOKENS,
    most_looks: int = MOST_LOOKS,
) -> Analysis:
    """Analyse prompts in the order of their arrival. `most_looks` limits the work."""
    return _Analysing(samples, shingle, block_tokens, most_looks).run()


class _Analysing:
    def __init__(self, samples: Sequence[Sample], shingle: int, block_tokens: int, most_looks: int) -> None:
        self._lines: Sequence[Line] = [line_of(one.marks, is_whole=one.is_whole) for one in samples]
        self._smear, self._block_tokens = shingle - 1, block_tokens
        self._tokens = sum(count(one.marks) for one in samples)
        self._looks_left = most_looks
        self._vain: set[tuple[int, tuple[int, ...]]] = set()

    def run(self) -> Analysis:
        now = hits = self._hits(self._lines)
        partings = self._partings()
        findings: list[Finding] = []
        while len(findings) < MOST_FINDINGS and (steps := self._mending(hits)):
            for step in steps:
                findings.append(self._finding(step, hits, hits := self._hits(step.after)))
            self._lines = steps[-1].after
        return Analysis(
            len(self._lines), self._tokens, self._ratio(now), self._ratio(hits), tuple(findings), tuple(partings)
        )

    def _mending(self, hits: int) -> list[_Step]:
        """Return the next parts to move, usually one: those with the largest gain above the number of moved tokens."""
        found: list[tuple[int, list[_Step]]] = []
        for branching in branchings([line.kept for line in self._lines])[:MOST_AT_ONCE]:
            if (branching.depth, branching.members) not in self._vain and self._looks_left > 0:
                if steps := self._paying(branching, hits):
                    found.append((self._worth(steps, hits), steps))
                else:
                    self._vain.add((branching.depth, branching.members))
        return max(found, key=lambda one: one[0], default=(0, list[_Step]()))[1]

    def _worth(self, steps: Sequence[_Step], hits: int) -> int:
        moved = sum(sum(step.found.until.values()) - step.found.start * len(step.found.until) for step in steps)
        return self._hits(steps[-1].after) - hits - moved

    def _paying(self, branching: Branching, hits: int) -> list[_Step]:
        """Return the parts to move from this branching on until moving them pays, or none."""
        steps: list[_Step] = []
        lines, at = self._lines, branching
        while len(steps) < MOST_TOGETHER and (step := self._step(lines, at)) is not None:
            steps.append(step)
            lines = step.after
            if self._hits(lines) - hits >= max(self._block_tokens, LEAST_GAIN * self._tokens):
                return steps
            if (following := _next_of(lines, step.found)) is None:
                return []
            at = following
        return []

    def _step(self, lines: Sequence[Line], at: Branching) -> _Step | None:
        self._looks_left -= 1
        found = realigned([line.kept for line in lines], at)
        if found is None:
            return None
        after = [
            line_without(line, found.start, found.until[place]) if place in found.until else line
            for place, line in enumerate(lines)
        ]
        return _Step(found, lines, after)

    # Findings

    def _finding(self, step: _Step, hits: int, then: int) -> Finding:
        start, until = step.found.start, step.found.until
        kept = [line.kept for line in step.before]
        spans = tuple(self._spans(step))
        lengths = [one.stop - one.start for one in spans if one.stop > one.start] or [0]
        rest = {one: cut(kept[one], place, count(kept[one])) for one, place in until.items()}
        differing = [
            one
            for one, best in enumerate(best_matches(kept))
            if one in until and start <= best < until[one] + ANCHOR_TOKENS
        ]
        again = dict(zip(rest, best_matches(list(rest.values())), strict=True))
        agreeing = [again[one] for one in differing if again[one] >= self._block_tokens]
        return Finding(
            place=_around(kept, step.found),
            token=median_low(one.start for one in spans),
            length_tokens=median_low(lengths),
            longest_tokens=max(lengths),
            share=len(differing) / len(kept),
            recurs=len(agreeing) / len(differing) if differing else 0.0,
            recurring_tokens=median_low(agreeing) if agreeing else 0,
            distinct=len({cut(kept[one], start, place) for one, place in until.items()}),
            seen=len(until),
            hit_ratio_now=self._ratio(hits),
            hit_ratio_then=self._ratio(then),
            spans=spans,
        )

    def _spans(self, step: _Step) -> Iterator[Span]:
        """Yield the part's place in each original prompt. Exclude the marks right behind a change: they depend on the
        tokens before them, but stand for unchanged ones.
        """
        for one, place in step.found.until.items():
            line, start = step.before[one], step.found.start
            first = line.place(start)
            last = line.place(place - 1) + 1 if place > start else first
            yield Span(one, first, max(first, last - self._smear))

    def _partings(self) -> Iterator[Parting]:
        """Yield the share of prompts with a match that ends in each stretch. Equal stretches cover all ends."""
        ends = [best for best in best_matches([line.kept for line in self._lines]) if best >= 0]
        longest = max((count(line.marks) for line in self._lines), default=0)
        width = max(1, -(-longest // BUCKETS))
        for low in range(0, longest + 1, width):
            if many := sum(low <= end < low + width for end in ends):
                yield Parting(low, min(low + width, longest), many / len(self._lines))

    def _hits(self, lines: Sequence[Line]) -> int:
        return hit_tokens((line.mended for line in lines), self._block_tokens)

    def _ratio(self, hits: int) -> float:
        return hits / self._tokens if self._tokens else 0.0


def _next_of(lines: Sequence[Line], found: Realigned) -> Branching | None:
    """Return the next branching of most of the prompts that agree again."""
    inside = found.until.keys()
    following = (
        one
        for one in branchings([line.kept for line in lines])
        if one.depth >= found.start and 2 * len(inside & set(one.members)) >= len(inside)
    )
    return min(following, key=lambda one: one.depth, default=None)


def _around(kept: Sequence[bytes], found: Realigned) -> str:
    """Return a digest of the part's surroundings, equal for the same prompts in any sample."""
    one, place = next(iter(found.until.items()))
    before = cut(kept[one], max(0, found.start - ANCHOR_TOKENS), found.start)
    return sha256(before + b"|" + cut(kept[one], place, place + ANCHOR_TOKENS)).hexdigest()[:16]


def without_spans(analysis: Analysis) -> Analysis:
    """Return the analysis without the spans, for readers that only need the figures."""
    return replace(analysis, findings=tuple(replace(one, spans=()) for one in analysis.findings))
