"""Labels, meaning and advice for each miss reason. Pure.

For evictions, customers see "by your own traffic" or "by fleet pressure", never which tenant needed the room. Missed
tokens do not show for whom a full pool evicted their blocks; counts of blocks do, where agents report it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controlplane.analytics.evictions import Taken
from controlplane.dashboard.frame.charts import Bar, bar, share_text

FULL_BLOCK = 16


@dataclass(frozen=True, slots=True)
class Reason:
    """A miss reason. `kind` names a `bar__part` class; `leads` the page where the user can act on it."""

    label: str
    kind: str
    meaning: str
    advice: str
    leads: str = ""


REASONS: Mapping[str, Reason] = {
    "cold": Reason(
        "New to the cache",
        "second",
        "No prompt before it had begun like this.",
        "New text is always computed once. Where prompts should begin alike, something near their beginning varies: "
        "paste some of them into the prompt linter.",
        "lint",
    ),
    "expired": Reason(
        "Expired",
        "fourth",
        "It was here, and nobody used it again within its time to live.",
        "A longer time to live would have kept it. The policy page shows what another one would bring, and cost.",
        "namespace-policy",
    ),
    "evicted": Reason(
        "Evicted from a full pool",
        "first",
        "It was here, and the memory that everybody shares was full.",
        "A guaranteed share of the pool, a pin for what must stay, or a smaller KV format keeps more of it.",
        "namespace-policy",
    ),
    "quota": Reason(
        "Evicted by your own traffic",
        "quota",
        "It was here, and the namespace had reached its own limit.",
        "A higher limit, a smaller KV format, or a namespace of its own for what fills it keeps more of it.",
        "namespace-policy",
    ),
    "purged": Reason(
        "Purged",
        "purged",
        "It was here until somebody purged it.",
        "Nothing: the next requests fill the cache again. The audit trail says who purged it, and when.",
    ),
    "dtype": Reason(
        "In another KV format",
        "dtype",
        "It was here in another format, and formats never mix.",
        "Let requests that begin alike ask for the same kv_cache_dtype, or for none.",
        "namespace-policy",
    ),
    "disabled": Reason(
        "Caching is off",
        "disabled",
        "The policy in force keeps and matches nothing.",
        "Turn prefix caching on.",
        "namespace-policy",
    ),
    "other-agent": Reason(
        "On another agent",
        "other",
        "The gateway knew a longer match at another agent than the one that answered.",
        "It weighs a match against waiting. Where this stays high, your operator can see whether agents are too busy.",
    ),
    "tail": Reason(
        "Behind the last full block",
        "third",
        f"Blocks hold {FULL_BLOCK} tokens; what is left of a prompt behind its last full one is always computed.",
        f"Nothing: it is less than {FULL_BLOCK} tokens of each prompt.",
    ),
}


def reason_rows(missed_tokens: Mapping[str, int], pressed: Taken) -> list[tuple[str, Reason, int]]:
    """Return label, reason and tokens of each reason that occurred, the largest first.

    The tail is last: nothing can be done about it. `pressed`: blocks evicted in the same window.
    """
    return [
        (evicted_label(pressed) if name == "evicted" else REASONS[name].label, REASONS[name], tokens)
        for name, tokens in ordered(missed_tokens)
    ]


def evicted_label(pressed: Taken) -> str:
    """Return the label of "evicted", with the cause from the evicted blocks."""
    own_blocks, other_blocks = pressed.own_pressed_blocks, pressed.others_blocks
    if own_blocks and other_blocks:
        parts = (share_text(other_blocks, own_blocks + other_blocks), share_text(own_blocks, own_blocks + other_blocks))
        return (
            f"Evicted from a full pool, {parts[0]} of the blocks by fleet pressure and {parts[1]} by your own traffic"
        )
    if own_blocks:
        return "Evicted from a full pool by your own traffic"
    return "Evicted by fleet pressure" if other_blocks else REASONS["evicted"].label


def reasons_title(missed_tokens: Mapping[str, int]) -> str:
    reasons, total = sum(map(bool, missed_tokens.values())), sum(missed_tokens.values())
    explain = "reason explains" if reasons == 1 else "reasons explain"
    return f"{reasons} {explain} all {total:,} tokens that were not served from cache"


def ordered(missed_tokens: Mapping[str, int]) -> list[tuple[str, int]]:
    nonzero = [(name, tokens) for name, tokens in missed_tokens.items() if tokens]
    return sorted(nonzero, key=lambda reason_count: (reason_count[0] == "tail", -reason_count[1]))


def token_bar(title: str, cached: int, missed_tokens: Mapping[str, int]) -> Bar:
    """Return all prompt tokens as a bar: cached, and missed by reason."""
    parts: Sequence[tuple[str, float, str]] = [
        ("Served from cache", cached, "served"),
        *((REASONS[name].label, tokens, REASONS[name].kind) for name, tokens in ordered(missed_tokens)),
    ]
    return bar(title, parts)


def main_reason(missed_tokens: Mapping[str, int]) -> str | None:
    """Return the reason with most missed tokens, except the tail."""
    top_reason = next(iter(ordered(missed_tokens)), None)
    return None if top_reason is None or top_reason[0] == "tail" else top_reason[0]


def misses_headline(missed_tokens: Mapping[str, int], prompt_tokens: int, *, window: str) -> str:
    total = sum(missed_tokens.values())
    if not prompt_tokens:
        return f"Nothing was asked in the last {window}, so nothing was missed"
    if not total:
        return f"Every prompt token of the last {window} was served from cache"
    share, reason = share_text(total, prompt_tokens), main_reason(missed_tokens)
    sentence_start = f"{share} of prompt tokens were not served from cache"
    if reason is None:
        return f"{sentence_start}, all of them behind the last full block"
    part = share_text(missed_tokens[reason], total)
    return f"{sentence_start}, {part} of those for one reason: {_BECAUSE[reason]}"


_BECAUSE = {
    "cold": "they were new",
    "expired": "they had expired",
    "evicted": "the pool was full",
    "quota": "your own traffic",
    "purged": "they had been purged",
    "dtype": "they were there in another format",
    "disabled": "caching is off",
    "other-agent": "they were on another agent",
}
