"""Validates gateways' `diagnostics` reports: limits their size and fixes the form that is stored and shown."""

from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from controlplane.analytics.rows import Problem, Tokens, told_read

MOST_FINDINGS: Final = 32
MOST_PARTINGS: Final = 64
_Ratio = Annotated[float, Meta(ge=0, le=1)]


class _Finding(Struct, forbid_unknown_fields=True):
    place: Annotated[str, Meta(pattern=r"\A[0-9a-f]{16}\Z")]
    token: Tokens
    length_tokens: Tokens
    longest_tokens: Tokens
    recurring_tokens: Tokens
    distinct: Tokens
    seen: Tokens
    share: _Ratio
    recurs: _Ratio
    hit_ratio_now: _Ratio
    hit_ratio_then: _Ratio
    spans: Annotated[list[Any], Meta(max_length=0)]


class _Parting(Struct, forbid_unknown_fields=True):
    token: Tokens
    until: Tokens
    share: _Ratio


class _Divergence(Struct, forbid_unknown_fields=True):
    prompts: Tokens
    tokens: Tokens
    hit_ratio_now: _Ratio
    hit_ratio_then: _Ratio
    findings: Annotated[list[_Finding], Meta(max_length=MOST_FINDINGS)]
    partings: Annotated[list[_Parting], Meta(max_length=MOST_PARTINGS)]


def diagnostics_problem(field: str, reported_divergence: Any) -> Problem | None:
    """Return what is wrong with the findings of one namespace, or None."""
    divergence = told_read(field, reported_divergence, _Divergence)
    return divergence if isinstance(divergence, Problem) else None
