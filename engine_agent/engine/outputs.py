"""The engine's outputs for one request: its admission, then tokens, then the end. Standard library only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length", "cancelled", "deadline", "error"]


@dataclass(frozen=True, slots=True)
class Admission:
    """A request's admission, fixed when it first gets its blocks. Header, usage, metrics and report use its numbers."""

    prompt_tokens: int
    cached_tokens: int
    kv_dtype: str
    policy_revision: int
    miss_reason: str  # why the first missed block missed; "none": every full block hit
    missed: Mapping[str, int]  # tokens that were not cached, by reason; tokens that fill no block are "tail"
    organisation_id: str = ""  # the namespace's organisation


@dataclass(frozen=True, slots=True)
class Logprob:
    token: int
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """The log probabilities of the chosen and the likeliest tokens, before the request's settings."""

    chosen: Logprob
    top: tuple[Logprob, ...]


@dataclass(frozen=True, slots=True)
class Delta:
    """One token of one choice; with a `finish` it is the choice's last.

    `text` is the text that is certain by now: it may be empty, or more than this token's own.
    """

    choice: int
    token: int | None  # None if the end has no token of its own
    text: str
    logprobs: TokenLogprobs | None = None
    finish: FinishReason | None = None
    stopped_by: str | int | None = None  # the stop string or token
