"""The outcome of one request. Times start when it was sent."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    sent_seconds: float  # since the run began
    late_seconds: float = 0.0  # after its planned time
    ttft_seconds: float | None = None
    gaps_seconds: tuple[float, ...] = ()  # between the pieces of the answer
    seconds: float = 0.0  # to the last byte
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int | None = None  # in the usage; None: not reported
    header_cached_tokens: int | None = None  # in x-luminet-cached-tokens
    miss_reason: str | None = None
    kv_dtype: str | None = None
    error: str | None = None  # the kind of error
    detail: str = ""  # the error's message

    @property
    def is_answered(self) -> bool:
        return self.error is None

    @property
    def tpot_seconds(self) -> float | None:
        """Return the time per output token after the first."""
        if self.ttft_seconds is None or self.output_tokens < 2:
            return None
        return (self.seconds - self.ttft_seconds) / (self.output_tokens - 1)

    @property
    def is_contradictory(self) -> bool:
        """Return whether header and usage have different numbers."""
        counts = (self.cached_tokens, self.header_cached_tokens)
        return None not in counts and counts[0] != counts[1]
