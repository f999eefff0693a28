"""A request's sampling parameters, checked against their bounds. Standard library only.

The server parses the request's spelling; here each value is checked once, and an error names the field.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from engine_agent.engine.errors import BadRequest

MOST_CHOICES = 128
MOST_TOP_LOGPROBS = 20
MOST_STOPS = 16
LONGEST_STOP = 1_000  # characters
LONGEST_SHOWN = 40
_NONE: Mapping[int, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class BeamParams:
    """Keep `SamplingParams.n` beams by score = log probability / length ** length_penalty."""

    length_penalty: float = 1.0
    early_stopping: bool = False


@dataclass(frozen=True, slots=True)
class SamplingParams:
    max_tokens: int | None = None  # None: as many as the context and the pool allow
    min_tokens: int = 0
    n: int = 1
    temperature: float = 1.0  # 0: greedy
    top_p: float = 1.0
    top_k: int = 0  # 0: all
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=lambda: _NONE)
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    include_stop: bool = False  # the stop string is part of the text
    skip_special_tokens: bool = True
    logprobs: int | None = None  # number of alternatives next to the chosen token; None: no logprobs at all
    beam: BeamParams | None = None

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            _whole("max_tokens", self.max_tokens, 1, 2**31)
        _whole("min_tokens", self.min_tokens, 0, 2**31)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise BadRequest("min_tokens", f"{self.min_tokens} is more than max_tokens, {self.max_tokens}")
        _whole("n", self.n, 1, MOST_CHOICES)
        _number("temperature", self.temperature, 0, 2)
        if not self.top_p > 0:
            raise BadRequest("top_p", f"{shown(self.top_p)} is not above 0")
        _number("top_p", self.top_p, 0, 1)
        _whole("top_k", self.top_k, 0, 2**31)
        _number("min_p", self.min_p, 0, 1)
        _number("presence_penalty", self.presence_penalty, -2, 2)
        _number("frequency_penalty", self.frequency_penalty, -2, 2)
        if not self.repetition_penalty > 0:
            raise BadRequest("repetition_penalty", f"{shown(self.repetition_penalty)} is not above 0")
        _number("repetition_penalty", self.repetition_penalty, 0, 2)
        for bias in self.logit_bias.values():
            _number("logit_bias", bias, -100, 100)
        if self.seed is not None:
            _whole("seed", self.seed, -(2**63), 2**63 - 1)
        if len(self.stop) > MOST_STOPS:
            raise BadRequest("stop", f"{len(self.stop)} strings are more than {MOST_STOPS}")
        for stop in self.stop:
            if not 1 <= len(stop) <= LONGEST_STOP:
                raise BadRequest("stop", f"a string of {len(stop)} characters is not of 1 to {LONGEST_STOP:,}")
        if self.logprobs is not None:
            _whole("logprobs", self.logprobs, 0, MOST_TOP_LOGPROBS)
        if self.beam is not None:
            _number("length_penalty", self.beam.length_penalty, -10, 10)

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0


def _whole(name: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise BadRequest(name, f"{shown(value)} is no whole number from {least:,} to {most:,}")


def _number(name: str, value: object, least: float, most: float) -> None:
    # A comparison is exact for integers of any size, which no float could represent; NaN fails every bound.
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise BadRequest(name, f"{shown(value)} is no number from {least:g} to {most:g}")


def shown(value: object) -> str:
    """Return the value for an error message, shortened: a client may send thousands of digits."""
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
