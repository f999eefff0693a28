"""Bodies for the causes of cache misses: in a namespace's prompts, and in prompts that the caller sends."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from controlplane.analytics.linting import MOST_PROMPTS
from controlplane.api.schemas.base import Given, Taken, example

ADVICE = (
    "42 % of the prompts differ first at token 37 and agree again 6 tokens later, for 812 tokens. "
    "Move what varies to the end: hit rate 3 % → 91 %."
)
VARYING = {
    "token": 37,
    "length_tokens": 6,
    "longest_tokens": 8,
    "share": 0.42,
    "recurs": 1.0,
    "recurring_tokens": 812,
    "distinct": 20,
    "seen": 20,
    "hit_ratio_now": 0.03,
    "hit_ratio_then": 0.91,
    "advice": ADVICE,
}
FOUND = {"place": "721306e3e40c2535", **VARYING}
PARTING = {"token": 0, "until": 43, "share": 0.42}
EXCERPT = {
    "prompt": 1,
    "where": "messages[0] (system)",
    "line": 2,
    "column": 6,
    "before": "You are kind.\nNow: ",
    "text": "2026-11-20T10:00:10Z",
    "after": "\nRule 1: be brief",
}
SUSPECT = {"token": 37, "looks_like": "a timestamp", "excerpt": EXCERPT}


class Varying(Given):
    """A part that varies inside what is otherwise the same."""

    token: int = Field(description="Where it begins.")
    length_tokens: int = Field(description="How long it mostly is.")
    longest_tokens: int
    share: float = Field(description="Of all prompts: those that differ first here from all before them.")
    recurs: float = Field(description="Of those: in which what follows is the same again as in one before.")
    recurring_tokens: int = Field(description="How much is then the same again, mostly.")
    distinct: int = Field(description="So many values were seen …")
    seen: int = Field(description="… in so many prompts.")
    hit_ratio_now: float = Field(description="Of the sample, with all parts before this one moved.")
    hit_ratio_then: float = Field(description="With this one moved to the prompt's end, too.")
    advice: str


class FoundVarying(Varying):
    model_config = ConfigDict(json_schema_extra=example(**FOUND))

    place: str = Field(description="Stays the same while what stands around it does.")


class PartingShown(Given):
    """How many prompts' match with one before them ended in a stretch of the prompt."""

    model_config = ConfigDict(json_schema_extra=example(**PARTING))

    token: int
    until: int
    share: float = Field(description="Of all prompts.")


class DiagnosticsShown(Given):
    """Of a sample, of which keyed hashes are kept and no text."""

    model_config = ConfigDict(
        json_schema_extra=example(
            as_of="2026-11-22T12:00:00Z",
            gateways=1,
            sampled_requests=48,
            sampled_tokens=41_230,
            hit_ratio_now=0.03,
            hit_ratio_then=0.91,
            findings=[FOUND],
            partings=[PARTING],
        )
    )

    as_of: datetime | None = Field(description="When last looked at; null: not in the last 24 h.")
    gateways: int = Field(description="Whose samples these are.")
    sampled_requests: int
    sampled_tokens: int = Field(description="Of those: the first 2,048 tokens of each.")
    hit_ratio_now: float | None = Field(description="What a cache that keeps everything would serve of the sample.")
    hit_ratio_then: float | None = Field(description="With everything found moved to the end.")
    findings: list[FoundVarying]
    partings: list[PartingShown]


class PromptsToLint(Taken):
    """In the order in which they are sent. One is looked over; several are compared."""

    model_config = ConfigDict(json_schema_extra=example(prompts=["Now: 10:00\nBe kind.", "Now: 10:05\nBe kind."]))

    prompts: Annotated[list[str | list[Any] | dict[str, Any]], Field(min_length=1, max_length=MOST_PROMPTS)] = Field(
        description="Each is a prompt's text, a list of messages, or a body with `messages` or `prompt`."
    )


class ExcerptShown(Given):
    """A place in one of the prompts."""

    model_config = ConfigDict(json_schema_extra=example(**EXCERPT))

    prompt: int = Field(description="Which, from 1.")
    where: str = Field(description="In which part of it.")
    line: int = Field(description="Of that part, from 1.")
    column: int
    before: str
    text: str
    after: str


class LintFound(Varying):
    model_config = ConfigDict(json_schema_extra=example(**VARYING, looks_like="a timestamp", excerpts=[EXCERPT]))

    looks_like: str | None = Field(description="By its form; null where it has none we know.")
    excerpts: list[ExcerptShown]


class LintSuspect(Given):
    """What looks as if it were another one in the next prompt."""

    model_config = ConfigDict(json_schema_extra=example(**SUSPECT))

    token: int
    looks_like: str
    excerpt: ExcerptShown


class LintShown(Given):
    """Tokens are counted by words: no model's tokenizer is at hand here."""

    model_config = ConfigDict(
        json_schema_extra=example(
            prompts=4,
            tokens=1_640,
            hit_ratio_now=0.05,
            hit_ratio_then=0.67,
            findings=[{**VARYING, "looks_like": "a timestamp", "excerpts": [EXCERPT]}],
            suspects=[SUSPECT],
        )
    )

    prompts: int
    tokens: int = Field(description="About: the first 2,048 of each prompt.")
    hit_ratio_now: float = Field(description="What a cache that keeps everything would serve of these prompts.")
    hit_ratio_then: float = Field(description="With everything found moved to the end.")
    findings: list[LintFound]
    suspects: list[LintSuspect] = Field(description="Of the first prompt, where nothing was proved.")
