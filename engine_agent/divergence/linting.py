"""Analyses prompts that a user provides: where their text varies, and what the varying text looks like."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from engine_agent.divergence.advice import advice
from engine_agent.divergence.analysing import MOST_LOOKS, Sample, analyse
from engine_agent.divergence.chunks import chunk_marks, chunk_places
from engine_agent.divergence.findings import Finding, Span
from engine_agent.divergence.looks import NUMBER, look_at, looks
from engine_agent.divergence.prompt_texts import PromptText, shown_line

MOST_TOKENS = 4_096  # analysed per prompt
MOST_EXCERPTS = 3
MOST_SUSPECTS = 10  # reported per prompt
EXCERPT_CHARACTERS = 160
CONTEXT_CHARACTERS = 40
Tokenise = Callable[[str, int], list[tuple[int, int]]]  # a text → (from, until) of its tokens, at most so many


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A place in one of the prompts."""

    prompt: int  # from 1
    where: str  # the name of the prompt's part
    line: int  # within that part, from 1
    column: int
    before: str
    text: str
    after: str


@dataclass(frozen=True, slots=True)
class LintFinding:
    finding: Finding
    looks_like: str | None
    advice: str
    excerpts: tuple[Excerpt, ...]


@dataclass(frozen=True, slots=True)
class Suspect:
    """A text that probably differs in the next prompt, although these prompts do not show it."""

    token: int
    looks_like: str
    excerpt: Excerpt


@dataclass(frozen=True, slots=True)
class Lint:
    prompts: int
    tokens: int
    hit_ratio_now: float
    hit_ratio_then: float
    findings: tuple[LintFinding, ...]
    suspects: tuple[Suspect, ...]


def lint(
    prompts: Sequence[PromptText],
    tokenise: Tokenise = chunk_places,
    *,
    most_looks: int = MOST_LOOKS,
    most_tokens: int = MOST_TOKENS,
) -> Lint:
    """Lint prompts, in the order in which they are sent."""
    token_spans = [tokenise(prompt.text, most_tokens) for prompt in prompts]
    samples = [
        Sample(chunk_marks(prompt.text, spans), is_whole=len(spans) < most_tokens)
        for prompt, spans in zip(prompts, token_spans, strict=True)
    ]
    analysis = analyse(samples, shingle=1, most_looks=most_looks)
    findings = tuple(_shown(finding, prompts, token_spans) for finding in analysis.findings)
    suspects = () if findings else tuple(_suspects(prompts, token_spans))
    return Lint(len(prompts), analysis.tokens, analysis.hit_ratio_now, analysis.hit_ratio_then, findings, suspects)


def _shown(
    finding: Finding, prompts: Sequence[PromptText], token_spans: Sequence[Sequence[tuple[int, int]]]
) -> LintFinding:
    spans = [span for span in finding.spans if span.stop > span.start][:MOST_EXCERPTS]
    locations = [(span.prompt, *_characters(span, token_spans[span.prompt])) for span in spans]
    found_looks = [(number, look_at(prompts[number].text, start, stop)) for number, start, stop in locations]
    names = {look.name for _, look in found_looks if look is not None}
    looks_like = names.pop() if len(names) == 1 and all(look is not None for _, look in found_looks) else None
    excerpts = tuple(
        _excerpt(number, prompts[number], *((look.start, look.stop) if looks_like and look else (start, stop)))
        for (number, start, stop), (_, look) in zip(locations, found_looks, strict=True)
    )
    return LintFinding(finding, looks_like, advice(finding, looks_like), excerpts)


def _characters(span: Span, token_spans: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return token_spans[span.start][0], token_spans[span.stop - 1][1]


def _excerpt(number: int, prompt: PromptText, start: int, stop: int) -> Excerpt:
    where, offset = prompt.where(start)
    line, column = shown_line(prompt.text[start - offset :], offset)
    excerpt = prompt.text[start:stop]
    return Excerpt(
        prompt=number + 1,
        where=where,
        line=line,
        column=column,
        before=prompt.text[max(0, start - CONTEXT_CHARACTERS) : start],
        text=excerpt if len(excerpt) <= EXCERPT_CHARACTERS else excerpt[: EXCERPT_CHARACTERS - 1] + "…",
        after=prompt.text[stop : stop + CONTEXT_CHARACTERS],
    )


def _suspects(prompts: Sequence[PromptText], token_spans: Sequence[Sequence[tuple[int, int]]]) -> Iterator[Suspect]:
    """Yield suspects in the first half of the first prompt: near its end they do no harm."""
    for number, (prompt, spans) in enumerate(zip(prompts[:1], token_spans, strict=False)):
        suspect_count = 0
        for look in looks(prompt.text[: (spans[-1][1] if spans else 0) // 2]):
            if look.name != NUMBER and suspect_count < MOST_SUSPECTS:
                suspect_count += 1
                token = sum(stop <= look.start for _, stop in spans)
                yield Suspect(token, look.name, _excerpt(number, prompt, look.start, look.stop))
