"""Rules for Prometheus, the dashboard and the tables of the docs are as the definitions have them, and hold."""

import json
import re

import pytest
import yaml

from controlplane.alerts.definitions import BUILT_IN, METRICS, WATCHDOGS
from controlplane.alerts.generate import CHECKOUT, DOCS, PROMETHEUS, files
from controlplane.alerts.grafana import CHOICES, PANELS, PROVISIONED, ROWS
from controlplane.alerts.prometheus import RULES_FILE, prometheus_rules
from controlplane.client.alerts import METRICS as ALERT_METRICS
from tests.promtool import judged

FOLDER = CHECKOUT / PROMETHEUS
PAGES = ("engine.md", "operations.md", "gateway.md", "routing.md", "canary.md")
DOCUMENTED = "".join((CHECKOUT / "docs" / name).read_text() for name in PAGES)
DASHBOARD = json.loads((CHECKOUT / "deploy/grafana/luminet.json").read_text())
PROVISIONING = CHECKOUT / "deploy/grafana/provisioning"
CONFIG = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
UNITS = {"short", "percentunit", "reqps", "s", "bytes"}  # as Grafana names them
SUFFIXES = re.compile(r"_(bucket|sum|count)$")


def test_what_is_made_of_the_definitions_is_current(subtests: pytest.Subtests) -> None:
    made = files()
    assert made
    for path, text in made.items():
        with subtests.test(msg=path):
            assert (CHECKOUT / path).read_text(encoding="utf-8") == text, "run `make alert-files`"


def test_promtool_takes_the_rules() -> None:
    done = judged("check", "rules", RULES_FILE, cwd=FOLDER)
    assert done.returncode == 0, done.stderr
    assert f"{len(BUILT_IN) + len(WATCHDOGS)} rules found" in done.stdout


def metrics_in(text: str) -> set[str]:
    return {SUFFIXES.sub("", one) for one in re.findall(r"\b(?:luminet|process)_[a-z_]+", text)}


def test_only_documented_metrics_are_asked_for(subtests: pytest.Subtests) -> None:
    cases: list[str] = [
        *(one.expression for one in prometheus_rules()),
        *(query.expression for one in PANELS for query in one.queries),
    ]
    for expression in cases:
        with subtests.test(msg=expression):
            asked = metrics_in(expression)
            assert asked or re.search(r"\b(up|ALERTS)\{", expression)  # Prometheus' own
            assert {one for one in asked if f"`{one}" not in DOCUMENTED} == set()


def test_every_built_in_rule_is_one_of_prometheus() -> None:
    named = {one.name for one in prometheus_rules()}
    assert {one.prometheus_name for one in BUILT_IN} | {one.name for one in WATCHDOGS} == named


def test_built_in_rules_are_about_what_is_measured_and_can_end() -> None:
    for one in BUILT_IN:
        assert one.metric in METRICS
        assert one.clears_at <= one.threshold if one.comparison == "above" else one.clears_at >= one.threshold
        assert one.clear_for_seconds > 0


def test_the_dashboard_is_one_that_can_be_imported() -> None:
    panels = [one for one in DASHBOARD["panels"] if one["type"] != "row"]
    assert [one["title"] for one in panels] == [one.title for one in PANELS]
    assert [one["title"] for one in DASHBOARD["panels"] if one["type"] == "row"] == [one.title for one in ROWS]
    assert len({one["id"] for one in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert DASHBOARD["templating"]["list"][0]["type"] == "datasource"


def test_no_two_panels_overlap_and_none_is_wider_than_the_page() -> None:
    cells: set[tuple[int, int]] = set()
    for one in DASHBOARD["panels"]:
        x, y, width, height = (one["gridPos"][side] for side in "xywh")
        assert x + width <= 24, one["title"]
        taken = {(column, line) for column in range(x, x + width) for line in range(y, y + height)}
        assert not taken & cells, one["title"]
        cells |= taken


def test_every_panel_says_what_it_shows_and_in_which_unit(subtests: pytest.Subtests) -> None:
    for panel in PANELS:
        with subtests.test(msg=panel.title):
            assert panel.about.endswith(".")
            assert panel.unit in UNITS
            assert all(query.legend for query in panel.queries) or panel.kind == "stat"
            assert len({query.legend for query in panel.queries}) == len(panel.queries), "they could not be told apart"


def test_a_legend_names_labels_that_its_series_have(subtests: pytest.Subtests) -> None:
    for panel in PANELS:
        with subtests.test(msg=panel.title):
            for query in panel.queries:
                for label in re.findall(r"\{\{(\w+)\}\}", query.legend):
                    assert re.search(rf"by \([^)]*\b{label}\b[^)]*\)", query.expression), query


def test_what_is_chosen_at_the_top_is_heeded_and_only_that_can_be() -> None:
    chosen = {name for one in PANELS for query in one.queries for name in re.findall(r"\$(\w+)", query.expression)}
    assert chosen - {"__rate_interval", "__range"} == {name for name, *_ in CHOICES}


def test_the_dashboard_and_grafanas_own_data_source_are_about_the_same_one() -> None:
    (source,) = yaml.safe_load((PROVISIONING / "datasources/luminet.yml").read_text())["datasources"]
    assert (source["uid"], source["type"], source["access"]) == (PROVISIONED, "prometheus", "proxy")
    assert DASHBOARD["templating"]["list"][0]["current"]["value"] == source["uid"]
    assert source["jsonData"]["timeInterval"] == CONFIG["global"]["scrape_interval"]
    used = {json.dumps(one["datasource"]) for one in DASHBOARD["panels"] if "datasource" in one}
    assert used == {json.dumps({"type": "prometheus", "uid": "${source}"})}


def test_what_grafana_is_provisioned_with_has_the_fields_it_reads(subtests: pytest.Subtests) -> None:
    """A word it does not know it leaves unheeded, and says nothing."""
    for kind in ("datasources", "dashboards"):
        with subtests.test(msg=kind):
            (file,) = (PROVISIONING / kind).glob("*.yml")
            read = yaml.safe_load(file.read_text())
            assert read.pop("apiVersion") == 1
            assert set(read) <= {"prune", "datasources", "deleteDatasources", "providers"}
            for one in read.get("datasources", ()):
                assert set(one) <= {
                    "name",
                    "uid",
                    "type",
                    "access",
                    "url",
                    "isDefault",
                    "editable",
                    "jsonData",
                    "orgId",
                }
                assert set(one["jsonData"]) <= {"httpMethod", "timeInterval", "prometheusType", "prometheusVersion"}
            for one in read.get("providers", ()):
                known = {
                    "name",
                    "orgId",
                    "folder",
                    "type",
                    "disableDeletion",
                    "updateIntervalSeconds",
                    "allowUiUpdates",
                }
                assert set(one) <= {*known, "options"}
                assert (one["type"], set(one["options"])) == ("file", {"path"})


def test_promtool_takes_what_prometheus_is_told_to_ask() -> None:
    done = judged("check", "config", "--syntax-only", "prometheus.yml", cwd=FOLDER)
    assert done.returncode == 0, done.stdout + done.stderr
    assert CONFIG["rule_files"] == [RULES_FILE]


def test_every_process_of_ours_is_asked_with_the_token_and_is_named_as_rules_and_pictures_know_it() -> None:
    ours = {one["job_name"]: one for one in CONFIG["scrape_configs"] if one["job_name"] != "prometheus"}
    assert set(ours) == {f"luminet-{one}" for one in ("web", "gateway", "engine", "sidecar")}
    assert all(one["authorization"] == {"credentials_file": "/run/luminet/metrics-token"} for one in ours.values())


def test_every_series_of_a_panel_is_seen() -> None:
    """`a or b` shows of b only what has other labels: sums by the same ones are never seen."""
    targets = {one["title"]: one["targets"] for one in DASHBOARD["panels"] if "targets" in one}
    joined = [one["expr"] for asked in targets.values() for one in asked if " or " in one["expr"]]
    assert [one for one in joined if not one.endswith(") or vector(0)") or " by " in one] == []
    running, waiting = targets["Requests running and waiting"]
    assert ("running" in running["expr"], "waiting" in waiting["expr"]) == (True, True)
    assert running["legendFormat"] != waiting["legendFormat"]
    assert running["refId"] != waiting["refId"]


def test_the_command_line_and_the_api_know_every_metric() -> None:
    from typing import get_args

    from controlplane.api.schemas.alerts import MetricName, Unit

    assert set(ALERT_METRICS) == set(METRICS) == set(get_args(MetricName))
    assert {one.unit for one in METRICS.values()} <= set(get_args(get_args(Unit)[0]))


def test_the_docs_name_every_metric_and_every_rule() -> None:
    text = (CHECKOUT / DOCS).read_text()
    for name in (*METRICS, *(one.key for one in BUILT_IN), *(one.name for one in WATCHDOGS)):
        assert f"| `{name}` |" in text
