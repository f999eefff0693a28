"""Sentences on sampled prompts: what varies, where, and the hits gained by moving it to the end. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.dashboard.frame.words import counted

LEAST_POINTS = 1


@dataclass(frozen=True, slots=True)
class Diagnosis:
    slug: str
    title: str
    points: int  # gained in the sample by moving what varies to the end
    basis: str
    as_of: datetime | None
    findings: Sequence[tuple[str, str]]  # for each part that varies: the advice, and the values seen
    partings: Sequence[Mapping[str, Any]]

    @property
    def is_sampled(self) -> bool:
        return self.as_of is not None


def diagnosis(slug: str, told: Mapping[str, Any]) -> Diagnosis:
    return Diagnosis(
        slug=slug,
        title=_title(slug, told),
        points=_points(told),
        basis=_basis(told),
        as_of=told["as_of"],
        findings=[(one["advice"], _values(one)) for one in told["findings"]],
        partings=told["partings"],
    )


def most_first(found: Sequence[Diagnosis]) -> list[Diagnosis]:
    """Sort by the possible gain, largest first; namespaces without a sample come last."""
    return sorted(found, key=lambda one: (not one.is_sampled, -one.points, one.slug))


def summary(found: Sequence[Diagnosis]) -> str:
    sampled = [one for one in found if one.is_sampled]
    if not sampled:
        return "No prompt was looked at in the last 24 h"
    gaining = [one for one in sampled if one.points >= LEAST_POINTS]
    if not gaining:
        return "In the prompts that were looked at nothing varies that would gain by moving"
    best = max(gaining, key=lambda one: one.points)
    return f"One change to the prompts of {best.slug} would bring {counted(best.points, 'point')}"


def _points(told: Mapping[str, Any]) -> int:
    if told["hit_ratio_now"] is None or not told["findings"]:
        return 0
    return int((told["hit_ratio_then"] - told["hit_ratio_now"]) * 100 + 1e-9)


def _title(slug: str, told: Mapping[str, Any]) -> str:
    if told["as_of"] is None:
        return f"{slug}: not looked at in the last 24 h"
    if not told["findings"]:
        return f"{slug}: nothing varies that would gain by moving"
    now, then = (int(told[name] * 100 + 1e-9) for name in ("hit_ratio_now", "hit_ratio_then"))
    return f"{slug}: hit rate {now} % → {then} % of the sample, with what varies at the end"


def _basis(told: Mapping[str, Any]) -> str:
    if told["as_of"] is None:
        return "A gateway looks once at least eight prompts were sampled, four of them new."
    requests, tokens = counted(told["sampled_requests"], "prompt"), f"{told['sampled_tokens']:,} tokens"
    return f"{requests} sampled, {tokens}, by {counted(told['gateways'], 'gateway')}"


def _values(one: Mapping[str, Any]) -> str:
    distinct, seen = one["distinct"], one["seen"]
    if distinct >= seen:
        return f"Another value in each of {seen:,} prompts: a time or an id, perhaps."
    return f"{counted(distinct, 'value')} in {seen:,} prompts: a name, perhaps."
