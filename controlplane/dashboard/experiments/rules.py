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


def rules(figures: Own) -> tuple[Rule, ...]:
    return (
        Rule(
            "What never changes comes first",
            "A hit reaches from the first token to the first difference. Instructions, tools and documents go first; "
            "names, dates and the question go last.",
            f"{figures.finding}.",
            "lint",
            "Check a prompt",
        ),
        Rule(
            "The same bytes each time",
            "One space, one key of JSON in another place, one time of day, and all blocks of 16 tokens from there on "
            "are computed again. So they are in another namespace or another KV format.",
            _share(figures, "cold", "of prompt tokens had never been seen in their namespace"),
            "misses",
            "Why misses happen",
        ),
        Rule(
            "Again before they expire",
            _lifetime(figures),
            _share(figures, "expired", "of prompt tokens came again too late"),
            "organisation-policy",
            "Times to live",
        ),
    )


def _lifetime(figures: Own) -> str:
    suffix = f" {figures.lifetime.more}" if figures.lifetime.more else ""
    return f"In {figures.namespace} a block lives {figures.lifetime.value}{suffix}: {figures.lifetime.origin}."


def _share(figures: Own, reason: str, words: str) -> str:
    if not figures.prompt_tokens:
        return NOTHING
    missed_tokens = figures.missed.get(reason, 0)
    share = share_text(missed_tokens, figures.prompt_tokens)
    return f"{share} {words}: {missed_tokens:,} of {figures.prompt_tokens:,} in the last {WINDOW}."
