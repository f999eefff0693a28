"""Prometheus and Grafana of docker-compose.yml: what they are given is there, and what they ask is where it is."""

import re
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from controlplane.stack.credentials import environment_lines
from engine_agent.sidecar.command import parser as agent_parser
from tests.compose.files import CHECKOUT, compose_interpolated
from tests.servers.grafana import ROWS

SECRETS = dict(line.split("=", 1) for line in environment_lines().splitlines())
SERVICES: dict[str, dict[str, Any]] = compose_interpolated({**SECRETS, "LUMINET_BASE_URL": "https://example.com"})[
    "services"
]
PROMETHEUS, GRAFANA = SERVICES["prometheus"], SERVICES["grafana"]
PAGE = (CHECKOUT / "docs/monitoring.md").read_text()
TEXT = (CHECKOUT / "deploy/prometheus/prometheus.yml").read_text()
CONFIG = yaml.safe_load(TEXT)
JOBS = {one["job_name"]: one for one in CONFIG["scrape_configs"]}


def mounted(service: dict[str, Any]) -> dict[str, str]:
    """Files of the checkout, by where the service finds them."""
    pairs = (volume.split(":")[:2] for volume in service["volumes"])
    return {target: source for source, target in pairs if source.startswith("./")}


def option(service: dict[str, Any], name: str) -> str:
    (found,) = (word.partition("=")[2] for word in service["command"] if word.startswith(f"{name}="))
    return str(found)


def test_what_is_mounted_exists_and_nobody_there_may_change_it(subtests: pytest.Subtests) -> None:
    for name, service in {"prometheus": PROMETHEUS, "grafana": GRAFANA}.items():
        with subtests.test(msg=name):
            for target, source in mounted(service).items():
                assert (CHECKOUT / source).exists(), source
                assert f"{source}:{target}:ro" in service["volumes"]


def test_they_run_where_their_profile_is_asked_for(subtests: pytest.Subtests) -> None:
    for name in ("prometheus", "grafana"):
        with subtests.test(msg=name):
            assert SERVICES[name]["profiles"] == ["monitoring"]


def test_prometheus_reads_our_file_and_the_token_that_its_entrypoint_writes_into_memory() -> None:
    folder = mounted(PROMETHEUS)["/etc/prometheus"]
    assert option(PROMETHEUS, "--config.file") == "/etc/prometheus/prometheus.yml"
    assert (CHECKOUT / folder / "prometheus.yml").read_text() == TEXT
    (path,) = {job["authorization"]["credentials_file"] for name, job in JOBS.items() if name != "prometheus"}
    *_, script, zeroth = PROMETHEUS["entrypoint"]
    assert (f"> {path}\n" in script, zeroth) == (True, "prometheus")
    (memory,) = PROMETHEUS["tmpfs"]
    assert memory.startswith(path.rpartition("/")[0] + ":uid=65534,")
    assert PROMETHEUS["user"] == "65534:65534"


def test_it_listens_where_the_fleet_is_not() -> None:
    """What it knows is about every tenant, and it asks nobody who they are."""
    place = option(PROMETHEUS, "--web.listen-address")
    name = place.partition(":")[0]
    assert [network for network, how in PROMETHEUS["networks"].items() if name in how.get("aliases", ())] == [
        "monitoring"
    ]
    assert [one for one, service in SERVICES.items() if "monitoring" in service["networks"]] == [
        "prometheus",
        "grafana",
    ]
    assert JOBS["prometheus"]["static_configs"][0]["targets"] == [place]
    assert f"http://{place}/-/ready" in PROMETHEUS["healthcheck"]["test"]
    (source,) = yaml.safe_load(
        (CHECKOUT / mounted(GRAFANA)["/etc/grafana/provisioning"] / "datasources/luminet.yml").read_text()
    )["datasources"]
    assert urlsplit(source["url"]).netloc == place


def test_it_keeps_what_it_was_told_for_a_time_and_in_bounds() -> None:
    assert option(PROMETHEUS, "--storage.tsdb.retention.time") == "30d"
    assert option(PROMETHEUS, "--storage.tsdb.retention.size") == "8GB"
    assert f"prometheus:{option(PROMETHEUS, '--storage.tsdb.path')}" in PROMETHEUS["volumes"]


def test_what_it_asks_is_on_its_network_listens_there_and_wants_its_token() -> None:
    asked = {(job, *target.split(":")) for job in JOBS for target in targets(job)} - {
        ("prometheus", "prometheus-api", "9090")
    }
    assert {(job, name) for job, name, _ in asked} >= {
        *(("luminet-web", "web"), ("luminet-gateway", "gateway")),
        *(("luminet-engine", "engine"), ("luminet-sidecar", "agent")),
    }
    for _, name, port in asked:
        if name not in SERVICES:
            continue  # of another profile
        service = SERVICES[name]
        assert "fleet" in service["networks"]
        assert service["environment"]["LUMINET_METRICS_TOKEN"] == SECRETS["LUMINET_METRICS_TOKEN"]
        assert port in {*service["command"], *service["environment"].values()}


def targets(job: str) -> list[str]:
    fixed = [target for one in JOBS[job].get("static_configs", ()) for target in one["targets"]]
    named = [f"{name}:{one['port']}" for one in JOBS[job].get("dns_sd_configs", ()) for name in one["names"]]
    return fixed + named


def test_sidecars_listen_where_prometheus_can_reach_them() -> None:
    _, _, *arguments = SERVICES["agent"]["command"]
    options = agent_parser().parse_args(arguments)
    assert (options.status_host, options.status_port) == ("0.0.0.0", 8201)


def test_an_engine_and_its_sidecar_are_called_as_their_agent_is(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [("engine", "agent-1"), ("agent", "agent-1"), ("engine-gpu", "agent-gpu-1")]
    (rule,) = JOBS["luminet-engine"]["relabel_configs"]
    assert JOBS["luminet-sidecar"]["relabel_configs"] == [rule]
    replacement = re.sub(r"\$(\d)", r"\\\1", rule["replacement"])  # as Python writes it
    for name, instance in cases:
        with subtests.test(msg=name):
            match = re.fullmatch(rule["regex"], name)
            assert match is not None
            assert match.expand(replacement) == instance
            if name in SERVICES:
                assert instance in SERVICES[name]["command"]


def test_grafana_finds_our_dashboard_and_lets_nobody_in_without_the_password() -> None:
    (provider,) = yaml.safe_load((CHECKOUT / "deploy/grafana/provisioning/dashboards/luminet.yml").read_text())[
        "providers"
    ]
    home = GRAFANA["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home in mounted(GRAFANA)
    assert home.rpartition("/")[0] == provider["options"]["path"]
    assert GRAFANA["environment"]["GF_SECURITY_ADMIN_PASSWORD"] == SECRETS["GRAFANA_PASSWORD"]
    assert not [name for name in GRAFANA["environment"] if "ANONYMOUS" in name]


def test_the_page_shows_what_another_prometheus_needs_as_ours_has_it() -> None:
    """Of engines and sidecars by file: names of containers mean nothing elsewhere."""
    shown = yaml.safe_load(PAGE.split("```yaml\n# prometheus.yml\n", 1)[1].partition("```")[0])
    for job in shown["scrape_configs"]:
        ours = JOBS[job["job_name"]]
        assert job["authorization"] == ours["authorization"]
        assert job.get("file_sd_configs") == ours.get("file_sd_configs")
    assert {job["job_name"] for job in shown["scrape_configs"]} == set(JOBS) - {"prometheus"}
    assert shown["rule_files"] == CONFIG["rule_files"]


def test_the_page_names_every_row_of_the_dashboard() -> None:
    assert ROWS
    assert [row for row in ROWS if f"| {row} |" not in PAGE] == []
