"""Bodies for forecasts under another TTL or limit."""

from datetime import datetime

from pydantic import ConfigDict, Field

from controlplane.api.schemas.base import Given, example
from engine_agent.contracts.policy_fields import TtlMode

WHEN = "2026-11-22T12:00:00Z"
MONEY = {"currency": "EUR", "amount": "0.0580608", "rounded": "0.06", "is_example": True, "without_price": []}
NOW = {
    "ttl_seconds": 300,
    "ttl_mode": "sliding",
    "limit_share": 1.0,
    "hit_ratio": 0.41,
    "hit_ratio_error": 0.014,
    "resident_bytes": 31_457_280,
    "hit_tokens_per_day": 251_904,
    "saved_money_per_day": MONEY,
}
THEN = NOW | {
    "ttl_seconds": 3600,
    "hit_ratio": 0.7,
    "resident_bytes": 88_080_384,
    "hit_tokens_per_day": 430_080,
}
POINT = {"ttl_seconds": 300, "hit_ratio": 0.41, "resident_bytes": 31_457_280}


class SavedMoney(Given):
    """What tokens out of the cache save, by the prices in force today."""

    model_config = ConfigDict(json_schema_extra=example(**MONEY))

    currency: str
    amount: str = Field(description="Exactly, as decimal text.")
    rounded: str = Field(description="As people pay it.")
    is_example: bool = Field(description="Whether a price it is made of is an example's, which nobody asks.")
    without_price: list[str] = Field(description="Models without a price today, whose tokens the amount lacks.")


class Foretold(Given):
    """One policy, and what it would come to."""

    model_config = ConfigDict(json_schema_extra=example(**NOW))

    ttl_seconds: int
    ttl_mode: TtlMode
    limit_share: float
    hit_ratio: float = Field(description="Cached over prompt tokens, 0 to 1.")
    hit_ratio_error: float = Field(
        description="By so much it may be off: the larger of what the engines' estimate and its grid leave open, and "
        "how far what is foretold of the policy in force is from what was measured."
    )
    resident_bytes: int = Field(description="Held on average, at all agents together.")
    hit_tokens_per_day: int = Field(
        description="Of as many prompt tokens as were counted in 24 h; scaled up where those are not covered yet."
    )
    saved_money_per_day: SavedMoney | None = Field(description="Null without a price.")


class CurvePoint(Given):
    model_config = ConfigDict(json_schema_extra=example(**POINT))

    ttl_seconds: int
    hit_ratio: float
    resident_bytes: int


class WhatIfShown(Given):
    """The policy in force beside another one."""

    model_config = ConfigDict(
        json_schema_extra=example(
            is_enough=True,
            why=None,
            as_of=WHEN,
            agents=2,
            prompt_tokens=812_400,
            covered_seconds=86_400,
            measured_hit_ratio=0.402,
            now=NOW,
            then=THEN,
            curve=[POINT, {"ttl_seconds": 3600, "hit_ratio": 0.7, "resident_bytes": 88_080_384}],
        )
    )

    is_enough: bool = Field(description="Whether there was traffic enough to foretell anything.")
    why: str | None = Field(description="What there is too little of; null where there is enough.")
    as_of: datetime | None = Field(description="When the oldest of the engines' estimates was made.")
    agents: int = Field(description="How many agents' estimates this is of, each weighted by its prompt tokens.")
    prompt_tokens: int = Field(description="That those remember; old ones fade by half a day.")
    covered_seconds: int = Field(description="Of the last 24 h, since when anything was counted.")
    measured_hit_ratio: float | None = Field(description="Over the last 24 h; null without tokens.")
    now: Foretold | None = Field(description="Under the policy in force; null where there is too little traffic.")
    then: Foretold | None = Field(description="Under what was asked for.")
    curve: list[CurvePoint] = Field(description="Over other TTLs, with the mode and limit that were asked for.")
