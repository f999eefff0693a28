"""Report a run as text for people and as JSON for programs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from engine_agent.tools.loadgen.outcome import Outcome
from engine_agent.tools.loadgen.server import Server
from engine_agent.tools.loadgen.summary import PERCENTILES, Spread, Summary
from engine_agent.tools.report import BOLD, RED, aligned, format_number, format_percent, painted


def headline(server: Server, description: str) -> str:
    form = "chat" if server.form.is_chat else "token ids" if server.form.takes_ids else "text"
    return f"{server.model} at {server.url} · {description} · {form}"


def table(summary: Summary, *, is_colourful: bool = False) -> str:
    """Return counts and throughput, then times with their percentiles, then errors."""
    lines = [_counts(summary), *_cache(summary), ""]
    heads = ["", "n", "mean", *(f"P{percent}" for percent in PERCENTILES), "most"]
    body = [_cells(name, spread) for name, spread in _times(summary).items() if spread]
    top, *rows = aligned([heads, *body])
    lines += [painted(top, BOLD, is_colourful), *rows]
    return "\n".join([*lines, *(painted(line, RED, is_colourful) for line in _errors(summary))])


def document(
    server: Server, options: Mapping[str, Any], summary: Summary, outcomes: Sequence[Outcome] = ()
) -> dict[str, Any]:
    """Return the results as JSON. `options` contains the options of the run; `outcomes` are added if given."""
    report: dict[str, Any] = {
        "url": server.url,
        "model": server.model,
        "form": asdict(server.form),
        "asked": dict(options),
        "requests": summary.requests,
        "answered": summary.answered,
        "seconds": summary.seconds,
        "requests_per_second": summary.requests_per_second,
        "output_tokens_per_second": summary.output_tokens_per_second,
        "tokens_per_second": summary.tokens_per_second,
        "prompt_tokens": summary.prompt_tokens,
        "output_tokens": summary.output_tokens,
        "cached_tokens": summary.cached_tokens,
        "hit_ratio": summary.hit_ratio,
        "header_and_usage_differ": summary.contradictions,
        "miss_reasons": summary.miss_reasons,
        "errors": summary.errors,
        "error_examples": summary.examples,
        "ttft_ms": _milliseconds(summary.ttft),
        "tpot_ms": _milliseconds(summary.tpot),
        "itl_ms": _milliseconds(summary.gaps),
        "e2e_ms": _milliseconds(summary.whole),
        "sent_late_ms": _milliseconds(summary.late),
        "ttft_ms_of_hits": _milliseconds(summary.ttft_of_hits),
        "ttft_ms_of_misses": _milliseconds(summary.ttft_of_misses),
    }
    if outcomes:
        report["outcomes"] = [asdict(outcome) for outcome in outcomes]
    return report


def _counts(summary: Summary) -> str:
    return (
        f"{summary.answered:,} of {summary.requests:,} requests answered in {summary.seconds:,.1f} s · "
        f"{summary.requests_per_second:,.2f} requests/s · {summary.output_tokens_per_second:,.1f} output tokens/s · "
        f"{summary.tokens_per_second:,.0f} tokens/s"
    )


def _cache(summary: Summary) -> list[str]:
    if summary.hit_ratio is None:
        return [f"{summary.prompt_tokens:,} prompt tokens; the server does not say how many came from its cache"]
    lines = [
        f"{summary.cached_tokens:,} of {summary.prompt_tokens:,} prompt tokens from cache, "
        f"{format_percent(summary.hit_ratio)}"
    ]
    if summary.miss_reasons:
        lines.append("miss reasons: " + ", ".join(f"{name} {count:,}" for name, count in summary.miss_reasons.items()))
    return lines


def _times(summary: Summary) -> dict[str, Spread | None]:
    has_both = summary.ttft_of_hits and summary.ttft_of_misses
    return {
        "time to first token [ms]": summary.ttft,
        "  of hits": summary.ttft_of_hits if has_both else None,
        "  of misses": summary.ttft_of_misses if has_both else None,
        "time per output token [ms]": summary.tpot,
        "between pieces [ms]": summary.gaps,
        "whole answer [ms]": summary.whole,
        "sent late by [ms]": summary.late if summary.late and summary.late.most else None,
    }


def _cells(name: str, spread: Spread) -> list[str]:
    times = [spread.mean, *(spread.percentiles[percent] for percent in PERCENTILES), spread.most]
    return [name, f"{spread.n:,}", *(format_number(1000 * seconds) for seconds in times)]


def _errors(summary: Summary) -> list[str]:
    lines = []
    for kind, count in summary.errors.items():
        example = summary.examples.get(kind)
        lines.append(f"{count:,} failed: {kind}" + (f" ({example})" if example else ""))
    if summary.contradictions:
        lines.append(f"{summary.contradictions:,} answers name other cached tokens in the header than in the usage")
    return ["", *lines] if lines else []


def _milliseconds(spread: Spread | None) -> dict[str, float] | None:
    if spread is None:
        return None
    percentiles = {f"p{percent}": 1000 * value for percent, value in spread.percentiles.items()}
    ends = {"mean": 1000 * spread.mean, "min": 1000 * spread.least, "max": 1000 * spread.most}
    return {"n": spread.n, **ends, **percentiles}
