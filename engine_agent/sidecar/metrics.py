"""A sidecar's Prometheus metrics. Each sidecar has its own registry, because a process can run several."""

from collections.abc import Iterable
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

from engine_agent.contracts.wire import Report
from engine_agent.process.metrics import process_text
from engine_agent.sidecar.effects import Outcome

UNSETTLED = "unsettled"  # the command had no outcome within the time that the worker waits
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 30)


class SidecarMetrics:
    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._commands = Counter(
            "luminet_sidecar_commands", "Commands that came, by what became of them.", ("outcome",), registry=registry
        )
        for outcome in (*get_args(Outcome), UNSETTLED):  # a rate needs the series from before the first command
            self._commands.labels(outcome)
        self._settling = Histogram(
            "luminet_sidecar_command_seconds", "From a command to its end.", buckets=SECONDS, registry=registry
        )
        self._applying = Histogram(
            "luminet_sidecar_apply_seconds", "To obey a snapshot and keep it.", buckets=SECONDS, registry=registry
        )
        self._told = Counter(
            "luminet_sidecar_reports", "Facts spooled for the control plane.", ("kind",), registry=registry
        )
        self._rows_refused = Counter(
            "luminet_sidecar_refused_rows", "Rows of usage that the control plane would not count.", registry=registry
        )
        self._sends = Counter(
            "luminet_sidecar_sends", "Requests to the control plane with reports.", ("outcome",), registry=registry
        )
        self._spooled = Gauge("luminet_sidecar_spooled_reports", "Facts not acknowledged yet.", registry=registry)
        self._generation = Gauge("luminet_sidecar_generation", "Of the state that is held.", registry=registry)
        self._skew = Gauge(
            "luminet_sidecar_clock_skew_seconds", "How far this clock is behind the control plane's.", registry=registry
        )
        self._heard_at = Gauge(
            "luminet_sidecar_heard_timestamp_seconds", "When the control plane last answered.", registry=registry
        )

    def command(self, outcome: str, seconds: float) -> None:
        self._commands.labels(outcome).inc()
        self._settling.observe(seconds)

    def applied(self, generation: int, seconds: float) -> None:
        self._applying.observe(seconds)
        self._generation.set(generation)

    def told(self, reports: Iterable[Report], spooled: int) -> None:
        for report in reports:
            self._told.labels(report.kind).inc()
        self._spooled.set(spooled)

    def sent(self, outcome: str, spooled: int) -> None:
        self._sends.labels(outcome).inc()
        self._spooled.set(spooled)

    def rows_refused(self, count: int) -> None:
        self._rows_refused.inc(count)

    def heard(self, at: float, skew_seconds: float) -> None:
        self._heard_at.set(at)
        self._skew.set(skew_seconds)

    def exposition(self) -> bytes:
        return generate_latest(self.registry) + process_text()
