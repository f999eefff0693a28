"""Prometheus' rules, Grafana's dashboard and the tables of docs/alerts.md agree with the definitions, and hold."""

import json
import re

import pytest
import yaml

from controlplane.alerts.definitions import BUILT_IN, METRICS, BuiltIn, value_words
from controlplane.client.alerts import METRICS as ALERT_METRICS
from tests.compose.files import CHECKOUT
from tests.servers.grafana import CHOICES, DASHBOARD, PANELS, SOURCE, TARGETS
from tests.servers.prometheus_rules import FOLDER, RULES, RULES_FILE, TESTS_FILE
from tests.servers.promtool import judged

PAGES = ("engine.md", "operations.md", "gateway.md", "routing.md", "canary.md")
DOCUMENTED = "".join((CHECKOUT / "docs" / name).read_text() for name in PAGES)
PAGE = (CHECKOUT / "docs/alerts.md").read_text()
PROVISIONING = CHECKOUT / "deploy/grafana/provisioning"
CONFIG = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
UNITS = {"short", "percentunit", "reqps", "s", "bytes"}  # as Grafana names them
SUFFIXES = re.compile(r"_(bucket|sum|count)$")
# What of a built-in rule Prometheus can see for itself; of the others it asks how many of Luminet's own alerts fire.
SEEN = {
    "pool_full": ["> 0.9"],
    "hit_ratio_low": ["< 0.5", ">= 10000"],
    "evictions_high": ["> 3 *"],
    "preemptions": ["> 0"],
    "isolation_timing": ["> 0.55", "< 0.45"],  # of a ROC area, whose middle is 0.5
}


def prometheus_name(one: BuiltIn) -> str:
    return "Luminet" + "".join(part.capitalize() for part in one.key.split("_"))


def minutes(seconds: int) -> str:
    return f"{seconds // 60}m" if seconds else "0s"


def limits(one: BuiltIn) -> list[str]:
    """As its expression has them."""
    if one.key == "isolation_timing":
        return [f"> {0.5 + one.threshold:g}", f"< {0.5 - one.threshold:g}"]
    times = " *" if one.metric == "evictions" else ""
    least = [f">= {one.least_prompt_tokens}"] if one.least_prompt_tokens else []
    return [f"{'>' if one.comparison == 'above' else '<'} {one.threshold:g}{times}", *least]


def test_promtool_takes_the_rules() -> None:
    done = judged("check", "rules", RULES_FILE, cwd=FOLDER)
    assert done.returncode == 0, done.stderr
    assert f"{len(RULES)} rules found" in done.stdout


def test_every_built_in_rule_is_one_of_prometheus(subtests: pytest.Subtests) -> None:
    for one in BUILT_IN:
        with subtests.test(msg=one.key):
            rule = RULES[prometheus_name(one)]
            assert rule["labels"] == {"severity": one.severity}
            summary, description = f"{one.name}.", METRICS[one.metric].next_step
            assert rule["annotations"] == {"summary": summary, "description": description, "manual": "docs/alerts.md"}
            if one.key in SEEN:
                assert SEEN[one.key] == limits(one)
                assert all(limit in rule["expr"] for limit in SEEN[one.key])
                assert rule["for"] == minutes(one.for_seconds)
            else:
                assert rule["expr"] == f'max(luminet_alerts_firing{{rule="{one.key}"}}) > 0'
                assert rule["for"] == "0s"


def test_rule_has_severity_and_advice(subtests: pytest.Subtests) -> None:
    for name, rule in RULES.items():
        with subtests.test(msg=name):
            assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
            assert rule["labels"]["severity"] in {"page", "ticket"}
            assert set(rule["annotations"]) == {"summary", "description", "manual"}
            assert rule["annotations"]["summary"].endswith(".")
            assert (CHECKOUT / rule["annotations"]["manual"]).exists()


def test_every_rule_has_two_scenarios() -> None:
    found = {one["name"]: one for one in yaml.safe_load((FOLDER / TESTS_FILE).read_text())["tests"]}
    assert set(found) == {f"{name} {how}" for name in RULES for how in ("fires", "is quiet")}
    for name in RULES:
        for how, count in (("fires", 1), ("is quiet", 0)):
            (asked,) = found[f"{name} {how}"]["promql_expr_test"]
            assert asked["expr"] == f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)'
            assert [one["value"] for one in asked["exp_samples"]] == [count]


def metrics_in(text: str) -> set[str]:
    return {SUFFIXES.sub("", one) for one in re.findall(r"\b(?:luminet|process)_[a-z_]+", text)}


def test_only_documented_metrics_are_asked_for(subtests: pytest.Subtests) -> None:
    cases: list[str] = [
        *(rule["expr"] for rule in RULES.values()),
        *(target["expr"] for target in TARGETS),
    ]
    for expression in cases:
        with subtests.test(msg=expression):
            asked = metrics_in(expression)
            assert asked or re.search(r"\b(up|ALERTS)\{", expression)  # Prometheus' own
            assert {one for one in asked if f"`{one}" not in DOCUMENTED} == set()


def test_built_in_rules_are_about_what_is_measured_and_can_end() -> None:
    for one in BUILT_IN:
        assert one.metric in METRICS
        assert one.clears_at <= one.threshold if one.comparison == "above" else one.clears_at >= one.threshold
        assert one.clear_for_seconds > 0


def test_the_dashboard_is_one_that_can_be_imported() -> None:
    assert len(PANELS) > 30
    assert len({one["id"] for one in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert SOURCE["type"] == "datasource"


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
        with subtests.test(msg=panel["title"]):
            assert panel["description"].endswith(".")
            assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
            legends = [target.get("legendFormat", "") for target in panel["targets"]]
            assert all(legends) or panel["type"] == "stat"
            assert len(set(legends)) == len(legends), "they could not be told apart"
            assert len({target["refId"] for target in panel["targets"]}) == len(legends)


def test_a_legend_names_labels_that_its_series_have(subtests: pytest.Subtests) -> None:
    for panel in PANELS:
        with subtests.test(msg=panel["title"]):
            for target in panel["targets"]:
                for label in re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")):
                    assert re.search(rf"by \([^)]*\b{label}\b[^)]*\)", target["expr"]), target


def test_what_is_chosen_at_the_top_is_heeded_and_only_that_can_be() -> None:
    chosen = {name for target in TARGETS for name in re.findall(r"\$(\w+)", target["expr"])}
    assert chosen - {"__rate_interval", "__range"} == CHOICES.keys()


def test_the_dashboard_and_grafanas_own_data_source_are_about_the_same_one() -> None:
    (source,) = yaml.safe_load((PROVISIONING / "datasources/luminet.yml").read_text())["datasources"]
    assert (source["uid"], source["type"], source["access"]) == (SOURCE["current"]["value"], "prometheus", "proxy")
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


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def fires(one: BuiltIn) -> str:
    lasting = f" for {value_words('seconds', one.for_seconds)}" if one.for_seconds else ""
    least = f", with at least {one.least_prompt_tokens:,} prompt tokens" if one.least_prompt_tokens else ""
    return f"`{one.metric}` {one.comparison} {value_words(METRICS[one.metric].unit, one.threshold)}{lasting}{least}"


def is_over(one: BuiltIn) -> str:
    back = "at most" if one.comparison == "above" else "at least"
    value, lasting = value_words(METRICS[one.metric].unit, one.clears_at), value_words("seconds", one.clear_for_seconds)
    return f"{back} {value} for {lasting}"


def test_the_docs_have_every_metric_and_every_rule(subtests: pytest.Subtests) -> None:
    ours = {prometheus_name(one): f"as `{one.key}`" for one in BUILT_IN}
    rows = [
        *(
            row(f"`{one.name}`", one.subject, one.unit, "yes" if one.is_for_customers else "–", one.about)
            for one in METRICS.values()
        ),
        *(row(f"`{one.key}`", one.name, fires(one), is_over(one), METRICS[one.metric].next_step) for one in BUILT_IN),
        *(
            row(f"`{name}`", ours.get(name, rule["annotations"]["summary"]), rule["for"])
            for name, rule in RULES.items()
        ),
    ]
    for one in rows:
        with subtests.test(msg=one):
            assert one in PAGE
    assert PAGE.count("\n| `") == len(rows), "a row is about something that is gone"
