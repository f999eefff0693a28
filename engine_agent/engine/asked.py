"""A request to the engine: the caller is already authorised, and prompts are token ids. Standard library only."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from engine_agent.engine.errors import BadRequest, Overlong
from engine_agent.engine.params import SamplingParams, shown

Kind = Literal["customer", "probe", "pin"]


@dataclass(frozen=True, slots=True)
class Generate:
    """One job. `kind`: tokens of a probe or a pin are counted as such, and not for a customer."""

    request_id: str
    namespace: str  # its id in the snapshot
    prompts: tuple[Sequence[int], ...]
    sampling: SamplingParams
    kind: Kind = "customer"
    kv_dtype: str | None = None  # None: the policy's
    cache_salt: bytes = field(default=b"", repr=False)
    ttl_seconds: float | None = None
    priority: int = 0  # within its namespace; lower goes first
    deadline_seconds: float | None = None  # from now
    elsewhere_tokens: int = 0  # the longest match of the first prompt that is known at another engine


def check_prompt(prompt: Sequence[int], *, context_tokens: int, vocab_size: int) -> None:
    """Raise BadRequest or Overlong. The length is checked first, so that an overlong prompt is not scanned."""
    if not len(prompt):
        raise BadRequest("prompt", "has no tokens")
    if len(prompt) >= context_tokens:
        raise Overlong("prompt", f"{len(prompt):,} tokens, the model's context has {context_tokens:,} with the answer")
    invalid_token = next((token for token in prompt if not 0 <= token < vocab_size), None)
    if invalid_token is not None:
        raise BadRequest("prompt", f"token {shown(invalid_token)} is none of the model's {vocab_size:,}")
