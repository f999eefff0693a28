"""Three rules for more cache hits, each with the organisation's own numbers. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from controlplane.dashboard.frame.charts import share_text
from controlplane.dashboard.home.customer import Fact

WINDOW: Final = "24 h"
NOTHING: Final = f"Nothing was counted in the last {WINDOW}."


@dataclass(frozen=True, slots=True)
class Own:
    """An organisation's counts over the window; `lifetime` is the TTL in force in `namespace`."""

    prompt_tokens: int
    missed: Mapping[str, int]
    lifetime: Fact
    namespace: str
    finding: str


@dataclass(frozen=True, slots=True)
class Rule:
    title: str
    why: str
    own: str
    leads: str  # the page it links to
    words: str


def rules(own: Own) -> tuple[Rule, ...]:
    return (
        Rule(
            "What never changes comes first",
            "A hit reaches from the first token to the first difference. Instructions, tools and documents go first; "
            "names, dates and the question go last.",
            f"{own.finding}.",
            "lint",
            "Check a prompt",
        ),
        Rule(
            "The same bytes each time",
            "One space, one key of JSON in another place, one time of day, and all blocks of 16 tokens from there on "
            "are computed again. So they are in another namespace or another KV format.",
            _share(own, "cold", "of prompt tokens had never been seen in their namespace"),
            "misses",
            "Why misses happen",
        ),
        Rule(
            "Again before they expire",
            _lifetime(own),
            _share(own, "expired", "of prompt tokens came again too late"),
            "organisation-policy",
            "Times to live",
        ),
    )


def _lifetime(own: Own) -> str:
    more = f" {own.lifetime.more}" if own.lifetime.more else ""
    return f"In {own.namespace} a block lives {own.lifetime.value}{more}: {own.lifetime.origin}."


def _share(own: Own, reason: str, words: str) -> str:
    if not own.prompt_tokens:
        return NOTHING
    missed = own.missed.get(reason, 0)
    share = share_text(missed, own.prompt_tokens)
    return f"{share} {words}: {missed:,} of {own.prompt_tokens:,} in the last {WINDOW}."
