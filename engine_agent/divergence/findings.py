"""The results of an analysis: the parts that vary inside prompts that are otherwise the same, and their cost."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of one prompt: from, until, in tokens."""

    prompt: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Finding:
    place: str  # a digest of its surroundings, the same in other samples of the same prompts
    token: int  # the median beginning
    length_tokens: int  # the median length
    longest_tokens: int
    share: float  # share of prompts whose first difference from all earlier ones is here
    recurs: float  # share of those prompts that then agree with an earlier one again
    recurring_tokens: int  # median number of tokens for which they agree again
    distinct: int  # different values, in `seen` prompts
    seen: int
    hit_ratio_now: float  # if all earlier findings were moved to the end
    hit_ratio_then: float
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Parting:
    """The share of prompts whose best match with an earlier one ended between `token` and `until`."""

    token: int
    until: int
    share: float


@dataclass(frozen=True, slots=True)
class Analysis:
    prompts: int
    tokens: int  # total tokens of the analysed prompts
    hit_ratio_now: float
    hit_ratio_then: float  # if all findings were moved to the end
    findings: tuple[Finding, ...]
    partings: tuple[Parting, ...]  # cover all prompts except the first, including those without a finding
