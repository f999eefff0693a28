"""Explains why a namespace's prompts miss: merges the findings of all gateways. Selectors.

Each gateway looks at its own sample. Findings of the same place are weighted by how many prompts each gateway saw.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from controlplane.analytics.models import Divergence
from controlplane.analytics.selectors import database_now
from engine_agent.divergence.advice import advice
from engine_agent.divergence.findings import Finding
from tenants.models import Namespace

LASTS: Final = timedelta(hours=24)  # older findings say nothing about today's prompts
MOST_SHOWN: Final = 8
_WEIGHED: Final = ("token", "length_tokens", "recurring_tokens", "recurs", "hit_ratio_now", "hit_ratio_then")
_WHOLE: Final = frozenset({"token", "length_tokens", "recurring_tokens"})


def diagnostics(namespace: Namespace, *, now: datetime | None = None) -> dict[str, Any]:
    return diagnostics_of([namespace.pk], now=now)[namespace.pk]


def diagnostics_of(ids: Collection[int], *, now: datetime | None = None) -> dict[int, dict[str, Any]]:
    """Return the diagnostics of each namespace, in one query."""
    moment = now or database_now()
    rows: dict[int, list[Divergence]] = {namespace_id: [] for namespace_id in ids}
    for row in Divergence.objects.filter(namespace_id__in=ids, at__gte=moment - LASTS).order_by("agent"):
        rows[row.namespace_id].append(row)
    return {namespace_id: _answer(namespace_rows) for namespace_id, namespace_rows in rows.items()}


def _answer(rows: Sequence[Divergence]) -> dict[str, Any]:
    reports = [row.told for row in rows]
    return {
        "as_of": max((row.at for row in rows), default=None),
        "gateways": len(rows),
        "sampled_requests": sum(report["prompts"] for report in reports),
        "sampled_tokens": sum(report["tokens"] for report in reports),
        "hit_ratio_now": _ratio(reports, "hit_ratio_now"),
        "hit_ratio_then": _ratio(reports, "hit_ratio_then"),
        "findings": findings_merged(reports),
        "partings": partings_merged(reports),
    }


def findings_merged(reports: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one finding for each place, those nearest to the prompt's beginning first."""
    prompts = sum(report["prompts"] for report in reports)
    findings_by_place: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
    for report in reports:
        for finding in report["findings"]:
            findings_by_place.setdefault(finding["place"], []).append((report["prompts"], finding))
    merged = [
        _merged(place_id, weighted_findings, prompts) for place_id, weighted_findings in findings_by_place.items()
    ]
    largest = sorted(merged, key=lambda finding: -finding.share)[:MOST_SHOWN]
    return [_shown(finding) for finding in sorted(largest, key=lambda finding: (finding.token, finding.place))]


def partings_merged(reports: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return where matches end, by stretches of the prompt."""
    prompts = sum(report["prompts"] for report in reports) or 1
    sums: dict[tuple[int, int], float] = {}
    for report in reports:
        for parting in report["partings"]:
            stretch = (parting["token"], parting["until"])
            sums[stretch] = sums.get(stretch, 0.0) + parting["share"] * report["prompts"] / prompts
    return [{"token": token, "until": until, "share": share} for (token, until), share in sorted(sums.items())]


def _merged(place_id: str, weighted_findings: Iterable[tuple[int, Mapping[str, Any]]], prompts: int) -> Finding:
    """Merge the findings of one place. `prompts` includes gateways without this finding, which lowers its share."""
    pairs = [(weight, finding) for weight, finding in weighted_findings]
    total_weight = sum(weight for weight, _ in pairs) or 1
    means = {name: sum(weight * finding[name] for weight, finding in pairs) / total_weight for name in _WEIGHED}
    return Finding(
        place=place_id,
        longest_tokens=max(finding["longest_tokens"] for _, finding in pairs),
        share=sum(weight * finding["share"] for weight, finding in pairs) / (prompts or 1),
        distinct=sum(finding["distinct"] for _, finding in pairs),
        seen=sum(finding["seen"] for _, finding in pairs),
        **{name: round(mean) if name in _WHOLE else mean for name, mean in means.items()},
    )


def _shown(finding: Finding) -> dict[str, Any]:
    names = (
        *("place", "token", "length_tokens", "longest_tokens", "share", "recurs", "recurring_tokens"),
        *("distinct", "seen", "hit_ratio_now", "hit_ratio_then"),
    )
    return {name: getattr(finding, name) for name in names} | {"advice": advice(finding)}


def _ratio(reports: Sequence[Mapping[str, Any]], name: str) -> float | None:
    tokens = sum(report["tokens"] for report in reports)
    return sum(report[name] * report["tokens"] for report in reports) / tokens if tokens else None
