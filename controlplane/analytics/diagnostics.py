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
    rows: dict[int, list[Divergence]] = {one: [] for one in ids}
    for row in Divergence.objects.filter(namespace_id__in=ids, at__gte=moment - LASTS).order_by("agent"):
        rows[row.namespace_id].append(row)
    return {one: _answer(found) for one, found in rows.items()}


def _answer(rows: Sequence[Divergence]) -> dict[str, Any]:
    told = [row.told for row in rows]
    return {
        "as_of": max((row.at for row in rows), default=None),
        "gateways": len(rows),
        "sampled_requests": sum(one["prompts"] for one in told),
        "sampled_tokens": sum(one["tokens"] for one in told),
        "hit_ratio_now": _ratio(told, "hit_ratio_now"),
        "hit_ratio_then": _ratio(told, "hit_ratio_then"),
        "findings": findings_merged(told),
        "partings": partings_merged(told),
    }


def findings_merged(told: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one finding for each place, those nearest to the prompt's beginning first."""
    prompts = sum(one["prompts"] for one in told)
    places: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
    for one in told:
        for finding in one["findings"]:
            places.setdefault(finding["place"], []).append((one["prompts"], finding))
    merged = [_merged(place, found, prompts) for place, found in places.items()]
    most = sorted(merged, key=lambda one: -one.share)[:MOST_SHOWN]
    return [_shown(one) for one in sorted(most, key=lambda one: (one.token, one.place))]


def partings_merged(told: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return where matches end, by stretches of the prompt."""
    prompts = sum(one["prompts"] for one in told) or 1
    sums: dict[tuple[int, int], float] = {}
    for one in told:
        for parting in one["partings"]:
            stretch = (parting["token"], parting["until"])
            sums[stretch] = sums.get(stretch, 0.0) + parting["share"] * one["prompts"] / prompts
    return [{"token": token, "until": until, "share": share} for (token, until), share in sorted(sums.items())]


def _merged(place: str, found: Iterable[tuple[int, Mapping[str, Any]]], prompts: int) -> Finding:
    """Merge the findings of one place. `prompts` includes gateways without this finding, which lowers its share."""
    pairs = [(many, one) for many, one in found]
    seen = sum(many for many, _ in pairs) or 1
    means = {name: sum(many * one[name] for many, one in pairs) / seen for name in _WEIGHED}
    return Finding(
        place=place,
        longest_tokens=max(one["longest_tokens"] for _, one in pairs),
        share=sum(many * one["share"] for many, one in pairs) / (prompts or 1),
        distinct=sum(one["distinct"] for _, one in pairs),
        seen=sum(one["seen"] for _, one in pairs),
        **{name: round(mean) if name in _WHOLE else mean for name, mean in means.items()},
    )


def _shown(one: Finding) -> dict[str, Any]:
    names = (
        *("place", "token", "length_tokens", "longest_tokens", "share", "recurs", "recurring_tokens"),
        *("distinct", "seen", "hit_ratio_now", "hit_ratio_then"),
    )
    return {name: getattr(one, name) for name in names} | {"advice": advice(one)}


def _ratio(told: Sequence[Mapping[str, Any]], name: str) -> float | None:
    tokens = sum(one["tokens"] for one in told)
    return sum(one[name] * one["tokens"] for one in told) / tokens if tokens else None
