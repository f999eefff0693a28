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


def diagnosis(slug: str, report: Mapping[str, Any]) -> Diagnosis:
    return Diagnosis(
        slug=slug,
        title=_title(slug, report),
        points=_points(report),
        basis=_basis(report),
        as_of=report["as_of"],
        findings=[(finding["advice"], _values(finding)) for finding in report["findings"]],
        partings=report["partings"],
    )


def most_first(diagnoses: Sequence[Diagnosis]) -> list[Diagnosis]:
    """Sort by the possible gain, largest first; namespaces without a sample come last."""
    return sorted(diagnoses, key=lambda diagnosis: (not diagnosis.is_sampled, -diagnosis.points, diagnosis.slug))


def summary(diagnoses: Sequence[Diagnosis]) -> str:
    sampled = [diagnosis for diagnosis in diagnoses if diagnosis.is_sampled]
    if not sampled:
        return "No prompt was looked at in the last 24 h"
    gaining = [diagnosis for diagnosis in sampled if diagnosis.points >= LEAST_POINTS]
    if not gaining:
        return "In the prompts that were looked at nothing varies that would gain by moving"
    best = max(gaining, key=lambda diagnosis: diagnosis.points)
    return f"One change to the prompts of {best.slug} would bring {counted(best.points, 'point')}"


def _points(report: Mapping[str, Any]) -> int:
    if report["hit_ratio_now"] is None or not report["findings"]:
        return 0
    return int((report["hit_ratio_then"] - report["hit_ratio_now"]) * 100 + 1e-9)


def _title(slug: str, report: Mapping[str, Any]) -> str:
    if report["as_of"] is None:
        return f"{slug}: not looked at in the last 24 h"
    if not report["findings"]:
        return f"{slug}: nothing varies that would gain by moving"
    now, then = (int(report[name] * 100 + 1e-9) for name in ("hit_ratio_now", "hit_ratio_then"))
    return f"{slug}: hit rate {now} % → {then} % of the sample, with what varies at the end"


def _basis(report: Mapping[str, Any]) -> str:
    if report["as_of"] is None:
        return "A gateway looks once at least eight prompts were sampled, four of them new."
    requests, tokens = counted(report["sampled_requests"], "prompt"), f"{report['sampled_tokens']:,} tokens"
    return f"{requests} sampled, {tokens}, by {counted(report['gateways'], 'gateway')}"


def _values(finding: Mapping[str, Any]) -> str:
    distinct, prompts = finding["distinct"], finding["seen"]
    if distinct >= prompts:
        return f"Another value in each of {prompts:,} prompts: a time or an id, perhaps."
    return f"{counted(distinct, 'value')} in {prompts:,} prompts: a name, perhaps."
