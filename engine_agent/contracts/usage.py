"""The usage that engines report: rows of one minute. Standard library.

A row adds up what one agent counted for one namespace, model, KV format and kind of request in one minute. It may be
reported in several parts, which are added. Times are stored as counts by code: a code combines the measured time, how
much of the prompt was cached, the prompt's length class, and the bucket of a logarithmic scale.

Separate rows group the same customers' requests by API key.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, log
from typing import Any, Final, Literal

Kind = Literal["customer", "probe", "pin"]
KINDS: Final = ("customer", "probe", "pin")
# The counters of a row. `retried`: attempts after the first; `cut_off`: requests that were open when their engine
# ended.
COUNTS: Final = (
    "requests",
    "prompt_tokens",
    "cached_tokens",
    "generated_tokens",
    "retried",
    "failed",
    "cancelled",
    "cut_off",
)
MINUTE_SECONDS: Final = 60
MOST_ROWS: Final = 500  # of one report
KEY_COUNTS: Final = ("requests", "prompt_tokens", "cached_tokens", "generated_tokens")  # of COUNTS, by key
MOST_KEY_ROWS: Final = 1_000  # of one report

# Times. A bucket's middle differs by at most 2 % from any time in it.
GROWTH: Final = 1.04
FIRST_MS: Final = 0.1
BUCKETS: Final = 512
Metric = Literal["ttft", "duration"]
METRICS: Final = ("ttft", "duration")
Cached = Literal["miss", "part", "hit"]  # none of the prompt was cached, less than half, half or more
CACHED: Final = ("miss", "part", "hit")
PROMPT_TOKENS: Final = (256, 1_024, 4_096, 16_384, 65_536)  # upper ends of length classes; the last class has none
_LOG_GROWTH: Final = log(GROWTH)
CODES: Final = len(METRICS) * len(CACHED) * (len(PROMPT_TOKENS) + 1) * BUCKETS


@dataclass(frozen=True, slots=True)
class Row:
    """One usage row. `counts` by COUNTS, `missed` tokens by wire.MISSED, `times` by code; zeros are left out."""

    minute: int  # its start in unix seconds
    organisation: str
    namespace: str
    model: str
    kv_dtype: str
    kind: Kind
    counts: Mapping[str, int] = field(default_factory=dict)
    missed: Mapping[str, int] = field(default_factory=dict)
    times: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeyRow:
    """Usage by API key. `counts` by KEY_COUNTS; `key` is the control plane's id, empty for requests without a key."""

    minute: int
    namespace: str
    model: str
    key: str
    counts: Sequence[int]


def key_row_told(row: KeyRow) -> list[Any]:
    """Return the row as a report has it: a list, because there are many."""
    return [row.minute, row.namespace, row.model, row.key or None, *row.counts]


def row_document(row: Row) -> dict[str, Any]:
    """Return the row as a report has it."""
    return {
        "minute": row.minute,
        "organisation": row.organisation,
        "namespace": row.namespace,
        "model": row.model,
        "kv_dtype": row.kv_dtype,
        "kind": row.kind,
        "counts": dict(row.counts),
        "missed": dict(row.missed),
        "times": [[code, count] for code, count in sorted(row.times.items())],
    }


def bucket_of(milliseconds: float) -> int:
    if milliseconds <= FIRST_MS:
        return 0
    return min(BUCKETS - 1, ceil(log(milliseconds / FIRST_MS) / _LOG_GROWTH))


def bucket_milliseconds(bucket: int) -> float:
    """Return the middle of a bucket, the value used for all times in it."""
    return FIRST_MS * GROWTH**bucket * 2 / (1 + GROWTH)


def cached_class(prompt_tokens: int, cached_tokens: int) -> Cached:
    if cached_tokens <= 0:
        return "miss"
    return "hit" if 2 * cached_tokens >= prompt_tokens else "part"


def length_class(prompt_tokens: int) -> int:
    """Return the index of the class in PROMPT_TOKENS; the last class is for longer prompts."""
    return sum(prompt_tokens > upper_bound for upper_bound in PROMPT_TOKENS)


def code_of(metric: Metric, cached: Cached, length: int, bucket: int) -> int:
    index = METRICS.index(metric) * len(CACHED) + CACHED.index(cached)
    return (index * (len(PROMPT_TOKENS) + 1) + length) * BUCKETS + bucket


def code_read(code: int) -> tuple[Metric, Cached, int, int]:
    """Return the arguments of `code_of`."""
    remainder, bucket = divmod(code, BUCKETS)
    remainder, length = divmod(remainder, len(PROMPT_TOKENS) + 1)
    metric, cached = divmod(remainder, len(CACHED))
    return METRICS[metric], CACHED[cached], length, bucket


def time_code(metric: Metric, *, prompt_tokens: int, cached_tokens: int, milliseconds: float) -> int:
    cached = cached_class(prompt_tokens, cached_tokens)
    return code_of(metric, cached, length_class(prompt_tokens), bucket_of(milliseconds))
