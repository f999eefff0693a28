"""What a format may cost, and whether it does. Standard library only.

A bound is met when the whole confidence interval lies below it, missed when the whole interval lies above. Between the
two nothing is known yet, and that is what is said. Bounds of perplexity are those the project set itself for row Q1.
Divergence may be what such a loss of perplexity means on text that the model itself might have written: there a token's
mean loss rises by just the divergence. It is known far more sharply than perplexity is.

Both are by byte of text, not by token. A loss adds up over the bytes a token has, so by token the same model with a
larger vocabulary would be judged more harshly; the bounds come from a model whose tokens were bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["passed", "failed", "unresolved"]
BASELINE, EXACT, CONTROL = "bf16", "fp32", "int2"


@dataclass(frozen=True, slots=True)
class Gate:
    """The most a format may lose against its reference. `needle_share` is of what bf16 finds."""

    delta_percent: float
    mean_divergence: float
    needle_share: float
    reason: str


GATES: dict[str, Gate] = {
    "fp32": Gate(0.001, 1e-6, 1.0, "the same numbers as attention without pages, but for the order of sums"),
    "bf16": Gate(0.02, 1e-5, 1.0, "the noise floor: what every served model rounds anyway; measured against fp32"),
    "int8": Gate(0.05, 1e-4, 0.999, "seven bits and a scale for each vector: nobody should be able to tell"),
    "fp8_e4m3": Gate(0.1, 1e-3, 0.995, "three bits of mantissa; the default on GPUs, so it must be safe blindly"),
    "fp8": Gate(0.2, 2e-3, 0.995, "values with two bits of mantissa: at most twice the divergence of fp8_e4m3"),
    "fp8_e5m2": Gate(0.5, 5e-3, 0.98, "keys with two bits of mantissa, too, and keys are what matters"),
    "k8v4": Gate(0.3, 3e-3, 0.99, "int8's keys; values at four bits cost little"),
    "int4": Gate(1.0, 1e-2, 0.95, "four bits for 3.7 times the tokens: offered to those who ask for it"),
    "nvfp4": Gate(1.5, 1.5e-2, 0.95, "four bits that hardware will read; no rotation, so a little worse than int4"),
}
LOOSEST = Gate(
    max(gate.delta_percent for gate in GATES.values()),
    max(gate.mean_divergence for gate in GATES.values()),
    min(gate.needle_share for gate in GATES.values()),
    "the control: two bits must miss even the loosest of all bounds, or the suite is blind",
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One figure against its bound."""

    what: str
    verdict: Verdict
    text: str


def gate_of(kv_format: str) -> Gate:
    return GATES.get(kv_format, LOOSEST)


def judged(what: str, value: float, low: float, high: float, bound: float, unit: str = "") -> Finding:
    """A figure that must not be above its bound, with its interval."""
    shown = f"{what} {value:.3g}{unit} [{low:.3g}, {high:.3g}], bound {bound:g}{unit}"
    if high <= bound:
        return Finding(what, "passed", shown)
    if low > bound:
        return Finding(what, "failed", shown)
    return Finding(what, "unresolved", f"{shown}: not resolved, more text is needed")


def judged_share(what: str, value: float, least: float) -> Finding:
    """A share that must not be below its bound."""
    return Finding(
        what, "passed" if value >= least else "failed", f"{what} {100 * value:.2f} %, at least {100 * least:g} %"
    )


def judged_fact(what: str, is_so: bool, text: str) -> Finding:
    return Finding(what, "passed" if is_so else "failed", text)


def overall(findings: Sequence[Finding]) -> Verdict:
    """Failed if anything failed, unresolved if anything is."""
    verdicts = {finding.verdict for finding in findings}
    return "failed" if "failed" in verdicts else "unresolved" if "unresolved" in verdicts else "passed"
