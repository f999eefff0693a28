"""Report a replay's outcomes: for people a line for each policy and namespace, for programs JSON."""

from collections.abc import Sequence
from typing import Any

from engine_agent.tools.replay.namespaces import namespaces_of
from engine_agent.tools.replay.outcome import Outcome, Tally
from engine_agent.tools.replay.trace import Request
from engine_agent.tools.report import (
    BLUE,
    BOLD,
    DIM,
    GAP,
    NO_VALUE,
    aligned,
    format_amount,
    format_duration,
    format_percent,
    painted,
)

REASONS = ("cold", "expired", "evicted", "quota", "purged", "dtype", "disabled", "refused", "tail")
EIGHTHS = " ▏▎▍▌▋▊▉█"
CAPTION = "Share of prompt tokens served from cache, and why the rest missed."
WIDEST_BAR, NARROWEST_BAR = 24, 6
MOST_NAMESPACES = 20
MOST_MOMENTS = 600

Line = tuple[str, Tally, Outcome | None]


def headline(name: str, requests: Sequence[Request], block_tokens: int) -> str:
    """Return a summary of the trace."""
    names = namespaces_of(requests)
    tokens = format_amount(sum(request.input_tokens for request in requests))
    return " · ".join(
        (
            name,
            f"{len(requests):,} requests in {format_duration(requests[-1].at_seconds - requests[0].at_seconds)}",
            f"{tokens} prompt tokens in blocks of {block_tokens:,}",
            f"{len(names):,} namespaces" if len(names) > 1 else f"namespace {names[0]}",
        )
    )


def table(outcomes: Sequence[Outcome], *, columns: int, is_colourful: bool = False, is_unicode: bool = True) -> str:
    """Return the table. Shares are of prompt tokens; hits and misses of a line add up to 100 %."""
    lines = _lines(outcomes)
    reasons = [reason for reason in REASONS if any(tally.missed_tokens[reason] for _, tally, _ in lines)]
    heads = ["policy", "hits", "peak resident", *reasons]
    body = [_cells(line, reasons) for line in lines]
    room = columns - max(map(len, aligned([heads, *body]))) - len(GAP)
    bar_width = max(NARROWEST_BAR, min(WIDEST_BAR, room))

    def bar_of(tally: Tally, is_policy: bool) -> str:
        bar = _bar(tally.hit_ratio or 0.0, bar_width, is_unicode=is_unicode).ljust(bar_width)
        return painted(bar, BLUE, is_colourful and is_policy)

    bars = [" " * bar_width, *(bar_of(tally, outcome is not None) for _, tally, outcome in lines)]
    cells = [[name, bar, *numbers] for (name, *numbers), bar in zip([heads, *body], bars, strict=True)]
    top, *rest = aligned(cells, left=(0, 1))
    printed = [painted(CAPTION, DIM, is_colourful), painted(top, BOLD, is_colourful)]
    printed += [
        painted(row, DIM, is_colourful and not outcome) for row, (_, _, outcome) in zip(rest, lines, strict=True)
    ]
    return "\n".join([*printed, *_remarks(outcomes)])


def document(trace: str, requests: Sequence[Request], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the results for programs, with tokens instead of shares, and memory over time."""
    return {
        "trace": {
            "name": trace,
            "requests": len(requests),
            "seconds": requests[-1].at_seconds - requests[0].at_seconds,
            "prompt_tokens": sum(request.input_tokens for request in requests),
            "answer_tokens": sum(request.output_tokens for request in requests),
            "namespaces": namespaces_of(requests),
        },
        "rows": [_outcome_document(outcome) for outcome in outcomes],
    }


def _lines(outcomes: Sequence[Outcome]) -> list[Line]:
    """Return a line for each policy, and below it one for each namespace if there are several."""
    lines: list[Line] = []
    for outcome in outcomes:
        lines.append((outcome.setup.label, outcome.total, outcome))
        if len(outcome.tallies) > 1:
            lines += [(f"  {name}", tally, None) for name, tally in list(outcome.tallies.items())[:MOST_NAMESPACES]]
    return lines


def _cells(line: Line, reasons: Sequence[str]) -> list[str]:
    name, tally, outcome = line
    peak = f"{format_amount(outcome.peak_resident_tokens)} tokens" if outcome else ""
    return [name, format_percent(tally.hit_ratio), peak, *(_missed(tally, reason) for reason in reasons)]


def _missed(tally: Tally, reason: str) -> str:
    tokens = tally.missed_tokens[reason]
    return format_percent(tokens / tally.prompt_tokens) if tokens else NO_VALUE


def _bar(ratio: float, width: int, *, is_unicode: bool) -> str:
    """Return a bar whose full width is 100 %."""
    eighths = round(ratio * width * 8)
    if not is_unicode:
        return "#" * round(eighths / 8)
    return EIGHTHS[8] * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def _remarks(outcomes: Sequence[Outcome]) -> list[str]:
    """Return remarks on facts that the columns do not show."""
    remarks = []
    for outcome in outcomes:
        total = outcome.total
        if refused := total.refused_requests:
            token_note = "its tokens count" if refused == 1 else "their tokens count"
            remarks.append(f"{outcome.setup.label}: {_requests(refused)} never fitted; {token_note} as missed.")
        if waited := total.waited_requests:
            longest = format_duration(total.longest_wait_seconds)
            remarks.append(f"{outcome.setup.label}: {_requests(waited)} waited for room, at most {longest}.")
        if stopped := total.preemptions:
            times = "once" if stopped == 1 else f"{stopped:,} times"
            remarks.append(f"{outcome.setup.label}: {times} an answer was stopped for lack of room and begun anew.")
    hidden = max((len(outcome.tallies) for outcome in outcomes), default=0) - MOST_NAMESPACES
    if hidden > 0:
        remarks.append(f"{hidden:,} more namespaces: --json has them all.")
    return ["", *remarks] if remarks else []


def _requests(count: int) -> str:
    return f"{count:,} request{'s' if count != 1 else ''}"


def _outcome_document(outcome: Outcome) -> dict[str, Any]:
    setup = outcome.setup
    namespaces = [{"namespace": name, **_tally_document(tally)} for name, tally in outcome.tallies.items()]
    return {
        "ttl_mode": setup.ttl.mode,
        "ttl_seconds": setup.ttl.seconds if setup.ttl.mode else None,
        "max_age_seconds": setup.max_age_seconds if setup.ttl.mode else None,
        "pool_tokens": setup.pool_tokens,
        "block_tokens": setup.block_tokens,
        "service_seconds_per_token": setup.service_seconds_per_token,
        "is_one_cache": setup.is_one_cache,
        **_tally_document(outcome.total),
        "by_namespace": namespaces,
        "peak_resident_tokens": outcome.peak_resident_tokens,
        "resident": [[moment.at_seconds, moment.resident_tokens] for moment in outcome.thinned(MOST_MOMENTS)],
        "replay_seconds": round(outcome.replay_seconds, 3),
    }


def _tally_document(tally: Tally) -> dict[str, Any]:
    return {
        "requests": tally.requests,
        "prompt_tokens": tally.prompt_tokens,
        "cached_tokens": tally.cached_tokens,
        "hit_ratio": tally.hit_ratio,
        "missed_tokens_by_reason": {
            reason: tally.missed_tokens[reason] for reason in REASONS if tally.missed_tokens[reason]
        },
        "refused_requests": tally.refused_requests,
        "waited_requests": tally.waited_requests,
        "longest_wait_seconds": tally.longest_wait_seconds,
        "preemptions": tally.preemptions,
    }
