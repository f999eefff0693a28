"""Rules for Prometheus, the dashboard and the tables of the docs are as the definitions have them, and hold."""

import json
import re
import shutil
from pathlib import Path

import pytest

from controlplane.alerts.definitions import BUILT_IN, METRICS, WATCHDOGS
from controlplane.alerts.generate import CHECKOUT, DOCS, PROMETHEUS, files
from controlplane.alerts.grafana import PANELS
from controlplane.alerts.prometheus import RULES_FILE, prometheus_rules
from controlplane.client.arguments import ALERT_METRICS
from tests.promtool import judged

FOLDER = CHECKOUT / PROMETHEUS
RULES = (FOLDER / RULES_FILE).read_text()
DOCUMENTED = "".join((CHECKOUT / "docs" / name).read_text() for name in ("engine.md", "operations.md", "gateway.md"))
SUFFIXES = re.compile(r"_(bucket|sum|count)$")


@pytest.mark.parametrize("path", files())
def test_what_is_made_of_the_definitions_is_current(path: str) -> None:
    assert (CHECKOUT / path).read_text(encoding="utf-8") == files()[path], "run `make alert-files`"


def test_promtool_takes_the_rules() -> None:
    done = judged("check", "rules", RULES_FILE, cwd=FOLDER)
    assert done.returncode == 0, done.stderr
    assert f"{len(BUILT_IN) + len(WATCHDOGS)} rules found" in done.stdout


def test_every_rule_fires_in_its_scenario_and_is_quiet_in_the_other() -> None:
    done = judged("test", "rules", "luminet.tests.yml", cwd=FOLDER)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_that_never_fire_would_be_found(tmp_path: Path) -> None:
    """Each scenario is about its own rule: with nothing in place of what they ask, every one of them fails."""
    shutil.copy(FOLDER / "luminet.tests.yml", tmp_path)
    spoilt, count = re.subn(r"expr: .*?(?=\n    for:)", "expr: vector(0) > 1", RULES, flags=re.DOTALL)
    (tmp_path / RULES_FILE).write_text(spoilt)
    done = judged("test", "rules", "luminet.tests.yml", cwd=tmp_path)
    assert done.returncode != 0
    assert count == len(prometheus_rules())
    assert [one.name for one in prometheus_rules() if one.name not in done.stdout + done.stderr] == []


def metrics_in(text: str) -> set[str]:
    return {SUFFIXES.sub("", one) for one in re.findall(r"\bluminet_[a-z_]+", text)}


@pytest.mark.parametrize(
    "expression",
    [*(one.expression for one in prometheus_rules()), *(asked for one in PANELS for asked, _ in one.asked)],
)
def test_only_documented_metrics_are_asked_for(expression: str) -> None:
    asked = metrics_in(expression)
    assert asked
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
    dashboard = json.loads((CHECKOUT / "deploy/grafana/luminet.json").read_text())
    assert [one["title"] for one in dashboard["panels"]] == [one.title for one in PANELS]
    places = [(one["gridPos"]["x"], one["gridPos"]["y"]) for one in dashboard["panels"]]
    assert len(set(places)) == len(places)
    assert dashboard["templating"]["list"][0]["type"] == "datasource"


def test_every_series_of_a_panel_is_seen() -> None:
    """`a or b` shows of b only what has other labels: sums by the same ones are never seen."""
    dashboard = json.loads((CHECKOUT / "deploy/grafana/luminet.json").read_text())
    targets = {one["title"]: one["targets"] for one in dashboard["panels"]}
    assert not [title for title, asked in targets.items() if any(" or " in one["expr"] for one in asked)]
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
