"""A dashboard for Grafana over the documented metrics and what Prometheus' rules ask. Pure: text comes out."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

TITLE: Final = "Luminet"
SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
COLUMNS, WIDTH, HEIGHT = 2, 12, 8


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    expression: str
    legend: str
    unit: str  # as Grafana names them
    about: str
    most: float | None = None
    further: tuple[str, str] | None = (
        None  # another expression and its legend: joined by `or`, alike labels would hide it
    )

    @property
    def asked(self) -> tuple[tuple[str, str], ...]:
        """Each expression with its legend."""
        first = (self.expression, self.legend)
        return (first,) if self.further is None else (first, self.further)


PANELS: Final = (
    Panel(
        "Hit ratio by namespace",
        "sum by (organisation, namespace) (rate(luminet_cached_tokens_total[5m]))"
        " / sum by (organisation, namespace) (rate(luminet_prompt_tokens_total[5m]))",
        "{{organisation}}/{{namespace}}",
        "percentunit",
        "Cached of all prompt tokens, of 5 minutes. The exact numbers are in Luminet itself.",
        1,
    ),
    Panel(
        "Prompt tokens a second",
        "sum by (organisation, namespace) (rate(luminet_prompt_tokens_total[5m]))",
        "{{organisation}}/{{namespace}}",
        "short",
        "How much is asked.",
    ),
    Panel(
        "Pool held by requests",
        'sum by (instance) (luminet_pool_used_bytes{tier="device"} - luminet_pool_evictable_bytes{tier="device"})'
        ' / sum by (instance) (luminet_pool_capacity_bytes{tier="device"})',
        "{{instance}}",
        "percentunit",
        "What is idle in the cache counts as free.",
        1,
    ),
    Panel(
        "Resident bytes by namespace",
        "sum by (organisation, namespace) (luminet_resident_bytes)",
        "{{organisation}}/{{namespace}}",
        "bytes",
        "What each holds in the caches.",
    ),
    Panel(
        "Missed tokens a second by reason",
        "sum by (reason) (rate(luminet_missed_tokens_total[5m]))",
        "{{reason}}",
        "short",
        "Why tokens were computed again.",
    ),
    Panel(
        "Blocks that left the cache, a second, by reason",
        "sum by (reason) (rate(luminet_evicted_blocks_total[5m]))",
        "{{reason}}",
        "short",
        "Expired, evicted, over a limit, or purged.",
    ),
    Panel(
        "Time to the first token, 95th percentile",
        "histogram_quantile(0.95, sum by (le, cache) (rate(luminet_time_to_first_token_seconds_bucket[5m])))",
        "{{cache}}",
        "s",
        "By how much of the prompt was cached.",
    ),
    Panel(
        "Requests a second by outcome",
        "sum by (outcome) (rate(luminet_requests_total[5m]))",
        "{{outcome}}",
        "short",
        "As engines ended them.",
    ),
    Panel(
        "Requests running and waiting",
        "sum by (instance) (luminet_requests_running)",
        "{{instance}} running",
        "short",
        "At each engine.",
        further=("sum by (instance) (luminet_requests_waiting)", "{{instance}} waiting"),
    ),
    Panel(
        "Alerts that fire, by rule",
        "max by (rule) (luminet_alerts_firing)",
        "{{rule}}",
        "short",
        "As the control plane evaluates its rules.",
    ),
    Panel(
        "Tokens by which numbers differ",
        "max by (between) (luminet_reconciliation_difference_tokens)",
        "{{between}}",
        "short",
        "Zero, or something is not counted as it should be.",
    ),
    Panel(
        "Reports that sidecars have yet to hand over",
        "max by (instance) (luminet_sidecar_spooled_reports)",
        "{{instance}}",
        "short",
        "Rising: the control plane does not take them.",
    ),
)


def dashboard_text() -> str:
    return json.dumps(_dashboard(), indent=2, ensure_ascii=False) + "\n"


def _dashboard() -> Mapping[str, Any]:
    return {
        "title": TITLE,
        "uid": "luminet",
        "description": "Made by `make alert-files`: change controlplane/alerts/grafana.py, not this.",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "15s",
        "tags": ["luminet"],
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {
            "list": [{"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}]
        },
        "panels": list(_panels()),
    }


def _panels() -> Iterator[Mapping[str, Any]]:
    for place, one in enumerate(PANELS):
        row, column = divmod(place, COLUMNS)
        bounds = {"min": 0} if one.most is None else {"min": 0, "max": one.most}
        yield {
            "id": place + 1,
            "type": "timeseries",
            "title": one.title,
            "description": one.about,
            "datasource": SOURCE,
            "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
            "fieldConfig": {"defaults": {"unit": one.unit, **bounds}, "overrides": []},
            "options": {"legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull"]}},
            "targets": [_target(*asked) for asked in zip("AB", one.asked, strict=False)],
        }


def _target(name: str, asked: tuple[str, str]) -> Mapping[str, Any]:
    expression, legend = asked
    return {"refId": name, "datasource": SOURCE, "expr": expression, "legendFormat": legend}
