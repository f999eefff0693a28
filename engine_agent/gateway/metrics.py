"""`/metrics` of a gateway: how it handled requests. The engines count what the cache was worth.

Labels are bounded: agents and models are the fleet's, reasons and outcomes ours; an unserved model is "other".
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from engine_agent.gateway.quotas.gate import Waited
from engine_agent.gateway.quotas.rates import Limit
from engine_agent.gateway.standing import Standing
from engine_agent.process.metrics import process_text

OTHER = "other"
ROUTING_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1)
HEADER_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)

Outcome = Literal["answered", "refused", "broken", "left"]
Retry = Literal["unreachable", "disconnected", "unavailable", "disbelieved"]
# The fleet's own faults and overload, which start at zero; any other code appears when it first occurs.
OWN_FAULTS: Final = ("deadline_exceeded", "draining", "engine_lost", "internal_error", "no_engine", "overloaded")
WAITING_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60)
MOST_ORGANISATIONS = 1_000  # so many organisations get a label


class Observer:
    """A gateway's metrics, in a separate registry so that two gateways in one process do not share them."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._requests = Counter(
            "luminet_gateway_requests",
            "Requests an engine was asked to answer, by how they ended.",
            ("model", "outcome"),
            registry=registry,
        )
        self._errors = Counter(
            "luminet_gateway_errors", "Errors the gateway told its clients, and why.", ("reason",), registry=registry
        )
        self._retries = Counter(
            "luminet_gateway_retries",
            "Attempts at an engine that another one followed.",
            ("reason",),
            registry=registry,
        )
        self._routing = Histogram(
            "luminet_gateway_routing_seconds",
            "From a request's last byte until an engine is asked.",
            buckets=ROUTING_BUCKETS,
            registry=registry,
        )
        self._header = Histogram(
            "luminet_gateway_header_seconds",
            "From a request's last byte until an engine's headers.",
            ("model",),
            buckets=HEADER_BUCKETS,
            registry=registry,
        )

        self._waiting = Histogram(
            "luminet_gateway_waiting_seconds",
            "What requests waited for a seat that found none at once, by how that ended.",
            ("outcome",),
            buckets=WAITING_BUCKETS,
            registry=registry,
        )
        self._limited = Counter(
            "luminet_gateway_limited",
            "Requests refused because their organisation had reached a limit.",
            ("organisation", "limit"),
            registry=registry,
        )
        self._organisations: set[str] = set()
        self._begin_at_zero()

        names = {"predicted": "foretold to be cached", "cached": "that were cached", "prompt": "of these prompts"}
        self._tokens = {
            name: Counter(
                f"luminet_gateway_{name}_tokens",
                f"Of prompts with a prediction, tokens {description}.",
                registry=registry,
            )
            for name, description in names.items()
        }

    def _begin_at_zero(self) -> None:
        """Create these series at zero, so that a rate over them is right from the first event on."""
        for reason in OWN_FAULTS:
            self._errors.labels(reason)
        for retry in get_args(Retry):
            self._retries.labels(retry)
        for outcome in get_args(Waited):
            self._waiting.labels(outcome)
        for limit in get_args(Limit):
            self._limited.labels(OTHER, limit)

    def foretold(self, predicted: int, cached: int, prompt: int) -> None:
        for name, tokens in (("predicted", predicted), ("cached", cached), ("prompt", prompt)):
            self._tokens[name].inc(tokens)

    def ended(self, model: str, outcome: Outcome) -> None:
        self._requests.labels(model, outcome).inc()

    def refused(self, reason: str) -> None:
        self._errors.labels(reason).inc()

    def retried(self, reason: Retry) -> None:
        self._retries.labels(reason).inc()

    def routed(self, seconds: float) -> None:
        self._routing.observe(seconds)

    def answering(self, model: str, seconds: float) -> None:
        self._header.labels(model).observe(seconds)

    def waited(self, seconds: float, outcome: Waited) -> None:
        self._waiting.labels(outcome).observe(seconds)

    def limited(self, organisation: str, limit: Limit) -> None:
        if len(self._organisations) < MOST_ORGANISATIONS:
            self._organisations.add(organisation)
        self._limited.labels(organisation if organisation in self._organisations else OTHER, limit).inc()

    def exposition(
        self, engines: Mapping[str, Standing], collectors: Iterable[Collector], *, waiting: int = 0
    ) -> bytes:
        """Return all metrics as text, including those of other components in this process."""
        own_metrics = generate_latest(_Both(self.registry, engines, waiting))
        return b"".join([own_metrics, *(generate_latest(collector) for collector in collectors), process_text()])


def model_label(model: str, known: Collection[str]) -> str:
    return model if model in known else OTHER


class _Both(Collector):
    def __init__(self, registry: CollectorRegistry, engines: Mapping[str, Standing], waiting: int) -> None:
        self._registry, self._engines, self._waiting = registry, engines, waiting

    def collect(self) -> Iterable[Metric]:
        yield from self._registry.collect()
        running = GaugeMetricFamily(
            "luminet_gateway_running_requests", "Requests under way at an engine.", labels=("agent",)
        )
        reachable = GaugeMetricFamily(
            "luminet_gateway_engine_up", "Whether an engine answers this gateway.", labels=("agent",)
        )
        share = GaugeMetricFamily(
            "luminet_gateway_engine_share", "Of what an engine would get, what it may get now.", labels=("agent",)
        )
        for agent, engine_load in sorted(self._engines.items()):
            running.add_metric((agent,), engine_load.in_flight)
            reachable.add_metric((agent,), engine_load.is_reachable)
            share.add_metric((agent,), engine_load.share if engine_load.is_wanted else 0)
        yield GaugeMetricFamily(
            "luminet_gateway_waiting_requests", "Requests that wait for a seat at an engine.", value=self._waiting
        )
        yield share
        yield running
        yield reachable
