"""The quality bounds of formats, and their checks. Standard library only.

A bound is met when the whole confidence interval lies below it, and missed when the whole interval lies above. Between
the two, the result is reported as unresolved. Bounds of perplexity are those the project set for row Q1. The bound of
divergence is equivalent to such a loss of perplexity on text that the model itself might have written: there, a token's
mean loss rises by exactly the divergence. Divergence can be measured far more precisely than perplexity.

Both are per byte of text, not per token. A loss adds up over the bytes of a token, so per token the same model with a
larger vocabulary would be judged more harshly; the bounds come from a model whose tokens were bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kernels.formats import KV_FORMATS, Gate

Verdict = Literal["passed", "failed", "unresolved"]
GATES = {name: kv_format.gate for name, kv_format in KV_FORMATS.items() if kv_format.gate}
LOOSEST = Gate(
    max(gate.delta_percent for gate in GATES.values()),
    max(gate.mean_divergence for gate in GATES.values()),
    min(gate.needle_share for gate in GATES.values()),
    "the control: two bits must miss even the loosest of all bounds, or the suite is blind",
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One figure compared with its bound."""

    what: str
    verdict: Verdict
    text: str


def gate_of(kv_format: str) -> Gate:
    return GATES.get(kv_format, LOOSEST)


def judged(name: str, value: float, low: float, high: float, bound: float, unit: str = "") -> Finding:
    """Judge a figure, with its interval, that must not exceed its bound."""
    text = f"{name} {value:.3g}{unit} [{low:.3g}, {high:.3g}], bound {bound:g}{unit}"
    if high <= bound:
        return Finding(name, "passed", text)
    if low > bound:
        return Finding(name, "failed", text)
    return Finding(name, "unresolved", f"{text}: not resolved, more text is needed")


def judged_share(name: str, value: float, least: float) -> Finding:
    """Judge a share that must not be below its bound."""
    return Finding(
        name, "passed" if value >= least else "failed", f"{name} {100 * value:.2f} %, at least {100 * least:g} %"
    )


def judged_fact(name: str, is_so: bool, text: str) -> Finding:
    return Finding(name, "passed" if is_so else "failed", text)


def overall(findings: Sequence[Finding]) -> Verdict:
    """Return failed if anything failed, else unresolved if anything is, else passed."""
    verdicts = {finding.verdict for finding in findings}
    return "failed" if "failed" in verdicts else "unresolved" if "unresolved" in verdicts else "passed"
