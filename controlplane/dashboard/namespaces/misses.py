"""The page on miss reasons: each with its share and advice, then namespaces, then findings in sampled prompts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.analytics.columns import MISSED_COLUMN
from controlplane.analytics.diagnostics import diagnostics_of
from controlplane.analytics.evictions import taken, together
from controlplane.analytics.selectors import Counts, Scope, database_now, names_of, totals_by
from controlplane.analytics.sums import KINDS
from controlplane.analytics.windows import window_of
from controlplane.dashboard.frame.charts import share_text
from controlplane.dashboard.frame.pages import page
from controlplane.dashboard.namespaces.diagnosis import Diagnosis, diagnosis, most_first, summary
from controlplane.dashboard.namespaces.frames import WINDOWS, organisation_frame, window_asked, windows, within
from controlplane.dashboard.namespaces.reasons import (
    REASONS,
    main_reason,
    misses_headline,
    reason_rows,
    reasons_title,
    token_bar,
)
from tenants.access import STATS_READ, namespaces_visible
from tenants.consistent_reads import consistent_read

MOST_SHOWN = 20
COLUMNS = ("requests", "prompt_tokens", "cached_tokens", *MISSED_COLUMN.values())


@dataclass(frozen=True, slots=True)
class NamespaceMisses:
    """One namespace's misses. `by_reason`: tokens missed for the main reason, if there is one."""

    slug: str
    prompt: int
    missed: int
    reason: str
    by_reason: int


@page()
def misses(request: HttpRequest, org: str) -> HttpResponse:
    actor, organisation = within(request, org, STATS_READ)
    window_name = window_asked(request)
    with consistent_read():
        window = window_of(window_name, database_now())
        scope = Scope(organisation.pk, None, None, actor.namespace_ids)
        counts_by_namespace = totals_by(scope, window, by="namespace", kinds=KINDS, columns=COLUMNS)
        evicted_blocks = together(taken(window, counts_by_namespace.keys()).values())
        names = names_of("namespace", counts_by_namespace.keys())
    slugs = {pk: namespace.slug for pk, namespace in names.items() if not namespace.is_deleted}
    prompt, cached, missed_tokens = _sum(counts_by_namespace.values())
    worst = sorted(
        (pk for pk in counts_by_namespace if pk in slugs), key=lambda pk: (-_missed(counts_by_namespace[pk]), slugs[pk])
    )
    diagnoses = _diagnoses(actor, organisation, worst[:MOST_SHOWN], slugs)
    title = misses_headline(missed_tokens, prompt, window=WINDOWS[window_name])
    context = {
        **organisation_frame(request, actor, organisation),
        "windows": windows(window_name),
        "window": WINDOWS[window_name],
        "as_of": window.end,
        "headline": title,
        "bar": token_bar(f"{share_text(cached, prompt)} of prompt tokens came from the cache", cached, missed_tokens)
        if prompt
        else None,
        "reasons": reason_rows(missed_tokens, evicted_blocks),
        "missed": sum(missed_tokens.values()),
        "reasons_title": reasons_title(missed_tokens),
        "rows": [_row(slugs[pk], counts_by_namespace[pk]) for pk in worst[:MOST_SHOWN]],
        "unshown": max(0, len(worst) - MOST_SHOWN),
        "diagnoses": diagnoses,
        "summary": summary(diagnoses),
    }
    return render(request, "dashboard/namespaces/misses.html", context)


def _diagnoses(actor: Any, organisation: Any, worst: Sequence[int], slugs: Mapping[int, str]) -> list[Diagnosis]:
    """Diagnose the namespaces with most misses, or the first ones if nothing is counted yet."""
    slugs_by_id = dict(slugs)
    namespace_ids = list(worst)
    if not namespace_ids:
        slugs_by_id = dict(
            namespaces_visible(actor, organisation).order_by("slug").values_list("pk", "slug")[:MOST_SHOWN]
        )
        namespace_ids = list(slugs_by_id)
    return most_first([diagnosis(slugs_by_id[pk], report) for pk, report in diagnostics_of(namespace_ids).items()])


def _sum(counts: Any) -> tuple[int, int, dict[str, int]]:
    rows = list(counts)
    prompt, cached = (sum(row[name] for row in rows) for name in ("prompt_tokens", "cached_tokens"))
    return prompt, cached, {reason: sum(row[column] for row in rows) for reason, column in MISSED_COLUMN.items()}


def _missed(counts: Counts) -> int:
    return sum(counts[column] for column in MISSED_COLUMN.values())


def _row(slug: str, counts: Counts) -> NamespaceMisses:
    missed_tokens = {reason: counts[column] for reason, column in MISSED_COLUMN.items()}
    total, reason = sum(missed_tokens.values()), main_reason(missed_tokens)
    label = REASONS[reason].label if reason else "nothing but ends of prompts" if total else "nothing missed"
    return NamespaceMisses(slug, counts["prompt_tokens"], total, label, missed_tokens[reason] if reason else 0)
