"""The cost of each KV format where a policy is served: bytes a token and measured quality. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.dashboard.frame.words import counted
from controlplane.fleet.models import QualityResult
from controlplane.fleet.quality import DEFAULT, LET_THROUGH, Served
from kernels.formats import BASELINE, KV_FORMATS, OFFERED
from tenants.preview import AgentPool

MOST_QUALITIES = 3
MOST_NAMED = 3
COMPARED = (DEFAULT, "fp8_e4m3")  # the default format, and the format that vLLM calls fp8
Results = Mapping[tuple[str, str, str, str], QualityResult]  # by model, revision, backend and format


@dataclass(frozen=True, slots=True)
class Quality:
    """The quality on one model and backend. `tone` and `verdict` say whether it may be served."""

    of: str
    delta: str
    verdict: str
    tone: str


@dataclass(frozen=True, slots=True)
class Format:
    name: str
    what: str
    cost: str
    qualities: tuple[Quality, ...]
    caveat: str  # agents that cannot use it or compute it as another format; empty if none


def formats(
    pools: Sequence[AgentPool], served: Iterable[Served], results: Iterable[QualityResult], *, names_agents: bool = True
) -> dict[str, Format]:
    """Return all formats by name. Members see how many agents lack one, but not which."""
    distinct_served = list(dict.fromkeys(served))
    results_by_key = {
        (quality_result.model, quality_result.revision, quality_result.backend, quality_result.kv_dtype): quality_result
        for quality_result in results
    }
    describe_agents = _named if names_agents else _numbered
    return {name: _format(name, pools, distinct_served, results_by_key, describe_agents) for name in OFFERED}


def _format(
    name: str,
    pools: Sequence[AgentPool],
    served: Sequence[Served],
    results: Results,
    describe_agents: Callable[[Sequence[str]], str],
) -> Format:
    capable = [served_model for served_model in served if name in served_model.formats]
    lacking = sorted({served_model.agent for served_model in served if name not in served_model.formats})
    caveats = [
        f"{describe_agents(agents)} {_computes(len(agents))} it as {substitute}"
        for substitute, agents in _otherwise(name, capable)
    ]
    if served and not capable:
        caveats = ["no agent here can do it"]
    elif lacking:
        caveats.append(f"{describe_agents(lacking)} cannot do it: requests for it go to the others")
    format_keys = list(dict.fromkeys((served_model.key, served_model.computed(name)) for served_model in capable))
    qualities = tuple(
        _quality(name, key, computed, results, is_only=len(format_keys) == 1)
        for key, computed in format_keys[:MOST_QUALITIES]
    )
    return Format(name, KV_FORMATS[name].hint, cost(name, pools), qualities, "; ".join(caveats))


def _otherwise(name: str, capable: Sequence[Served]) -> list[tuple[str, list[str]]]:
    """Return the formats that agents compute in place of `name`, each with those agents."""
    substitutes = sorted({served_model.computed(name) for served_model in capable} - {name})
    return [
        (
            substitute,
            sorted({served_model.agent for served_model in capable if served_model.computed(name) == substitute}),
        )
        for substitute in substitutes
    ]


def _named(agents: Sequence[str]) -> str:
    return ", ".join(agents[:MOST_NAMED]) + (
        f" and {len(agents) - MOST_NAMED} more" if len(agents) > MOST_NAMED else ""
    )


def _numbered(agents: Sequence[str]) -> str:
    return counted(len(agents), "agent")


def _computes(agents: int) -> str:
    return "computes" if agents == 1 else "compute"


def cost(name: str, pools: Sequence[AgentPool]) -> str:
    """Return "1 KiB a token, half of bf16". Sizes may differ by agent, as models do."""
    sizes = sorted({token_bytes(name, pool) for pool in pools} - {None})  # type: ignore[type-var]
    if not sizes:
        return ""
    sizes_text = " or ".join(bytes_exact(float(size or 0)) for size in sizes[:MOST_QUALITIES])
    ratios = {_ratio(name, pool) for pool in pools} - {None}
    against = f", {ratio_words(next(iter(ratios)) or 1.0)}" if len(ratios) == 1 and name != BASELINE else ""
    return f"{sizes_text} a token{against}"


def token_bytes(name: str, pool: AgentPool) -> float | None:
    size = pool.block_bytes.get(name)
    return size / pool.block_tokens if size and pool.block_tokens else None


def _ratio(name: str, pool: AgentPool) -> float | None:
    token_size, baseline_size = token_bytes(name, pool), token_bytes(BASELINE, pool)
    return round(token_size / baseline_size, 3) if token_size and baseline_size else None


def ratio_words(ratio: float) -> str:
    if ratio == 0.5:
        return "half of bf16"
    return f"{100 * ratio:.3g} % of bf16"


def bytes_exact(size: float) -> str:
    """Format a size with four significant digits: "160 KiB", "1.06 KiB", "576 B"."""
    if size < 1024:
        return f"{size:.4g} B"
    return f"{size / 1024:.4g} KiB" if size < 1024**2 else f"{size / 1024**2:.4g} MiB"


def _quality(name: str, key: tuple[str, str, str], computed: str, results: Results, *, is_only: bool) -> Quality:
    model, revision, backend = key
    measured_on = "" if is_only else f"{model} at {revision[:12]} on {backend}"
    quality_result = results.get((*key, name)) or results.get((*key, computed))
    if name == BASELINE:
        return Quality(measured_on, "the baseline", "may always be served", "ok")
    if quality_result is None:
        return Quality(measured_on, f"not measured on {model}, {backend}", "may not be served", "warn")
    is_open = quality_result.verdict in LET_THROUGH
    verdict = quality_result.verdict if is_open else f"{quality_result.verdict}: may not be served"
    return Quality(
        measured_on,
        delta_words(quality_result.figures),
        verdict,
        "ok" if is_open else "bad" if quality_result.verdict == "failed" else "warn",
    )


def delta_words(figures: Mapping[str, Any]) -> str:
    """Return "perplexity +0.09 %, KL 1.7e-3", by byte against the same model in bf16, or "not measured"."""
    delta, divergence = figures.get("byte_delta_percent"), figures.get("byte_divergence")
    if delta is None or divergence is None:
        return "not measured"
    return f"perplexity {delta:+.2f} %, KL {_small(divergence)}"


def _small(value: float) -> str:
    if value == 0 or value >= 0.01:
        return f"{value:.2g}"
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def compared(formats_by_name: Mapping[str, Format]) -> str:
    """Return both meanings of fp8 in one sentence; empty unless both have a result."""
    deltas = [
        f"{name} ({formats_by_name[name].what}): {quality.delta}"
        for name in COMPARED
        for quality in formats_by_name[name].qualities[:1]
        if quality.delta
    ]
    return "; ".join(deltas) if len(deltas) == len(COMPARED) else ""


def basis(served: Iterable[Served]) -> str:
    """Return the model and backend of the measurements."""
    keys = list(dict.fromkeys(served_model.key for served_model in served))
    if not keys:
        return "No agent serves this yet: what a token costs and loses is known once one does."
    model, revision, backend = keys[0]
    others_text = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
    where = f"{model} at {revision[:12]}, {backend}{others_text}"
    return f"Bytes are as agents report them. Deltas are by byte of text, measured on {where}, against bf16."
