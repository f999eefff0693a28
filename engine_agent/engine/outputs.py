"""What comes out of the engine for one request: its admission, then tokens, then the end. Standard library only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length", "cancelled", "deadline", "error"]


@dataclass(frozen=True, slots=True)
class Admission:
    """Fixed once, when the request first gets its blocks: header, usage, metrics and report say these numbers."""

    prompt_tokens: int
    cached_tokens: int
    kv_dtype: str
    policy_revision: int
    miss_reason: str  # why the first missed block missed; "none": every full block hit
    missed: Mapping[str, int]  # tokens that were not cached, by reason; what fills no block is "tail"
    organisation_id: str = ""  # whose namespace it is


@dataclass(frozen=True, slots=True)
class Logprob:
    token: int
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """The chosen token's, and the likeliest ones'; of the model itself, before any of the request's settings."""

    chosen: Logprob
    top: tuple[Logprob, ...]


@dataclass(frozen=True, slots=True)
class Delta:
    """One token of one choice. `text` is what can be said for sure by now: it may be empty, or more than this token's
    own. With a `finish` it is the choice's last.
    """

    choice: int
    token: int | None  # None where the end comes without one
    text: str
    logprobs: TokenLogprobs | None = None
    finish: FinishReason | None = None
    stopped_by: str | int | None = None  # which stop string or token it was
