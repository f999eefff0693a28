"""Report a result for people: a table, then explanations."""

from engine_agent.tools.report import NO_VALUE, aligned, format_number, format_percent
from engine_agent.tools.savings.confidence import LEVEL, Estimate
from engine_agent.tools.savings.measuring import BOUND_FACTOR, BOUND_SHARE
from engine_agent.tools.savings.plan import SIDES
from engine_agent.tools.savings.result import Result, Saved

HEADS = ("", "with caching", "without", "saved")
GAP = "   "


def table(result: Result) -> str:
    rows = [_saved_row(saving) for saving in result.times]
    if result.cpu:
        rows.append(_saved_row(result.cpu))
    with_, without = (result.found.sides[side].together for side in SIDES)
    rows += [_cost_row(result), _count_row("requests at once, in time", with_, without)]
    if room := result.room:
        rows.append(_count_row("requests at once, in memory", room.with_caching, room.without_caching))
    return "\n".join([headline(result), "", *aligned([HEADS, *rows], gap=GAP), "", *remarks(result)])


def headline(result: Result) -> str:
    plan = result.plan
    return (
        f"{result.server.model} at {result.server.url} · template of {plan.template_tokens:,} tokens, tails of "
        f"{plan.tail_tokens:,}, answers of {plan.output_tokens:,} · n = {plan.rounds:,} on each side, alternating"
    )


def remarks(result: Result) -> list[str]:
    """Return what a reader must know about the table."""
    plan, measurement = result.plan, result.found
    lines = [
        f"Measured on {result.machine}.",
        f"In parentheses: {100 * LEVEL:.0f} % confidence, by the bootstrap. "
        f"A P99 of {plan.rounds:,} is nearly the largest of them.",
        "Without caching: prompts of the same length that begin like no other, on the same server.",
        f"At once, in time: {100 * BOUND_SHARE:.0f} % of first tokens within {measurement.bound_ms:,.0f} ms"
        + ("." if plan.bound_ms else f", {BOUND_FACTOR:g} times the median of one alone without caching."),
        f"Cost: {plan.price_per_hour:g} an hour of this machine, kept as busy as that bound allows.",
    ]
    for side in SIDES:
        if measurement.sides[side].together == plan.most_together:
            lines.append(
                f"{side.capitalize()} caching more than {plan.most_together:,} were not tried (--most-together)."
            )
        if measurement.sides[side].together == 0:
            lines.append(f"{side.capitalize()} caching not even one at a time is within the bound.")
    if result.room:
        lines.append(
            f"At once, in memory: what fits in a pool of {result.room.pool_blocks:,} blocks; the template's are shared."
        )
    return lines


def _saved_row(saving: Saved) -> tuple[str, ...]:
    values = (_between(saving.sides[side], saving.unit) for side in SIDES)
    share = saving.share
    return (saving.name, *values, f"{format_percent(share.value)} ({100 * share.low:.1f} – {100 * share.high:.1f})")


def _between(estimate: Estimate, unit: str) -> str:
    return f"{format_number(estimate.value)} {unit} ({format_number(estimate.low)} – {format_number(estimate.high)})"


def _cost_row(result: Result) -> tuple[str, ...]:
    costs = (format_number(result.cost(side)) for side in SIDES)
    return ("cost of 1,000 requests", *costs, format_percent(result.cost_saved))


def _count_row(name: str, with_: int, without: int) -> tuple[str, ...]:
    return (name, f"{with_:,}", f"{without:,}", f"{with_ / without:.1f} ×" if without else NO_VALUE)
