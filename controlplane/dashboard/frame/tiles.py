"""The text of the tile of the last 24 hours, computed from a live message. Pure.

static/luminet/tile.js computes the same text for later messages; tests/e2e/test_tiles.py compares the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.dashboard.frame.words import duration

LEAST_POINTS = 0.05
LEAST_REQUESTS = 20  # fewer are too few for a rate: the tile greys it and shows the count
NONE = "–"


@dataclass(frozen=True, slots=True)
class Change:
    """The change since the day before: "▲ 6.1 points", the arrow's word for screen readers, the comparison."""

    tone: str = "none"
    arrow: str = ""
    way: str = ""
    points: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True)
class Tile:
    slug: str  # of the organisation, or "fleet"
    title: str
    path: str
    seq: int
    as_of: datetime
    fact: str
    rate: str
    permille: int
    change: Change
    measured: str
    requests: str
    noun: str
    prompt_tokens: str
    saved_tokens: str
    is_empty: bool
    is_little: bool


def tile(message: Mapping[str, Any], *, slug: str, title: str, path: str) -> Tile:
    return Tile(
        slug=slug,
        title=title,
        path=path,
        seq=message["seq"],
        as_of=datetime.fromisoformat(message["as_of"]),
        fact=fact(message),
        rate=rate(message["cached_tokens"], message["prompt_tokens"]),
        permille=message["cached_tokens"] * 1000 // max(1, message["prompt_tokens"]),
        change=change(message),
        measured=measured(message["covered_seconds"], message["window_seconds"]),
        requests=f"{message['requests']:,}",
        noun=noun(message["requests"]),
        prompt_tokens=f"{message['prompt_tokens']:,}",
        saved_tokens=f"{message['saved_tokens']:,}",
        is_empty=not message["requests"],
        is_little=message["requests"] < LEAST_REQUESTS,
    )


def fact(message: Mapping[str, Any]) -> str:
    """Return the tile's headline; empty before anything is counted."""
    requests = message["requests"]
    if requests < LEAST_REQUESTS or not message["prompt_tokens"]:
        return f"{requests:,} {noun(requests)}" if requests else ""
    day_change = change(message)
    change_text = f", {day_change.way} {day_change.points}" if day_change.points else ""
    return f"Hit rate {rate(message['cached_tokens'], message['prompt_tokens'])} %{change_text}"


def noun(requests: int) -> str:
    return f"request{'' if requests == 1 else 's'}{' so far' if requests < LEAST_REQUESTS else ''}"


def rate(cached_tokens: int, prompt_tokens: int) -> str:
    """Format the hit rate, rounded down as in the header x-luminet-cache-hit: only a complete hit reads 100."""
    if not prompt_tokens:
        return NONE
    tenths = cached_tokens * 1000 // prompt_tokens
    return f"{tenths // 10}.{tenths % 10}"


def rate_text(cached_tokens: int, prompt_tokens: int) -> str:
    """Format the hit rate with its unit, as "71.2 %"."""
    return f"{rate(cached_tokens, prompt_tokens)} %" if prompt_tokens else NONE


def change(message: Mapping[str, Any]) -> Change:
    """Compare with the day before, if it was counted completely and requests are enough."""
    now, before = message["hit_ratio"], message["hit_ratio_before"]
    is_whole = message["covered_seconds_before"] >= message["window_seconds"]
    if now is None or before is None or not is_whole or message["requests"] < LEAST_REQUESTS:
        return Change()
    points = (now - before) * 100
    if abs(points) < LEAST_POINTS:
        return Change(words="the same as the day before")
    tone, arrow = ("up", "▲") if points > 0 else ("down", "▼")
    return Change(tone, arrow, tone, f"{abs(points):.1f} points", "against the day before")


def measured(covered_seconds: int, window_seconds: int) -> str:
    """Format the measured time: "24 h", or "3 min of 24 h" until the window is covered."""
    if covered_seconds >= window_seconds:
        return duration(window_seconds)
    whole = covered_seconds if covered_seconds < 60 else covered_seconds - covered_seconds % 60
    return f"{duration(whole)} of {duration(window_seconds)}"
