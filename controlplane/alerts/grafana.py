"""The dashboard as Grafana reads it: the rows of `board`, placed and spelt out. Pure: text comes out."""

import json
from collections.abc import Iterator, Mapping
from string import ascii_uppercase
from typing import Any, Final

from controlplane.alerts.board.cache import CACHE
from controlplane.alerts.board.control_plane import CONTROL_PLANE
from controlplane.alerts.board.engines import ENGINES
from controlplane.alerts.board.gateways import GATEWAYS
from controlplane.alerts.board.glance import GLANCE
from controlplane.alerts.board.parts import COLUMNS, GREEN, RED, Panel, Query, Row

TITLE: Final = "Luminet"
UID: Final = "luminet"
PROVISIONED: Final = "luminet-prometheus"  # deploy/grafana/provisioning/datasources/luminet.yml has it under this id
SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
ROWS: Final[tuple[Row, ...]] = (GLANCE, CACHE, ENGINES, GATEWAYS, CONTROL_PLANE)
PANELS: Final[tuple[Panel, ...]] = tuple(panel for row in ROWS for panel in row.panels)
# What can be chosen at the top: its name, what people call it, and of which series it is which label.
CHOICES: Final = (
    ("model", "Model", "luminet_engine_up", "model"),
    ("engine", "Engine", "luminet_engine_up", "instance"),
    ("gateway", "Gateway", "luminet_gateway_connections", "instance"),
    ("organisation", "Organisation", "luminet_prompt_tokens_total", "organisation"),
)


def dashboard_text() -> str:
    return json.dumps(_dashboard(), indent=2, ensure_ascii=False) + "\n"


def _dashboard() -> Mapping[str, Any]:
    return {
        "title": TITLE,
        "uid": UID,
        "description": "Made by `make alert-files`: change controlplane/alerts/board, not this.",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "15s",
        "tags": ["luminet"],
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "graphTooltip": 1,  # the line under the mouse is in every picture
        "templating": {"list": [_source(), *(_choice(*one) for one in CHOICES)]},
        "panels": [{"id": number, **one} for number, one in enumerate(_panels(), 1)],
    }


def _source() -> Mapping[str, Any]:
    return {
        "name": "source",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {"text": TITLE, "value": PROVISIONED},
    }


def _choice(name: str, label: str, metric: str, of: str) -> Mapping[str, Any]:
    asked = f"label_values({metric}, {of})"
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "definition": asked,
        "query": {"query": asked, "refId": name},
        "refresh": 2,  # as often as the time that is looked at changes
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _panels() -> Iterator[Mapping[str, Any]]:
    y = 0
    for row in ROWS:
        yield {
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
            "panels": [],
        }
        x, y = 0, y + 1
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, y = 0, y + panel.height
            yield _panel(panel, x, y)
            x += panel.width
        y += row.panels[-1].height


def _panel(one: Panel, x: int, y: int) -> Mapping[str, Any]:
    return {
        "type": one.kind,
        "title": one.title,
        "description": one.about,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": one.width, "h": one.height},
        "fieldConfig": {"defaults": _field(one), "overrides": []},
        "options": _options(one),
        "targets": [_target(name, query) for name, query in zip(ascii_uppercase, one.queries, strict=False)],
    }


def _field(one: Panel) -> Mapping[str, Any]:
    return {
        "unit": one.unit,
        **({} if one.least is None else {"min": one.least}),
        **({} if one.most is None else {"max": one.most}),
        **(_thresholds(one) if one.kind == "stat" else {"custom": _lines(one)}),
    }


def _thresholds(one: Panel) -> Mapping[str, Any]:
    steps: list[Mapping[str, Any]] = [{"color": GREEN if one.bad_from is not None else "text", "value": None}]
    if one.bad_from is not None:
        steps.append({"color": RED, "value": one.bad_from})
    return {"color": {"mode": "thresholds"}, "thresholds": {"mode": "absolute", "steps": steps}}


def _lines(one: Panel) -> Mapping[str, Any]:
    stacking = {"mode": "normal" if one.is_stacked else "none", "group": "A"}
    return {"fillOpacity": 30 if one.is_stacked else 5, "lineWidth": 1, "showPoints": "never", "stacking": stacking}


def _options(one: Panel) -> Mapping[str, Any]:
    if one.kind == "stat":
        reduced = {"calcs": ["lastNotNull"], "fields": "", "values": False}
        return {"reduceOptions": reduced, "colorMode": "value", "graphMode": "area", "textMode": "value"}
    return {
        "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def _target(name: str, query: Query) -> Mapping[str, Any]:
    legend = {"legendFormat": query.legend} if query.legend else {}
    return {"refId": name, "datasource": SOURCE, "expr": query.expression, **legend}
