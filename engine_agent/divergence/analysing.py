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
        self._lines: Sequence[Line] = [line_of(sample.marks, is_whole=sample.is_whole) for sample in samples]
        self._smear, self._block_tokens = shingle - 1, block_tokens
        self._tokens = sum(count(sample.marks) for sample in samples)
        self._looks_left = most_looks
        self._vain: set[tuple[int, tuple[int, ...]]] = set()

    def run(self) -> Analysis:
        initial_hits = hits = self._hits(self._lines)
        partings = self._partings()
        findings: list[Finding] = []
        while len(findings) < MOST_FINDINGS and (steps := self._mending(hits)):
            for step in steps:
                findings.append(self._finding(step, hits, hits := self._hits(step.after)))
            self._lines = steps[-1].after
        return Analysis(
            len(self._lines),
            self._tokens,
            self._ratio(initial_hits),
            self._ratio(hits),
            tuple(findings),
            tuple(partings),
        )

    def _mending(self, hits: int) -> list[_Step]:
        """Return the next parts to move, usually one: those with the largest gain above the number of moved tokens."""
        candidates: list[tuple[int, list[_Step]]] = []
        for branching in branchings([line.kept for line in self._lines])[:MOST_AT_ONCE]:
            if (branching.depth, branching.members) not in self._vain and self._looks_left > 0:
                if steps := self._paying(branching, hits):
                    candidates.append((self._worth(steps, hits), steps))
                else:
                    self._vain.add((branching.depth, branching.members))
        return max(candidates, key=lambda candidate: candidate[0], default=(0, list[_Step]()))[1]

    def _worth(self, steps: Sequence[_Step], hits: int) -> int:
        moved_tokens = sum(sum(step.found.until.values()) - step.found.start * len(step.found.until) for step in steps)
        return self._hits(steps[-1].after) - hits - moved_tokens

    def _paying(self, branching: Branching, hits: int) -> list[_Step]:
        """Return the parts to move from this branching on until moving them pays, or none."""
        steps: list[_Step] = []
        lines, branching_point = self._lines, branching
        while len(steps) < MOST_TOGETHER and (step := self._step(lines, branching_point)) is not None:
            steps.append(step)
            lines = step.after
            if self._hits(lines) - hits >= max(self._block_tokens, LEAST_GAIN * self._tokens):
                return steps
            if (following := _next_of(lines, step.found)) is None:
                return []
            branching_point = following
        return []

    def _step(self, lines: Sequence[Line], branching: Branching) -> _Step | None:
        self._looks_left -= 1
        realignment = realigned([line.kept for line in lines], branching)
        if realignment is None:
            return None
        remaining_lines = [
            line_without(line, realignment.start, realignment.until[index]) if index in realignment.until else line
            for index, line in enumerate(lines)
        ]
        return _Step(realignment, lines, remaining_lines)

    # Findings

    def _finding(self, step: _Step, hits: int, hits_after: int) -> Finding:
        start, until = step.found.start, step.found.until
        prompts = [line.kept for line in step.before]
        spans = tuple(self._spans(step))
        lengths = [span.stop - span.start for span in spans if span.stop > span.start] or [0]
        remainders = {index: cut(prompts[index], end, count(prompts[index])) for index, end in until.items()}
        differing = [
            index
            for index, best in enumerate(best_matches(prompts))
            if index in until and start <= best < until[index] + ANCHOR_TOKENS
        ]
        later_matches = dict(zip(remainders, best_matches(list(remainders.values())), strict=True))
        agreeing = [later_matches[index] for index in differing if later_matches[index] >= self._block_tokens]
        return Finding(
            place=_around(prompts, step.found),
            token=median_low(span.start for span in spans),
            length_tokens=median_low(lengths),
            longest_tokens=max(lengths),
            share=len(differing) / len(prompts),
            recurs=len(agreeing) / len(differing) if differing else 0.0,
            recurring_tokens=median_low(agreeing) if agreeing else 0,
            distinct=len({cut(prompts[index], start, end) for index, end in until.items()}),
            seen=len(until),
            hit_ratio_now=self._ratio(hits),
            hit_ratio_then=self._ratio(hits_after),
            spans=spans,
        )

    def _spans(self, step: _Step) -> Iterator[Span]:
        """Yield the part's place in each original prompt. Exclude the marks right behind a change: they depend on the
        tokens before them, but stand for unchanged ones.
        """
        for prompt_index, end in step.found.until.items():
            line, start = step.before[prompt_index], step.found.start
            first = line.place(start)
            last = line.place(end - 1) + 1 if end > start else first
            yield Span(prompt_index, first, max(first, last - self._smear))

    def _partings(self) -> Iterator[Parting]:
        """Yield the share of prompts with a match that ends in each stretch. Equal stretches cover all ends."""
        ends = [best for best in best_matches([line.kept for line in self._lines]) if best >= 0]
        longest = max((count(line.marks) for line in self._lines), default=0)
        width = max(1, -(-longest // BUCKETS))
        for low in range(0, longest + 1, width):
            if prompt_count := sum(low <= end < low + width for end in ends):
                yield Parting(low, min(low + width, longest), prompt_count / len(self._lines))

    def _hits(self, lines: Sequence[Line]) -> int:
        return hit_tokens((line.mended for line in lines), self._block_tokens)

    def _ratio(self, hits: int) -> float:
        return hits / self._tokens if self._tokens else 0.0


def _next_of(lines: Sequence[Line], realignment: Realigned) -> Branching | None:
    """Return the next branching of most of the prompts that agree again."""
    inside = realignment.until.keys()
    following = (
        branching
        for branching in branchings([line.kept for line in lines])
        if branching.depth >= realignment.start and 2 * len(inside & set(branching.members)) >= len(inside)
    )
    return min(following, key=lambda branching: branching.depth, default=None)


def _around(prompts: Sequence[bytes], realignment: Realigned) -> str:
    """Return a digest of the part's surroundings, equal for the same prompts in any sample."""
    index, end = next(iter(realignment.until.items()))
    before = cut(prompts[index], max(0, realignment.start - ANCHOR_TOKENS), realignment.start)
    return sha256(before + b"|" + cut(prompts[index], end, end + ANCHOR_TOKENS)).hexdigest()[:16]


def without_spans(analysis: Analysis) -> Analysis:
    """Return the analysis without the spans, for readers that only need the figures."""
    return replace(analysis, findings=tuple(replace(finding, spans=()) for finding in analysis.findings))
