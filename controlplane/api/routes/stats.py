"""Operations for statistics, for customers and operators: the numbers of a window, and the same in steps."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Query
from pydantic import BaseModel

from controlplane.analytics.selectors import Scope
from controlplane.analytics.stats import series_answer, stats_answer
from controlplane.analytics.tables import OF_SERIES, OF_STATS, series_rows, stats_rows
from controlplane.analytics.windows import WindowName
from controlplane.api.etags import content_tag, has_tag
from controlplane.api.routing import Answer, Call, Group, rendered
from controlplane.api.schemas.stats import FleetStatsShown, StatsSeries, StatsShown
from controlplane.common.csv_text import csv_response
from tenants import access
from tenants.models.organisations import SLUG_PATTERN
from tenants.policy import ModelName

group = Group("Numbers")

OfWindow = Annotated[WindowName, Query("24h", description="How far it reaches back from now.")]
OfNamespace = Annotated[str | None, Query(None, pattern=SLUG_PATTERN, description="Only of this namespace.")]
OfModel = Annotated[ModelName | None, Query(None, description="Only of this model.")]
Step = Annotated[
    str | None,
    Query(
        None,
        max_length=10,
        description="`5m`, `1h`, `1d`: whole minutes, of 7d multiples of five, of 30d whole hours, and 2,000 points at "
        "most. Left out: what suits the window.",
    ),
]
Format = Annotated[
    Literal["json", "csv"], Query("json", description="`csv`: as text/csv, a row for each line of the answer.")
]
CACHED: Final = "private, max-age=1"
TIMES: Final = ("as_of", "from", "to", "covered_seconds")


@group.get("/orgs/{org}/stats", access.STATS_READ, StatsShown, gives_etag=True, csv_heads=OF_STATS)
def stats_get(
    call: Call, window: OfWindow = "24h", namespace: OfNamespace = None, model: OfModel = None, format: Format = "json"
) -> HttpResponse:
    """Read what was counted of an organisation.

    Requests, tokens, hit ratio, times and what the cache saved, over a window that ends now. A key bound to namespaces
    sees those alone. The ETag is of the numbers: it stays while they do, though the window moves on.
    """
    report = stats_answer(_scope(call, namespace, model), window)
    return _answered(call.request, report, StatsShown, format, _stats_table)


@group.get("/orgs/{org}/stats/series", access.STATS_READ, StatsSeries, gives_etag=True, csv_heads=OF_SERIES)
def stats_series_get(
    call: Call,
    window: OfWindow = "24h",
    step: Step = None,
    namespace: OfNamespace = None,
    model: OfModel = None,
    format: Format = "json",
) -> HttpResponse:
    """Read what was counted of an organisation, step by step.

    A key bound to namespaces sees those alone.
    """
    series = series_answer(_scope(call, namespace, model), window, step)
    return _answered(call.request, series, StatsSeries, format, _series_table)


@group.get("/fleet/stats", access.OPERATE_STATS_READ, FleetStatsShown, gives_etag=True, csv_heads=OF_STATS)
def fleet_stats_get(
    call: Call, window: OfWindow = "24h", model: OfModel = None, format: Format = "json"
) -> HttpResponse:
    """Read what was counted of everybody.

    Of all organisations together, and of each. Operators only.
    """
    report = stats_answer(Scope(None, model=model), window)
    return _answered(call.request, report, FleetStatsShown, format, _stats_table)


@group.get("/fleet/stats/series", access.OPERATE_STATS_READ, StatsSeries, gives_etag=True, csv_heads=OF_SERIES)
def fleet_stats_series_get(
    call: Call, window: OfWindow = "24h", step: Step = None, model: OfModel = None, format: Format = "json"
) -> HttpResponse:
    """Read what was counted of everybody, step by step. Operators only."""
    series = series_answer(Scope(None, model=model), window, step)
    return _answered(call.request, series, StatsSeries, format, _series_table)


def _scope(call: Call, namespace: str | None, model: str | None) -> Scope:
    organisation = call.organisation
    chosen = None if namespace is None else access.namespace_for(call.actor, organisation, namespace).pk
    return Scope(organisation.pk, chosen, model, call.actor.namespace_ids)


def _answered(
    request: HttpRequest,
    report: Mapping[str, Any],
    shape: type[BaseModel],
    format: str,
    table: Callable[[Mapping[str, Any]], HttpResponse],
) -> HttpResponse:
    """Return the answer with a weak tag: it depends on the numbers, not on the time of reading."""
    tag = content_tag(_numbers(report))
    headers = {"ETag": tag, "Cache-Control": CACHED, "Vary": "Authorization"}
    if has_tag(request.headers.get("If-None-Match"), tag):
        return HttpResponse(status=304, headers=headers)
    answer = table(report) if format == "csv" else rendered(Answer(shape.model_validate(report)), request)
    for name, value in headers.items():
        answer[name] = value
    return answer


def _numbers(node: Any) -> Any:
    """Remove the window's times, which move while the numbers do not."""
    if isinstance(node, list):
        return [_numbers(element) for element in node]
    if not isinstance(node, dict):
        return node
    return {name: _numbers(value) for name, value in node.items() if name not in TIMES}


def _stats_table(report: Mapping[str, Any]) -> HttpResponse:
    return csv_response(OF_STATS, stats_rows(report), name="stats")


def _series_table(series: Mapping[str, Any]) -> HttpResponse:
    return csv_response(OF_SERIES, series_rows(series), name="stats-series")
