"""Bodies for the statistics of a window: of an organisation, of a part of it, or of the fleet."""

from datetime import datetime
from uuid import UUID

from pydantic import ConfigDict, Field

from controlplane.api.schemas.base import Given, example

AS_OF = "2026-11-22T12:34:56.789Z"
TIMES = {
    "window_seconds": 86_400,
    "from": "2026-11-21T12:34:00Z",
    "to": AS_OF,
    "as_of": AS_OF,
    "covered_seconds": 86_400,
}
COUNTS = {
    "requests": 1_200,
    "prompt_tokens": 614_400,
    "cached_tokens": 430_080,
    "generated_tokens": 96_000,
    "hit_ratio": 0.7,
}
BEFORE = {
    "from": "2026-11-20T12:34:00Z",
    "to": "2026-11-21T12:34:00Z",
    "covered_seconds": 86_400,
    "requests": 1_000,
    "prompt_tokens": 512_000,
    "cached_tokens": 307_200,
    "generated_tokens": 80_000,
    "hit_ratio": 0.6,
}
TTFT = {"p50": 31.2, "p95": 180.4, "p99": 402.7, "hit_p50": 24.1, "miss_p50": 163.8}
DURATION = {"p50": 812.0, "p95": 2_405.1, "p99": 3_998.6}
LENGTH = {"prompt_tokens_up_to": 1_024, "hits": 840, "misses": 212, "hit_p50": 24.1, "miss_p50": 163.8}
OUTCOMES = {"failed": 3, "cancelled": 12, "cut_off": 0, "retried": 4}
MONEY = {"currency": "EUR", "amount": "0.0580608", "rounded": "0.06", "is_example": True, "without_price": []}
SAVED = {"tokens": 430_080, "seconds": 117.3, "money": MONEY}
MISSED = {
    "cold": 120_000,
    "tail": 40_320,
    "expired": 24_000,
    "evicted": 0,
    "quota": 0,
    "purged": 0,
    "dtype": 0,
    "disabled": 0,
    "other-agent": 0,
}
LEFT = {"expired": 310, "evicted": 0, "quota": 0, "purged": 0}
NAMESPACE = {"namespace": "chat", "is_deleted": False, **COUNTS, "resident_bytes": 31_457_280}
ORGANISATION = {"organisation": "acme", "is_deleted": False, **COUNTS, "resident_bytes": 31_457_280}
MODEL = {"model": "luminet-demo", **COUNTS}
KEY = {
    "id": "0192f3a0-7d1c-7c3e-9a55-4f6f2f0e8d11",
    "name": "production",
    "prefix": "lmk_7Gq2mZx1",
    "is_revoked": False,
    **COUNTS,
}
_ALL = {
    **TIMES,
    **COUNTS,
    "outcomes": OUTCOMES,
    "ttft_ms": TTFT,
    "duration_ms": DURATION,
    "ttft_by_length": [LENGTH],
    "saved": SAVED,
    "missed_tokens_by_reason": MISSED,
    "blocks_left": LEFT,
    "resident_bytes": 31_457_280,
}


class Counts(Given):
    requests: int = Field(description="Whose headers left in the window: customers' alone, no probes and no pins.")
    prompt_tokens: int = Field(description="Cached ones included.")
    cached_tokens: int
    generated_tokens: int
    hit_ratio: float | None = Field(description="cached_tokens over prompt_tokens, 0 to 1; null without tokens.")


class Times(Given):
    window_seconds: int = Field(description="As the window is called.")
    from_: datetime = Field(
        alias="from", description="Its first minute; of 7d the first whole five minutes, of 30d the first whole hour."
    )
    to: datetime = Field(description="The same as as_of: the open minute is in it.")
    as_of: datetime = Field(description="When this was read, by the database's clock.")
    covered_seconds: int = Field(
        description="So much of the window has passed since the first request that was ever counted: `3 min of 24 h`."
    )


class StatsBefore(Counts):
    """The window before this one, which ended where this one begins."""

    model_config = ConfigDict(json_schema_extra=example(**BEFORE))

    from_: datetime = Field(alias="from", description="Of 7d the first whole hour, of 30d the first whole day.")
    to: datetime = Field(description="Where the other begins; no longer part of this one.")
    covered_seconds: int = Field(
        description="How much of it there can be numbers of. Less than window_seconds: nothing to compare with."
    )


class Outcomes(Given):
    """Requests that did not end well; all others did, or are still being answered."""

    model_config = ConfigDict(json_schema_extra=example(**OUTCOMES))

    failed: int = Field(description="By an error, or because their deadline passed.")
    cancelled: int = Field(description="Whoever asked went away.")
    cut_off: int = Field(description="Their engine was gone before they ended.")
    retried: int = Field(description="Answered at a second attempt or a later one; these may have ended well.")


class Percentiles(Given):
    """Milliseconds, at most 2 % off; null where there is nothing to tell them from."""

    model_config = ConfigDict(json_schema_extra=example(**DURATION))

    p50: float | None
    p95: float | None
    p99: float | None


class TtftPercentiles(Percentiles):
    """Milliseconds to the first token, at most 2 % off; null where there is nothing to tell them from."""

    model_config = ConfigDict(json_schema_extra=example(**TTFT))

    hit_p50: float | None = Field(
        description="Of prompts half of which or more was cached. Medians of each class in ttft_by_length that has "
        "both, weighed by their hits; null when no class has 20 hits and 20 misses."
    )
    miss_p50: float | None = Field(description="Of prompts as long of which nothing was cached, weighed alike.")


class TtftOfLength(Given):
    """Hits against misses of prompts of one class of lengths."""

    model_config = ConfigDict(json_schema_extra=example(**LENGTH))

    prompt_tokens_up_to: int | None = Field(description="And longer than the class before; null: any longer ones.")
    hits: int = Field(description="With half of the prompt or more out of the cache.")
    misses: int = Field(description="With nothing of it out of the cache.")
    hit_p50: float | None = Field(description="Milliseconds; null with fewer than 20 hits or misses: not enough.")
    miss_p50: float | None


class Money(Given):
    model_config = ConfigDict(json_schema_extra=example(**MONEY))

    currency: str
    amount: str = Field(description="Exactly.")
    rounded: str
    is_example: bool = Field(description="Whether a price it was counted with is an example: then nobody asks it.")
    without_price: list[str] = Field(
        description="Models without a price on a day on which tokens of them came out of the cache: the amount lacks "
        "what those saved."
    )


class Saved(Given):
    """What the cache was worth."""

    model_config = ConfigDict(json_schema_extra=example(**SAVED))

    tokens: int = Field(description="Prompt tokens that were not computed: cached_tokens.")
    seconds: float | None = Field(
        description="Of waiting for first tokens: hits × (miss_p50 − hit_p50), over the classes of ttft_by_length that "
        "have enough of both; null when none has. Below 0 where hits were slower."
    )
    money: Money | None = Field(description="cached_tokens at the price difference of their day; null without prices.")


class MissedTokens(Given):
    """Prompt tokens that were not cached: those of full blocks by why the first of their request was not; the rest."""

    model_config = ConfigDict(json_schema_extra=example(**MISSED))

    cold: int = Field(description="Never seen.")
    tail: int = Field(description="Behind the last full block.")
    expired: int
    evicted: int
    quota: int
    purged: int
    dtype: int = Field(description="Cached in another format.")
    disabled: int = Field(description="The policy caches nothing.")
    other_agent: int = Field(alias="other-agent", description="The gateway knew a longer match at another agent.")


class BlocksLeft(Given):
    """Blocks that left the cache in the window, by why."""

    model_config = ConfigDict(json_schema_extra=example(**LEFT))

    expired: int
    evicted: int
    quota: int
    purged: int


class StatsOfModel(Counts):
    model_config = ConfigDict(json_schema_extra=example(**MODEL))

    model: str


class StatsOfKey(Counts):
    """What came with an API key; without an id, what no key is known of."""

    model_config = ConfigDict(json_schema_extra=example(**KEY))

    id: UUID | None = Field(
        description="null: what is left over, so that all rows are together the whole. Requests that came without a "
        "key or were told by an agent that does not tell keys yet, and what keys beyond the 1,000 largest asked."
    )
    name: str | None = Field(description="null once it is gone altogether, with its organisation.")
    prefix: str | None = Field(description="The secret's beginning, by which it is recognised.")
    is_revoked: bool = Field(description="Its numbers stay.")


class Held(Counts):
    is_deleted: bool = Field(description="Its numbers stay. Another may have its slug by now.")
    resident_bytes: int | None = Field(description="In the cache now; null when one model is asked for.")


class StatsOfNamespace(Held):
    model_config = ConfigDict(json_schema_extra=example(**NAMESPACE))

    namespace: str | None = Field(description="Its slug; null once it is gone altogether.")


class StatsOfOrganisation(Held):
    model_config = ConfigDict(json_schema_extra=example(**ORGANISATION))

    organisation: str | None = Field(description="Its slug; null once it is gone altogether.")


class Stats(Times, Counts):
    outcomes: Outcomes
    ttft_ms: TtftPercentiles
    duration_ms: Percentiles = Field(description="From the request to the end of its answer.")
    ttft_by_length: list[TtftOfLength] = Field(description="Shortest prompts first.")
    saved: Saved
    missed_tokens_by_reason: MissedTokens
    blocks_left: BlocksLeft
    resident_bytes: int | None = Field(
        description="What is in the cache now, as agents last told; null when one model is asked for."
    )


class StatsShown(Stats):
    """What was counted of an organisation, or of what of it the caller sees and asks for."""

    model_config = ConfigDict(
        json_schema_extra=example(**_ALL, by_namespace=[NAMESPACE], by_model=[MODEL], by_key=[KEY], before=BEFORE)
    )

    by_namespace: list[StatsOfNamespace] = Field(description="Most prompt tokens first.")
    by_model: list[StatsOfModel] = Field(description="Most prompt tokens first.")
    by_key: list[StatsOfKey] = Field(description="Most prompt tokens first, the 1,000 largest, then what is left over.")
    before: StatsBefore


class FleetStatsShown(Stats):
    """What was counted of everybody."""

    model_config = ConfigDict(
        json_schema_extra=example(**_ALL, by_organisation=[ORGANISATION], by_model=[MODEL], before=BEFORE)
    )

    by_organisation: list[StatsOfOrganisation] = Field(description="Most prompt tokens first.")
    by_model: list[StatsOfModel] = Field(description="Most prompt tokens first.")
    before: StatsBefore


class StatsPoint(Counts):
    model_config = ConfigDict(json_schema_extra=example(at="2026-11-21T12:30:00Z", **COUNTS))

    at: datetime = Field(description="Where its step begins, in UTC. Of the first, only what is in the window counts.")


class StatsSeries(Times):
    """A point for each step, whether anything was counted or not: together they are what `stats` says."""

    model_config = ConfigDict(
        json_schema_extra=example(**TIMES, step_seconds=300, points=[{"at": "2026-11-21T12:30:00Z", **COUNTS}])
    )

    step_seconds: int
    points: list[StatsPoint] = Field(description="Oldest first; the last is not over.")
