"""What was counted over a window, in words: each number says what was summed, and which call answers the same. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.dashboard.frame.charts import Bar, Chart, Mark, Series, bytes_text, share_text
from controlplane.dashboard.frame.tiles import LEAST_POINTS, LEAST_REQUESTS, NONE, measured, noun, rate
from controlplane.dashboard.frame.words import counted, duration
from controlplane.dashboard.namespaces.reasons import misses_headline, token_bar

WINDOWS = {"1h": "1 h", "24h": "24 h", "7d": "7 d", "30d": "30 d"}
USUAL = "24h"
MOST_ROWS = 50
TOO_FEW = "too few to compare"


@dataclass(frozen=True, slots=True)
class Choice:
    """A window that may be looked through."""

    label: str
    address: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class Stat:
    """`how`: what is summed and of whom; `call` and `field`: where programs read it."""

    slug: str
    label: str
    value: str
    note: str
    how: str
    call: str
    field: str


@dataclass(frozen=True, slots=True)
class Row:
    """A namespace's, a model's or a key's part. `note`: what is to be known of it beside its name."""

    slug: str
    name: str
    is_deleted: bool
    note: str
    requests: str
    prompt_tokens: str
    cached_tokens: str
    rate: str
    permille: int
    resident: str


@dataclass(frozen=True, slots=True)
class Rows:
    title: str
    rows: tuple[Row, ...]
    unshown: int


@dataclass(frozen=True, slots=True)
class Rate:
    """The curve of a window, and what it says; no chart before anything was counted."""

    title: str
    note: str
    chart: Chart | None


def window_asked(said: str | None) -> str:
    return said if said in WINDOWS else USUAL


def choices(address: str, chosen: str) -> list[Choice]:
    return [Choice(label, f"{address}?window={name}", name == chosen) for name, label in WINDOWS.items()]


# Single numbers


def stats_shown(found: Mapping[str, Any], *, call: str) -> list[Stat]:
    basis = basis_of(found)
    return [
        _first_token(found["ttft_ms"], basis, call),
        _tokens(found, basis, call),
        _waiting(found["saved"]["seconds"], basis, call),
        _money(found["saved"]["money"], basis, call),
    ]


def rate_stat(call: str) -> Stat:
    """How the number above them is counted, which is told beside it."""
    return Stat(
        slug="rate",
        label="Hit rate",
        value="",
        note="",
        how="Prompt tokens that came from the cache over all prompt tokens, summed over every customer’s request whose "
        "headers left in the rolling 24 h: probes and pins are not in it. Rounded down, as in each response’s "
        "x-luminet-cache-hit.",
        call=call,
        field="hit_ratio",
    )


def basis_of(found: Mapping[str, Any]) -> str:
    return measured(found["covered_seconds"], found["window_seconds"])


def _first_token(ttft: Mapping[str, Any], basis: str, call: str) -> Stat:
    hit, miss = ttft["hit_p50"], ttft["miss_p50"]
    is_known = hit is not None and miss is not None
    return Stat(
        slug="first-token",
        label="First token, hit against miss",
        value=f"{hit:,.0f} against {miss:,.0f} ms" if is_known else TOO_FEW,
        note=f"p50, prompts of like length, {basis}" if is_known else "wants 20 hits and 20 misses of like length",
        how="From the request to its first token, as engines timed it. A hit had half of its prompt or more from the "
        "cache, a miss nothing. Medians of prompts of like length, weighed by hits, at most 2 % off.",
        call=call,
        field="ttft_ms.hit_p50, ttft_ms.miss_p50",
    )


def _tokens(found: Mapping[str, Any], basis: str, call: str) -> Stat:
    of = f"of {found['prompt_tokens']:,} prompt tokens in {requests_text(found['requests'])}, {basis}"
    return Stat(
        slug="tokens",
        label="Tokens saved",
        value=f"{found['saved']['tokens']:,}",
        note=of,
        how="Prompt tokens that came from the cache and were not computed again: the sum of what each response said.",
        call=call,
        field="saved.tokens",
    )


def _waiting(seconds: float | None, basis: str, call: str) -> Stat:
    value, note = TOO_FEW, "wants 20 hits and 20 misses of like length"
    if seconds is not None:
        value = waiting_text(seconds) if seconds > 0 else "none"
        note = f"for first tokens, together, {basis}" if seconds > 0 else f"hits were no faster than misses, {basis}"
    return Stat(
        slug="waiting",
        label="Waiting saved",
        value=value,
        note=note,
        how="For each class of prompt lengths with 20 hits and 20 misses: hits × (median miss − median hit). What "
        "other classes saved is not in it.",
        call=call,
        field="saved.seconds",
    )


def _money(money: Mapping[str, Any] | None, basis: str, call: str) -> Stat:
    value, note = "not known", f"no price is set, {basis}"
    if money is not None:
        value = f"{money['currency']} {money['rounded']}"
        note = f"{'at example prices: nobody asks them' if money['is_example'] else 'at the price list'}, {basis}"
        if money["without_price"]:
            note += f"; lacks {', '.join(money['without_price'])}, without a price"
    return Stat(
        slug="money",
        label="Money saved",
        value=value,
        note=note,
        how="Cached tokens × (price of input − price of cached input), by model, at the price of their UTC day; exact "
        "in the answer, rounded here.",
        call=call,
        field="saved.money",
    )


def waiting_text(seconds: float) -> str:
    """Tenths where there are few seconds, whole minutes where there are many."""
    if seconds < 60:
        return f"{seconds:,.1f} s"
    return duration(round(seconds) if seconds < 600 else 60 * round(seconds / 60))


def requests_text(requests: int) -> str:
    return f"{requests:,} request{'' if requests == 1 else 's'}"


# The curve


def rate_of(
    found: Mapping[str, Any],
    series: Mapping[str, Any],
    before: Sequence[float | None],
    marks: Sequence[Mark],
    *,
    window: str,
) -> Rate:
    """`before`: percent of the window before, point by point."""
    points = series["points"]
    values = tuple(None if one["hit_ratio"] is None else round(100 * one["hit_ratio"], 2) for one in points)
    note = f"every {duration(series['step_seconds'])}, cached over prompt tokens"
    known = [one for one in values if one is not None]
    title = rate_title(found, known, window=window)
    if not known:
        return Rate(title, note, None)
    lines = [Series(f"Last {WINDOWS[window]}", values, tone="served")]
    if any(one is not None for one in before):
        lines.append(Series(f"The {WINDOWS[window]} before", tuple(before), tone="first", is_dashed=True))
    chart = Chart(
        id="hit-rate",
        title=title,
        unit="percent",
        xs=tuple(one["at"].timestamp() for one in points),
        series=tuple(lines),
        marks=tuple(marks),
    )
    return Rate(title, note, chart)


def rate_title(found: Mapping[str, Any], known: Sequence[float], *, window: str) -> str:
    """Of 24 h the number itself stands beside it, and moves: here is said between what it was."""
    requests, basis = found["requests"], basis_of(found)
    if not requests:
        return f"Nothing was asked in the last {WINDOWS[window]}"
    if requests < LEAST_REQUESTS or not found["prompt_tokens"]:
        return f"{requests:,} {noun(requests)}: too few to say a hit rate of {WINDOWS[window]}"
    if window == USUAL:
        return f"Between {min(known):.1f} and {max(known):.1f} % in {basis}{_change(found, window)}"
    return f"{rate(found['cached_tokens'], found['prompt_tokens'])} % from the cache in {basis}{_change(found, window)}"


def _change(found: Mapping[str, Any], window: str) -> str:
    """Only against a window before it that was counted whole."""
    before = found["before"]
    if before["hit_ratio"] is None or before["covered_seconds"] < found["window_seconds"]:
        return ""
    points = (found["hit_ratio"] - before["hit_ratio"]) * 100
    if abs(points) < LEAST_POINTS:
        return f", as in the {WINDOWS[window]} before"
    return f", {abs(points):.1f} points {'more' if points > 0 else 'less'} than in the {WINDOWS[window]} before"


# Where tokens came from


def tokens_title(found: Mapping[str, Any], *, window: str) -> str:
    return misses_headline(found["missed_tokens_by_reason"], found["prompt_tokens"], window=WINDOWS[window])


def fleet_tokens_title(found: Mapping[str, Any], *, window: str) -> str:
    """For operators: one customer's own traffic is another's pressure."""
    if not found["prompt_tokens"]:
        return f"Nothing was asked in the last {WINDOWS[window]}"
    missed = sum(found["missed_tokens_by_reason"].values())
    return f"{share_text(missed, found['prompt_tokens'])} of prompt tokens had to be computed in {basis_of(found)}"


def tokens_bar(found: Mapping[str, Any], title: str) -> Bar | None:
    if not found["prompt_tokens"]:
        return None
    return token_bar(title, found["cached_tokens"], found["missed_tokens_by_reason"])


# By namespace, model and key


def rows_of(found: Sequence[Mapping[str, Any]], by: str, *, nothing: str, title: str | None = None) -> Rows:
    """The largest, in the order of their names, so that none moves while its number does; deleted ones last."""
    shown = sorted(found[:MOST_ROWS], key=lambda one: (one.get("is_deleted", False), one[by] or ""))
    rows = tuple(_row(one, one[by] or "") for one in shown)
    return Rows(title or _rows_title(found, by, nothing), rows, len(found) - len(shown))


def _row(found: Mapping[str, Any], name: str) -> Row:
    resident = found.get("resident_bytes")
    return Row(
        slug=name,
        name=name or "gone altogether",
        is_deleted=found.get("is_deleted", False),
        note=found.get("note", "deleted" if found.get("is_deleted") else ""),
        requests=f"{found['requests']:,}",
        prompt_tokens=f"{found['prompt_tokens']:,}",
        cached_tokens=f"{found['cached_tokens']:,}",
        rate=f"{rate(found['cached_tokens'], found['prompt_tokens'])} %" if found["prompt_tokens"] else NONE,
        permille=found["cached_tokens"] * 1000 // max(1, found["prompt_tokens"]),
        resident=NONE if resident is None else bytes_text(resident),
    )


def _rows_title(found: Sequence[Mapping[str, Any]], by: str, nothing: str) -> str:
    """Which of them most tokens are of."""
    total = sum(one["prompt_tokens"] for one in found)
    if not total:
        return nothing
    most = max(found, key=lambda one: one["prompt_tokens"])
    if len(found) == 1:
        return f"All prompt tokens are of {most[by] or 'one that is gone'}"
    share = 100 * most["prompt_tokens"] // total
    return f"{most[by] or 'One that is gone'} has {share} % of the prompt tokens of {counted(len(found), by)}"
