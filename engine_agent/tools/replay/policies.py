"""The policies, pools and shares that a replay compares, and their parsers: `sliding:300` · `1.5M` · `acme=0.5`."""

import argparse
import math
import re
from dataclasses import dataclass, field

from engine_agent.cache.policy import LONGEST_TTL_SECONDS, NamespacePolicy
from engine_agent.contracts.policy_fields import TtlMode
from engine_agent.tools.report import TOKENS, format_amount

MODES: tuple[TtlMode, ...] = ("sliding", "absolute")
SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
MOST_POOL_TOKENS = 10**12
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_SPAN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([smhd]?)")
_SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)([kMG]?)")


@dataclass(frozen=True, slots=True)
class Ttl:
    """A mode and a span; without a mode nothing ever expires."""

    mode: TtlMode | None = None
    seconds: float = LONGEST_TTL_SECONDS

    @property
    def label(self) -> str:
        return "no TTL" if self.mode is None else f"{self.mode} {self.seconds:,g} s"


@dataclass(frozen=True, slots=True)
class Shares:
    """One namespace's shares of the pool."""

    reserved: float = 0.0
    limit: float = 1.0
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Setup:
    """All inputs of one replay except its requests. A pool of None has room for everything."""

    ttl: Ttl
    pool_tokens: int | None = None
    block_tokens: int = 512
    max_age_seconds: float = 86_400
    shares: dict[str, Shares] = field(default_factory=dict)
    is_one_cache: bool = False  # all requests in one namespace
    service_seconds_per_token: float = 0.0

    @property
    def label(self) -> str:
        return self.ttl.label + (f", pool {format_amount(self.pool_tokens)}" if self.pool_tokens else "")

    def policy_of(self, namespace: str) -> NamespacePolicy:
        shares = self.shares.get(namespace, Shares())
        return NamespacePolicy(
            ttl_seconds=self.ttl.seconds,
            ttl_mode=self.ttl.mode or "sliding",
            max_age_seconds=self.max_age_seconds if self.ttl.mode else math.inf,
            reserved_share=shares.reserved,
            limit_share=shares.limit,
            weight=shares.weight,
        )


DEFAULT_TTLS = (Ttl(), *(Ttl("sliding", seconds) for seconds in (60, 300, 600, 1800)), Ttl("absolute", 300))


def ttl_read(text: str) -> Ttl:
    """Parse `none`, `sliding:300` or `absolute:5m`; a span alone is sliding, as in a policy."""
    if text == "none":
        return Ttl()
    mode, _, span = text.rpartition(":")
    if mode not in ("", *MODES):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is neither none nor sliding:SECONDS nor absolute:SECONDS")
    return Ttl("absolute" if mode == "absolute" else "sliding", seconds_read(span))


def seconds_read(text: str) -> float:
    """Parse a time such as `300`, `5m` or `1h`."""
    match = _SPAN.fullmatch(text)
    seconds = float(match[1]) * SECONDS[match[2]] if match else math.nan
    if not 0 < seconds <= LONGEST_TTL_SECONDS:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no time of up to {LONGEST_TTL_SECONDS} s")
    return seconds


def tokens_read(text: str) -> int:
    """Parse a number of tokens such as `1500000`, `1500k` or `1.5M`."""
    match = _SIZE.fullmatch(text)
    tokens = float(match[1]) * TOKENS[match[2]] if match else math.nan
    if not 1 <= tokens <= MOST_POOL_TOKENS:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no number of tokens such as 1500000, 1500k or 1.5M")
    return round(tokens)


def spans_read(text: str) -> list[float]:
    """Parse times such as `60,300,10m`."""
    return [seconds_read(span) for span in text.split(",")]


def modes_read(text: str) -> list[TtlMode]:
    """Parse modes such as `sliding,absolute`."""
    unknown = [mode for mode in text.split(",") if mode not in MODES]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0][:40]!r} is neither sliding nor absolute")
    return [mode for mode in MODES if mode in text.split(",")]


def share_read(text: str) -> tuple[str, float]:
    """Parse a share such as `acme=0.5`."""
    name, share = _named(text)
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r}: a share is from 0 to 1")
    return name, share


def weight_read(text: str) -> tuple[str, float]:
    """Parse a weight such as `acme=2`."""
    name, weight = _named(text)
    if not 0 < weight < math.inf:
        raise argparse.ArgumentTypeError(f"{text[:40]!r}: a weight is above 0")
    return name, weight


def factor_read(text: str) -> float:
    """Parse a number of at least 0."""
    if not _NUMBER.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no number such as 16 or 0.02")
    return float(text)


def _named(text: str) -> tuple[str, float]:
    name, separator, number = text.rpartition("=")
    try:
        amount = float(number)
    except ValueError:
        amount = math.nan
    if not name or not separator or math.isnan(amount):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not NAMESPACE=NUMBER")
    return name, amount
