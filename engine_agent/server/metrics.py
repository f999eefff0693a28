"""`/metrics`: vLLM's names for equal metrics, ours otherwise. Counters rise with the journal's records.

Labels are bounded: models, formats and reasons are few; namespaces beyond a limit are counted as "other". Probes and
pins' warm-ups belong to no customer and are left out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from engine_agent.contracts.identity import Identity
from engine_agent.journal.records import Closed, Opened
from engine_agent.process.metrics import process_text
from engine_agent.server.counters import EngineTotals, ScopeCounters
from engine_agent.server.engine_metrics import MOST_NAMESPACES, engine_families

OTHER = "other"
# Errors of the engine itself, including overload. Other codes get a series when they first occur.
OWN_FAULTS = ("deadline_exceeded", "draining", "engine_failed", "engine_unavailable", "internal_error", "overloaded")
TTFT_BUCKETS = (0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160)
TOKEN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 10)
_TENANT = ("organisation", "namespace", "model")


class Observer:
    """Counts what the server reports to its clients, in its own registry: a process may have two engines."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._tenants: set[tuple[str, str]] = set()
        self.counters = ScopeCounters(MOST_NAMESPACES)
        self.totals = EngineTotals()
        self.registry = registry = CollectorRegistry()
        vllm = ("model_name",)
        self._queries = Counter(
            "vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", vllm, registry=registry
        )
        self._hits = Counter(
            "vllm:prefix_cache_hits", "Prompt tokens served from the prefix cache.", vllm, registry=registry
        )
        self._generated = Counter("vllm:generation_tokens", "Tokens generated.", vllm, registry=registry)
        self._ttft = Histogram(
            "vllm:time_to_first_token_seconds",
            "From a request's last byte to its first token.",
            vllm,
            buckets=TTFT_BUCKETS,
            registry=registry,
        )
        self._between = Histogram(
            "vllm:inter_token_latency_seconds",
            "Between two tokens of one choice.",
            vllm,
            buckets=TOKEN_BUCKETS,
            registry=registry,
        )
        self._prompt = Counter(
            "luminet_prompt_tokens", "Prompt tokens admitted.", (*_TENANT, "kv_dtype"), registry=registry
        )
        self._cached = Counter(
            "luminet_cached_tokens", "Of those, served from the cache.", (*_TENANT, "kv_dtype"), registry=registry
        )
        self._missed = Counter(
            "luminet_missed_tokens", "Of those, not served from it, and why.", (*_TENANT, "reason"), registry=registry
        )
        self._requests = Counter(
            "luminet_requests",
            "Requests whose headers left, by how they ended.",
            (*_TENANT, "outcome"),
            registry=registry,
        )
        self._answered = Counter("luminet_generated_tokens", "Tokens generated.", _TENANT, registry=registry)
        self._errors = Counter(
            "luminet_request_errors", "Requests refused or broken off, and why.", ("model", "reason"), registry=registry
        )
        self._ttft_by_cache = Histogram(
            "luminet_time_to_first_token_seconds",
            "From a request's last byte to its first token, by what its prompt found in the cache.",
            ("model", "cache"),
            buckets=TTFT_BUCKETS,
            registry=registry,
        )
        self._between_by_cache = Histogram(
            "luminet_inter_token_latency_seconds",
            "Between two tokens of one choice, by what the prompt found in the cache.",
            ("model", "cache"),
            buckets=TOKEN_BUCKETS,
            registry=registry,
        )
        self._queries.labels(model)  # present from the start, at 0: a rate needs two points
        self._hits.labels(model)
        for reason in OWN_FAULTS:
            self._errors.labels(model, reason)

    def opened(self, record: Opened) -> None:
        """Count a request when its headers are sent."""
        if record.kind != "customer":
            return
        tenant = self._tenant(record)
        self.counters.opened(record)
        self._queries.labels(self._model).inc(record.prompt_tokens)
        self._hits.labels(self._model).inc(record.cached_tokens)
        self._prompt.labels(*tenant, record.kv_dtype).inc(record.prompt_tokens)
        self._cached.labels(*tenant, record.kv_dtype).inc(record.cached_tokens)
        for reason, tokens in record.missed.items():
            self._missed.labels(*tenant, reason).inc(tokens)

    def first_token(self, record: Opened, seconds: float) -> None:
        if record.kind == "customer":
            self.counters.first_token(record, seconds)
            self._ttft.labels(self._model).observe(seconds)
            self._ttft_by_cache.labels(self._model, cache_use(record)).observe(seconds)

    def tokens(self, record: Opened, gaps: Sequence[float]) -> None:
        """Count the seconds between a request's tokens, for each choice separately."""
        if record.kind != "customer":
            return
        plain = self._between.labels(self._model)
        by_cache = self._between_by_cache.labels(self._model, cache_use(record))
        for seconds in gaps:
            plain.observe(seconds)
            by_cache.observe(seconds)

    def closed(self, record: Opened, closed: Closed) -> None:
        if record.kind == "customer":
            tenant = self._tenant(record)
            self.counters.closed(record, closed)
            self._requests.labels(*tenant, closed.outcome).inc()
            self._generated.labels(self._model).inc(closed.generated_tokens)
            self._answered.labels(*tenant).inc(closed.generated_tokens)

    def failed(self, reason: str) -> None:
        """Count an error response, or an error as a stream's last event."""
        self._errors.labels(self._model, reason).inc()

    def unanswered(self, identity: Identity) -> None:
        """Count a request that failed by our fault before its headers could be sent."""
        if identity.kind == "customer":
            self.counters.unanswered(identity.organisation_id, identity.namespace_id)

    def exposition(self, stats: Mapping[str, Any] | None, *, journal_bytes: int) -> bytes:
        """Return all metrics as text. `stats` are the engine's own, None if it did not answer."""
        families = engine_families(self._model, stats, journal_bytes=journal_bytes)
        return generate_latest(_Both(self.registry, families)) + process_text()

    def _tenant(self, record: Opened) -> tuple[str, str, str]:
        name = (record.organisation, record.namespace)
        if name not in self._tenants:
            if len(self._tenants) >= MOST_NAMESPACES:
                return OTHER, OTHER, self._model
            self._tenants.add(name)
        return (*name, self._model)


def cache_use(record: Opened) -> str:
    """Return how much of the prompt was cached. `hit`: every full block; a partial block is always computed."""
    if record.cached_tokens == 0:
        return "miss"
    return "hit" if record.miss_reason == "none" else "partial"


class _Both(Collector):
    """The counters here and the engine's current statistics, as one registry."""

    def __init__(self, registry: CollectorRegistry, families: Iterable[Metric]) -> None:
        self._registry, self._families = registry, families

    def collect(self) -> Iterator[Metric]:
        yield from self._registry.collect()
        yield from self._families
