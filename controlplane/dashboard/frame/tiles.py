"""The tile of the last 24 hours in words, out of what its socket tells. Pure.

static/luminet/tile.js says the same of every later message; tests/e2e/test_tiles.py holds the two against each other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.dashboard.frame.words import duration

LEAST_POINTS = 0.05
LEAST_REQUESTS = 20  # fewer say nothing of a rate yet: shown in grey, with how many they are
NONE = "–"


@dataclass(frozen=True, slots=True)
class Change:
    """Against the day before: "▲ 6.1 points", what the arrow says to who hears it, and what that is against."""

    tone: str = "none"
    arrow: str = ""
    way: str = ""
    points: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True)
class Tile:
    slug: str  # of what its name is on the page
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


def tile(told: Mapping[str, Any], *, slug: str, title: str, path: str) -> Tile:
    return Tile(
        slug=slug,
        title=title,
        path=path,
        seq=told["seq"],
        as_of=datetime.fromisoformat(told["as_of"]),
        fact=fact(told),
        rate=rate(told["cached_tokens"], told["prompt_tokens"]),
        permille=told["cached_tokens"] * 1000 // max(1, told["prompt_tokens"]),
        change=change(told),
        measured=measured(told["covered_seconds"], told["window_seconds"]),
        requests=f"{told['requests']:,}",
        noun=noun(told["requests"]),
        prompt_tokens=f"{told['prompt_tokens']:,}",
        saved_tokens=f"{told['saved_tokens']:,}",
        is_empty=not told["requests"],
        is_little=told["requests"] < LEAST_REQUESTS,
    )


def fact(told: Mapping[str, Any]) -> str:
    """What the tile says, as a headline; nothing before anything was counted."""
    requests = told["requests"]
    if requests < LEAST_REQUESTS or not told["prompt_tokens"]:
        return f"{requests:,} {noun(requests)}" if requests else ""
    found = change(told)
    more = f", {found.way} {found.points}" if found.points else ""
    return f"Hit rate {rate(told['cached_tokens'], told['prompt_tokens'])} %{more}"


def noun(requests: int) -> str:
    return f"request{'' if requests == 1 else 's'}{' so far' if requests < LEAST_REQUESTS else ''}"


def rate(cached_tokens: int, prompt_tokens: int) -> str:
    """Rounded down, as in the header x-luminet-cache-hit: 100 is said of all tokens, and not of nearly all."""
    if not prompt_tokens:
        return NONE
    tenths = cached_tokens * 1000 // prompt_tokens
    return f"{tenths // 10}.{tenths % 10}"


def rate_text(cached_tokens: int, prompt_tokens: int) -> str:
    """With its unit: "71.2 %"."""
    return f"{rate(cached_tokens, prompt_tokens)} %" if prompt_tokens else NONE


def change(told: Mapping[str, Any]) -> Change:
    """Only against a day before that was counted whole, and of requests enough to compare."""
    now, before = told["hit_ratio"], told["hit_ratio_before"]
    is_whole = told["covered_seconds_before"] >= told["window_seconds"]
    if now is None or before is None or not is_whole or told["requests"] < LEAST_REQUESTS:
        return Change()
    points = (now - before) * 100
    if abs(points) < LEAST_POINTS:
        return Change(words="the same as the day before")
    tone, arrow = ("up", "▲") if points > 0 else ("down", "▼")
    return Change(tone, arrow, tone, f"{abs(points):.1f} points", "against the day before")


def measured(covered_seconds: int, window_seconds: int) -> str:
    """ "24 h"; "3 min of 24 h" while not more than that has been measured."""
    if covered_seconds >= window_seconds:
        return duration(window_seconds)
    whole = covered_seconds if covered_seconds < 60 else covered_seconds - covered_seconds % 60
    return f"{duration(whole)} of {duration(window_seconds)}"
