"""The web process's metrics for Prometheus. Labels are bounded: route patterns, never paths or people."""

from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess
from prometheus_client.registry import REGISTRY

from controlplane.common.version import version
from controlplane.web.memory import WebMemory

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

http_requests = Counter(
    "luminet_http_requests_total", "Requests answered by the web process.", ["method", "route", "status"]
)
http_seconds = Histogram(
    "luminet_http_request_seconds",
    "From the first byte of a request to the last byte of headers.",
    ["method", "route"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5),
)
sockets_open = Gauge("luminet_live_sockets", "Live sockets open now.", multiprocess_mode="livesum")
sign_ins = Counter("luminet_sign_ins_total", "Attempts to sign in to the web UI.", ["outcome"])
agent_requests = Counter(
    "luminet_agent_requests_total", "Requests of agents: what they were for, what came of them.", ["for", "outcome"]
)
agent_reports = Counter(
    "luminet_agent_reports_total", "Reports that agents had spooled: `new`, `repeated`, `ignored`.", ["kind", "was"]
)
agent_reports_lost = Counter("luminet_agent_reports_lost_total", "Reports whose numbers agents skipped.")
usage_rows = Counter("luminet_usage_rows_total", "Rows of usage that agents told: `counted`, `refused`.", ["was"])
usage_records_lost = Counter(
    "luminet_usage_records_lost_total", "Records of engines' journals that could not be read any more."
)
agent_heartbeats = Counter("luminet_agent_heartbeats_total", "Heartbeats taken.")
agent_commit_seconds = Histogram(
    "luminet_agent_commit_seconds",
    "Writing down reports of any number of agents that came together.",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
)
reconciliation_differences = Gauge(
    "luminet_reconciliation_difference_tokens",
    "Tokens by which two who counted the same are apart, as the newest comparison found.",
    ["between"],
    multiprocess_mode="mostrecent",
)
agents_by_state = Gauge(
    "luminet_agents", "Members of the fleet, by kind and state.", ["kind", "state"], multiprocess_mode="mostrecent"
)
agents_out_of_sync = Gauge(
    "luminet_agents_out_of_sync",
    "Members of the fleet that do not hold what they are to hold.",
    ["kind"],
    multiprocess_mode="mostrecent",
)
rollouts_under_way = Gauge(
    "luminet_rollouts", "Rollouts that have not ended, by state.", ["state"], multiprocess_mode="mostrecent"
)
alerts_firing = Gauge(
    "luminet_alerts_firing",
    "Alerts that fire, by built-in rule; `own`: those of rules that people made.",
    ["rule"],
    multiprocess_mode="mostrecent",
)
alerts_evaluated = Gauge(
    "luminet_alerts_evaluated_timestamp_seconds",
    "When rules were last evaluated; 0: never.",
    multiprocess_mode="mostrecent",
)
alert_deliveries_waiting = Gauge(
    "luminet_alert_deliveries_waiting",
    "Webhooks about alerts that no receiver has taken yet.",
    multiprocess_mode="mostrecent",
)
build_info = Gauge(
    "luminet_build_info", "Always 1; the label says which version.", ["version"], multiprocess_mode="max"
)

# Created at the start, so that a rate counts the first event.
build_info.labels(version()).set(1)
for _outcome in ("signed_in", "refused", "held_back"):
    sign_ins.labels(_outcome)
for _was in ("counted", "refused"):
    usage_rows.labels(_was)

# Functions that refresh the gauges computed elsewhere, called before each scrape.
before_reading: list[Callable[[], None]] = []


def metrics_text(directory: Path | None) -> bytes:
    """Return all metrics, summed over the web processes that share the directory."""
    if directory is None:
        return generate_latest(REGISTRY)
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry, path=str(directory))  # type: ignore[no-untyped-call]
    registry.register(WebMemory(directory))
    return generate_latest(registry)
