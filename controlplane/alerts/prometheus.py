"""Rules of Prometheus, and tests of them for promtool, from the same definitions as our own. Pure: text comes out."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from controlplane.alerts.definitions import BUILT_IN, METRICS, WATCHDOGS, BuiltIn, Watchdog

HEAD: Final = "# Made by `make alert-files` from controlplane/alerts/definitions.py: change that, not this.\n"
RULES_FILE: Final = "luminet.rules.yml"
STEP: Final = "1m"
TESTED_AT: Final = "89m"
MANUAL: Final = "docs/alerts.md"


@dataclass(frozen=True, slots=True)
class PrometheusRule:
    name: str
    expression: str
    lasting: str
    severity: str
    summary: str
    description: str
    firing: Mapping[str, str]
    quiet: Mapping[str, str]
    tested_at: str = TESTED_AT


def prometheus_rules() -> list[PrometheusRule]:
    return [*map(_of_built_in, BUILT_IN), *map(_of_watchdog, WATCHDOGS)]


def rules_text() -> str:
    rules = [
        {
            "alert": one.name,
            "expr": one.expression,
            "for": one.lasting,
            "labels": {"severity": one.severity},
            "annotations": {"summary": one.summary, "description": one.description, "manual": MANUAL},
        }
        for one in prometheus_rules()
    ]
    return HEAD + _yaml({"groups": [{"name": "luminet", "interval": "15s", "rules": rules}]})


def tests_text() -> str:
    """For each rule, series for which it fires and such for which it does not."""
    return HEAD + _yaml(
        {
            "rule_files": [RULES_FILE],
            "evaluation_interval": STEP,
            "tests": [one for rule in prometheus_rules() for one in _tests(rule)],
        }
    )


def _of_built_in(one: BuiltIn) -> PrometheusRule:
    about = METRICS[one.metric]
    return PrometheusRule(
        name=one.prometheus_name,
        expression=one.prometheus,
        lasting=one.prometheus_for,
        severity=one.severity,
        summary=f"{one.name}.",
        description=about.next_step,
        firing=one.firing,
        quiet=one.quiet,
        tested_at=one.tested_at,
    )


def _of_watchdog(one: Watchdog) -> PrometheusRule:
    return PrometheusRule(
        name=one.name,
        expression=one.prometheus,
        lasting=one.prometheus_for,
        severity=one.severity,
        summary=f"{one.says}.",
        description=one.next_step,
        firing=one.firing,
        quiet=one.quiet,
    )


def _tests(rule: PrometheusRule) -> Iterator[Mapping[str, Any]]:
    for word, series, count in (("fires", rule.firing, 1), ("is quiet", rule.quiet, 0)):
        yield {
            "name": f"{rule.name} {word}",
            "interval": STEP,
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{rule.name}",alertstate="firing"}}) or vector(0)',
                    "eval_time": rule.tested_at,
                    "exp_samples": [{"labels": "{}", "value": count}],
                }
            ],
        }


def _yaml(value: Any) -> str:
    plain = json.loads(json.dumps(value))  # the same thing twice is written twice, not referred to
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100)
