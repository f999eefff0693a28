"""A whole `make up` under its demo's traffic, a real Prometheus that asks it as we configure it, and every picture of
the dashboard: nothing is down, nothing is misspelt, and no picture is empty."""

import os
import signal
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from controlplane.common.health import http_get
from controlplane.stack.config import read_stack_config
from tests.e2e.conftest import METRICS_TOKEN
from tests.e2e.organisations import demo_traffic_switch
from tests.e2e.stack import Stack
from tests.servers.grafana import CHOICES, PANELS
from tests.servers.prometheus import Prometheus, filled, prometheus_running
from tests.servers.promtool import complaints
from tests.support.waiting import wait_until

FACES = ("luminet-web", "luminet-gateway", "luminet-engine", "luminet-sidecar")
QUERIES = {
    f"{panel['id']} {panel['title']}-{target['refId']}": target["expr"]
    for panel in PANELS
    for target in panel["targets"]
}
CHOSEN = 'model=~"$model",instance=~"$engine",organisation=~"$organisation"'
OF_VLLM = "metric names should not contain ':'"  # which is how vLLM calls them, and so do we what is the same


@pytest.fixture(scope="module")
def stack(busy_stack: Stack) -> Stack:
    demo_traffic_switch(busy_stack, is_on=True)
    return busy_stack


@pytest.fixture(scope="module")
def faces(stack: Stack) -> Mapping[str, list[dict[str, str]]]:
    """By job: one agent as DNS names it in a network of containers, one as it stands in targets/."""
    first, second = read_stack_config({"LUMINET_ENGINE_PORT": str(stack.engine_port)}).agents
    return {
        "luminet-web": [at(stack.port, instance="web")],
        "luminet-gateway": [at(stack.gateway_port, instance="gateway-1")],
        "luminet-engine": [at(first.port, __meta_dns_name="engine"), at(second.port, instance="agent-2")],
        "luminet-sidecar": [at(first.status_port, __meta_dns_name="agent"), at(second.status_port, instance="agent-2")],
    }


def at(port: int, **labels: str) -> dict[str, str]:
    return {"address": f"127.0.0.1:{port}", **labels}


@pytest.fixture(scope="module")
def prometheus(
    stack: Stack, faces: Mapping[str, list[dict[str, str]]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    with prometheus_running(tmp_path_factory.mktemp("prometheus"), faces, token=METRICS_TOKEN) as running:
        yield running


def test_every_process_is_up_and_called_by_its_name(prometheus: Prometheus) -> None:
    wanted = {
        ("prometheus", "prometheus"),
        ("luminet-web", "web"),
        ("luminet-gateway", "gateway-1"),
        *((f"luminet-{part}", f"agent-{number}") for part in ("engine", "sidecar") for number in (1, 2)),
    }
    wait_until(lambda: up(prometheus) == wanted, details=prometheus.targets)
    assert len(prometheus.targets()) == len(wanted)


def up(prometheus: Prometheus) -> set[tuple[str, str]]:
    labels = [one["labels"] for one in prometheus.targets() if one["health"] == "up"]
    return {(one["job"], one["instance"]) for one in labels}


def test_metrics_are_told_to_no_stranger(faces: Mapping[str, list[dict[str, str]]], subtests: pytest.Subtests) -> None:
    for job in FACES:
        with subtests.test(msg=job):
            assert faces[job]
            for one in faces[job]:
                for bearer in (None, METRICS_TOKEN[:-1]):
                    with pytest.raises(OSError, match="401"):
                        http_get(f"http://{one['address']}/metrics", bearer=bearer)


def test_what_each_face_tells_is_named_as_prometheus_wants_it(
    prometheus: Prometheus, faces: Mapping[str, list[dict[str, str]]], subtests: pytest.Subtests
) -> None:
    """After traffic, so that all of it is there. vLLM's names have a colon, which is let pass, and nothing else is."""
    wait_until(lambda: prometheus.values("sum(luminet_requests_total) > 4"), details=lambda: "no traffic")
    for job in FACES:
        with subtests.test(msg=job):
            assert faces[job]
            for one in faces[job]:
                text = http_get(f"http://{one['address']}/metrics", bearer=METRICS_TOKEN).decode()
                assert text.count("# TYPE luminet_") > 5
                assert [line for line in complaints(text) if not is_of_vllm(line)] == []


def is_of_vllm(complaint: str) -> bool:
    return complaint.startswith("vllm:") and complaint.endswith(OF_VLLM)


def test_every_rule_is_evaluated_without_an_error(prometheus: Prometheus) -> None:
    wait_until(lambda: all(one["health"] != "unknown" for one in prometheus.rules()), details=prometheus.rules)
    assert {one["name"]: one.get("lastError", "") for one in prometheus.rules() if one["health"] != "ok"} == {}
    assert len(prometheus.rules()) >= 15


def test_there_is_something_to_choose_at_the_top(prometheus: Prometheus, subtests: pytest.Subtests) -> None:
    assert CHOICES
    for name, (metric, label) in CHOICES.items():
        with subtests.test(msg=name):
            wait_until(lambda: prometheus.get(f"label/{label}/values", match=metric), details=lambda: f"no {name}")  # noqa: B023


def test_no_picture_is_empty(stack: Stack, prometheus: Prometheus, subtests: pytest.Subtests) -> None:
    """Whatever is chosen, and a number in it: a picture of nothing but errors is one of zeros while there are none."""
    assert len(QUERIES) > 50
    for name, expression in QUERIES.items():
        with subtests.test(msg=name):
            see_numbers(stack, prometheus, filled(expression, dict.fromkeys(CHOICES, ".*")))


def see_numbers(stack: Stack, prometheus: Prometheus, asked: str) -> None:
    def are_there() -> bool:
        http_get(f"{stack.web}/sign-in")  # somebody looks at pages
        return prometheus.values(asked) != []

    wait_until(are_there, details=lambda: f"{asked}\n{prometheus.get('query', query=asked)}")


def test_what_is_chosen_at_the_top_leaves_out_the_rest(prometheus: Prometheus) -> None:
    chosen: dict[str, Any] = {"model": ".*", "gateway": ".*", "organisation": "acme", "engine": "agent-1"}
    asked = f"sum by (instance, organisation) (luminet_prompt_tokens_total{{{CHOSEN}}})"
    wait_until(lambda: prometheus.values(filled(asked, chosen)), details=lambda: "agent-1 had nothing of acme's")
    found = prometheus.get("query", query=filled(asked, chosen))["result"]
    assert [one["metric"] for one in found] == [{"instance": "agent-1", "organisation": "acme"}]


def test_a_process_that_does_not_answer_is_an_alert_until_it_does(stack: Stack, prometheus: Prometheus) -> None:
    """The last one, because it stops a sidecar in its tracks."""
    pid = stack.status()["agent-2"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: firing(prometheus) == {("luminet-sidecar", "agent-2")}, details=lambda: alerts(prometheus))
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: firing(prometheus) == set(), details=lambda: alerts(prometheus))


def alerts(prometheus: Prometheus) -> list[Any]:
    found: list[Any] = prometheus.get("alerts")["alerts"]
    return found


def firing(prometheus: Prometheus) -> set[tuple[str, str]]:
    labels = [one["labels"] for one in alerts(prometheus) if one["state"] == "firing"]
    return {(one["job"], one["instance"]) for one in labels if one["alertname"] == "LuminetTargetDown"}
