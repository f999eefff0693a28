"""Metrics of the prefix index: how prompts were read, how long that took, and which caches the engines report."""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)

Read = Literal["whole", "head", "unread"]


class KnowingMetrics:
    """A separate registry, so that two gateways in one process do not share metrics."""

    def __init__(self, blocks: Callable[[], Mapping[str, int]], reporting: Callable[[], Mapping[str, bool]]) -> None:
        self.registry = registry = CollectorRegistry()
        self._read = Counter(
            "luminet_gateway_prompts_read",
            "Prompts of requests, by how much of them was known when an engine was chosen.",
            ("outcome",),
            registry=registry,
        )
        self._reading = Histogram(
            "luminet_gateway_reading_seconds",
            "What rendering, tokenising and hashing a prompt added to its request.",
            buckets=BUCKETS,
            registry=registry,
        )
        self._tokenising = Histogram(
            "luminet_gateway_tokenising_seconds",
            "Of that and of what is made up for beside, tokenising alone.",
            buckets=BUCKETS,
            registry=registry,
        )
        self._gaps = Counter(
            "luminet_gateway_event_gaps",
            "Snapshots of an engine's cache that replaced what was known of it.",
            ("agent",),
            registry=registry,
        )
        registry.register(_Held(blocks, reporting))

    def read(self, outcome: Read, seconds: float) -> None:
        self._read.labels(outcome).inc()
        self._reading.observe(seconds)

    def tokenising(self, seconds: float) -> None:
        if seconds:
            self._tokenising.observe(seconds)

    def gap(self, agent: str) -> None:
        self._gaps.labels(agent).inc()

    def forget(self, agent: str) -> None:
        self._gaps.remove_by_labels({"agent": agent})


class _Held(Collector):
    def __init__(self, blocks: Callable[[], Mapping[str, int]], reporting: Callable[[], Mapping[str, bool]]) -> None:
        self._blocks, self._heard = blocks, reporting

    def collect(self) -> Iterable[Metric]:
        blocks = GaugeMetricFamily(
            "luminet_gateway_index_blocks", "Blocks an engine is known to hold.", labels=("agent",)
        )
        reporting = GaugeMetricFamily(
            "luminet_gateway_cache_known", "Whether an engine tells what it holds.", labels=("agent",)
        )
        for agent, count in sorted(self._blocks().items()):
            blocks.add_metric((agent,), count)
        for agent, is_reporting in sorted(self._heard().items()):
            reporting.add_metric((agent,), is_reporting)
        yield blocks
        yield reporting
