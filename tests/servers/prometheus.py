"""A real Prometheus, as deploy/prometheus configures it, beside processes of this machine: asked as Grafana asks it."""

import json
import math
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

import yaml

from tests.servers.promtool import promtool
from tests.suite import outliving
from tests.support.ports import free_port
from tests.support.waiting import wait_until

FOLDER: Final = Path(__file__).parents[2] / "deploy" / "prometheus"
SCRAPE_SECONDS: Final = 2
# What Grafana fills in: here of so much time as a test takes.
FILLED: Final = {"$__rate_interval": "30s", "$__range": "60s"}
Targets = Mapping[str, Sequence[Mapping[str, str]]]  # by job: each an `address`, and its labels


@dataclass(frozen=True, slots=True)
class Prometheus:
    url: str
    folder: Path

    def get(self, path: str, **query: str) -> Any:
        """What `/api/v1` answers. Raises ValueError with its words where it refuses."""
        named = {name.rstrip("_") if name != "match" else "match[]": value for name, value in query.items()}
        try:
            with _direct.open(f"{self.url}/api/v1/{path}?{urlencode(named)}", timeout=30) as answer:
                return json.load(answer)["data"]
        except HTTPError as refused:
            with refused:
                raise ValueError(refused.read().decode()) from refused

    def values(self, expression: str) -> list[float]:
        """The newest number of each series, without those that are none."""
        found = [float(one["value"][1]) for one in self.get("query", query=expression)["result"]]
        return [one for one in found if not math.isnan(one)]

    def targets(self) -> list[Any]:
        found: list[Any] = self.get("targets", state="active")["activeTargets"]
        return found

    def rules(self) -> list[Any]:
        return [rule for group in self.get("rules")["groups"] for rule in group["rules"]]

    def is_ready(self) -> bool:
        try:
            with _direct.open(f"{self.url}/-/ready", timeout=5):
                return True
        except OSError:
            return False


_direct = build_opener(ProxyHandler({}))


@contextmanager
def prometheus_running(folder: Path, targets: Targets, *, token: str) -> Iterator[Prometheus]:
    """It asks these, every 2 seconds; all else of its configuration is ours as it is."""
    port = free_port()
    own = {"address": f"127.0.0.1:{port}", "instance": "prometheus"}
    _configure(folder, {**targets, "prometheus": [own]}, token=token)
    command = [
        str(promtool().with_name("prometheus")),
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=data",
        f"--web.listen-address=localhost:{port}",  # by name, as in docker-compose.yml
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    outliving.name(process.pid)
    running = Prometheus(f"http://127.0.0.1:{port}", folder)
    try:
        wait_until(running.is_ready, details=lambda: (folder / "log").read_text(), process=process)
        yield running
    finally:
        process.terminate()
        process.wait(30)


def filled(expression: str, chosen: Mapping[str, str]) -> str:
    """A query as Grafana sends it, with what was chosen at the top of the page."""
    for name, value in {**FILLED, **{f"${name}": value for name, value in chosen.items()}}.items():
        expression = expression.replace(name, value)
    assert "$" not in expression, f"nobody fills this in: {expression}"
    return expression


def _configure(folder: Path, targets: Targets, *, token: str) -> None:
    shutil.copytree(FOLDER, folder, dirs_exist_ok=True)
    secret = folder / "metrics-token"
    secret.touch(mode=0o600)
    secret.write_text(token)
    config = yaml.safe_load((folder / "prometheus.yml").read_text())
    config["global"] = dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), f"{SCRAPE_SECONDS}s")
    for job in config["scrape_configs"]:
        if "authorization" in job:
            job["authorization"]["credentials_file"] = secret.name
        for name in [name for name in job if name.endswith("_sd_configs")]:
            del job[name]
        job["static_configs"] = [
            {"targets": [one["address"]], "labels": {name: value for name, value in one.items() if name != "address"}}
            for one in targets[job["job_name"]]
        ]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    rules = yaml.safe_load((folder / "luminet.rules.yml").read_text())
    for group in rules["groups"]:
        group["interval"] = f"{SCRAPE_SECONDS}s"
        for rule in group["rules"]:
            rule["for"] = f"{min(SCRAPE_SECONDS, _seconds(rule['for']))}s"
    (folder / "luminet.rules.yml").write_text(yaml.safe_dump(rules))


def _seconds(duration: str) -> int:
    return int(duration[:-1]) * {"s": 1, "m": 60}[duration[-1]]
