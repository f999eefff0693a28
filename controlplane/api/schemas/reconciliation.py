"""Bodies for reconciliation: the comparison of engines, ledger, minutes and pieces."""

from datetime import date, datetime
from typing import Literal

from pydantic import ConfigDict, Field

from controlplane.api.schemas.base import Given, example

WHEN = "2026-11-22T12:00:00Z"
BETWEEN = Literal["engine and ledger", "ledger and minutes", "minutes and pieces"]
SUMS = {"requests": 3, "prompt_tokens": 1536, "cached_tokens": 1024}
LESS = {"requests": 2, "prompt_tokens": 1024, "cached_tokens": 1024}
APART = {"requests": 1, "prompt_tokens": 512, "cached_tokens": 0}


class CountedTokens(Given):
    model_config = ConfigDict(json_schema_extra=example(**SUMS))

    requests: int
    prompt_tokens: int
    cached_tokens: int


class RowsRefused(Given):
    """Rows of that agent and namespace that could not be counted, and why."""

    model_config = ConfigDict(json_schema_extra=example(rows=1, **APART, why=["minute is 50 h old"]))

    rows: int
    requests: int
    prompt_tokens: int
    cached_tokens: int
    why: list[str] = Field(description="At most five different reasons, each with its field.")


DIFFERENCE = {
    "between": "engine and ledger",
    "place": "agent-1, acme/chat, boot 2f6c",
    "agent": "agent-1",
    "namespace": "acme/chat",
    "namespace_id": 7,
    "boot": "2f6c",
    "day": None,
    "level": None,
    "start": None,
    "sides": {"engine": SUMS, "ledger": LESS},
    "difference": APART,
    "refused": {"rows": 1, **APART, "why": ["minute is 50 h old"]},
    "is_explained": True,
    "tokens": 512,
}


class CountedApart(Given):
    """Two who counted the same thing differently, and where."""

    model_config = ConfigDict(json_schema_extra=example(**DIFFERENCE))

    between: BETWEEN
    place: str = Field(description="Where, as people say it.")
    agent: str | None = Field(description="Null where all agents are together.")
    namespace: str | None = Field(description="Organisation and namespace; null for the fleet and for deleted ones.")
    namespace_id: int = Field(description="0: all namespaces together.")
    boot: str | None = Field(description="Of the engine, where it was one boot's.")
    day: date | None = Field(description="In UTC, where it was one day's.")
    level: int | None = Field(description="Seconds that the piece is of.")
    start: datetime | None = Field(description="When the piece begins.")
    sides: dict[str, CountedTokens] = Field(description="What each of the two says.")
    difference: CountedTokens = Field(description="How much more the first says; negative where it says less.")
    refused: RowsRefused | None = Field(description="Rows that were refused, where the engine counted more.")
    is_explained: bool = Field(description="Whether refused rows come to exactly the difference.")
    tokens: int = Field(description="How far they are apart: in prompt tokens, else in cached ones.")


class CountedApartTotals(CountedTokens):
    """All differences between two sides, added up without their signs."""

    model_config = ConfigDict(json_schema_extra=example(differences=1, tokens=512, **APART))

    differences: int
    tokens: int


class ReconciliationShown(Given):
    """The newest comparison. It is made once a minute, of one snapshot of the database."""

    model_config = ConfigDict(
        json_schema_extra=example(
            as_of=WHEN,
            took_seconds=0.04,
            is_reconciled=False,
            compared={"engine and ledger": 12, "ledger and minutes": 24, "minutes and pieces": 812},
            totals={
                "engine and ledger": {"differences": 1, "tokens": 512, **APART},
                "ledger and minutes": {
                    "differences": 0, "tokens": 0, "requests": 0, "prompt_tokens": 0, "cached_tokens": 0,
                },
            },
            differences=[DIFFERENCE],
        )
    )  # fmt: skip

    as_of: datetime | None = Field(description="Of the snapshot; null before the first comparison.")
    took_seconds: float | None
    is_reconciled: bool | None = Field(description="Whether everybody who counts has counted the same.")
    compared: dict[str, int] = Field(description="How many pairs were compared, by which two sides.")
    totals: dict[str, CountedApartTotals] = Field(description="By which two sides.")
    differences: list[CountedApart] = Field(description="The largest 200 of them.")
