"""What comes of looking at prompts: the parts that vary inside what is otherwise the same, and what they cost."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """In one prompt: from, until, in tokens."""

    prompt: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Finding:
    place: str  # the same in other samples of the same prompts: a digest of what stands around it
    token: int  # where it begins, mostly
    length_tokens: int  # how long it is, mostly
    longest_tokens: int
    share: float  # of all prompts: those that differ from all before them first here
    recurs: float  # of those: in which what follows is the same again as in one before
    recurring_tokens: int  # how much is the same again, mostly
    distinct: int  # so many values were seen, in so many prompts
    seen: int
    hit_ratio_now: float  # with everything before it mended
    hit_ratio_then: float
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Parting:
    """Prompts whose match with those before them ended between `token` and `until`."""

    token: int
    until: int
    share: float


@dataclass(frozen=True, slots=True)
class Analysis:
    prompts: int
    tokens: int  # of what was looked at
    hit_ratio_now: float
    hit_ratio_then: float  # with everything found mended
    findings: tuple[Finding, ...]
    partings: tuple[Parting, ...]  # of all prompts but the first, also of those that are as they should be
