"""What became of one request. Times are from when it was sent."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    sent_seconds: float  # since the run began
    late_seconds: float = 0.0  # after it should have been sent
    ttft_seconds: float | None = None
    gaps_seconds: tuple[float, ...] = ()  # between the pieces of the answer
    seconds: float = 0.0  # to the last byte
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int | None = None  # by the usage; None: the server does not say
    header_cached_tokens: int | None = None  # by x-luminet-cached-tokens
    miss_reason: str | None = None
    kv_dtype: str | None = None
    error: str | None = None  # its kind, in few words
    detail: str = ""  # what was said about it

    @property
    def is_answered(self) -> bool:
        return self.error is None

    @property
    def tpot_seconds(self) -> float | None:
        """Time per output token after the first."""
        if self.ttft_seconds is None or self.output_tokens < 2:
            return None
        return (self.seconds - self.ttft_seconds) / (self.output_tokens - 1)

    @property
    def is_contradictory(self) -> bool:
        """The header and the usage name different numbers."""
        both = (self.cached_tokens, self.header_cached_tokens)
        return None not in both and both[0] != both[1]
