"""The engine's statistics as metrics. Created at every scrape, so nothing here can be out of date."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

MOST_NAMESPACES = 1_000
WARNINGS = ("answer_cut", "damaged_block", "preemption")  # present from the start: a rate needs two points
GONE = ("expired", "evicted", "quota", "purged", "disabled")
_VLLM, _OURS = ("model_name",), ("model",)
_TENANT = ("organisation", "namespace", "model")
_Samples = Sequence[tuple[tuple[str, ...], float]]


def engine_families(model: str, stats: Mapping[str, Any] | None, *, journal_bytes: int) -> Iterator[Metric]:
    """Iterate over the metrics. `stats` are the backend's, None if it did not answer."""
    yield _gauge("luminet_engine_up", "Whether the engine answers.", _OURS, [((model,), stats is not None)])
    yield _gauge("luminet_journal_bytes", "Size of the journal on disk.", _OURS, [((model,), journal_bytes)])
    if stats is None:
        return
    yield from _work(model, stats)
    yield from _pools(model, stats)
    yield from _namespaces(model, stats["namespaces"][:MOST_NAMESPACES])
    yield from _displaced(model, stats["evictions"])


def _work(model: str, stats: Mapping[str, Any]) -> Iterator[Metric]:
    pool = stats["pool"]
    # As in vLLM: an idle block, cached only for later hits, counts as free.
    usage = (pool["used_bytes"] - pool["evictable_bytes"]) / pool["capacity_bytes"]
    yield _gauge("vllm:kv_cache_usage_perc", "Share of the pool in use, 1 is all.", _VLLM, [((model,), usage)])
    yield _gauge("vllm:num_requests_running", "Requests that run.", _VLLM, [((model,), stats["running"])])
    yield _gauge("vllm:num_requests_waiting", "Requests that wait.", _VLLM, [((model,), stats["waiting"])])
    yield _counter("vllm:num_preemptions", "Requests preempted.", _VLLM, [((model,), stats["preemptions"])])
    yield _counter("luminet_engine_steps", "Steps of the engine.", _OURS, [((model,), stats["steps"])])
    computed = [((model,), stats["computed_tokens"])]
    yield _counter("luminet_computed_tokens", "Tokens whose keys and values were computed.", _OURS, computed)
    counts = {**dict.fromkeys(WARNINGS, 0), **stats.get("warning_counts", {})}
    warnings = [((model, kind), count) for kind, count in counts.items()]
    yield _counter("luminet_engine_warnings", "What the engine warned of.", ("model", "reason"), warnings)


def _pools(model: str, stats: Mapping[str, Any]) -> Iterator[Metric]:
    tiers = {"device": stats["pool"], "host": stats["host"]}
    for field, description in (
        ("capacity_bytes", "How much a tier's pool can hold."),
        ("used_bytes", "Of that, what holds blocks."),
        ("evictable_bytes", "Of that, what would be given up for others."),
        ("waste_ratio", "Share of what sequences hold that no token will fill."),
    ):
        samples = [((model, tier), pool[field]) for tier, pool in tiers.items() if pool is not None]
        yield _gauge(f"luminet_pool_{field}", description, ("model", "tier"), samples)


def _namespaces(model: str, namespaces: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    tenants = [
        ((namespace["organisation_slug"], namespace["namespace_slug"], model), namespace) for namespace in namespaces
    ]
    device = [
        ((*tenant, kv_dtype, "device"), size)
        for tenant, namespace in tenants
        for kv_dtype, size in namespace["resident_bytes_by_dtype"].items()
    ]
    host = [
        ((*tenant, "all", "host"), namespace["host_bytes"]) for tenant, namespace in tenants if namespace["host_bytes"]
    ]
    labels = (*_TENANT, "kv_dtype", "tier")
    yield _gauge("luminet_resident_bytes", "What a namespace's blocks take up.", labels, device + host)
    for field in ("running", "waiting"):
        samples = [(tenant, namespace[field]) for tenant, namespace in tenants]
        yield _gauge(f"luminet_requests_{field}", f"A namespace's requests that are {field}.", _TENANT, samples)
    evicted = [
        ((*tenant, reason), namespace["counters"].get(f"{reason}_blocks", 0))
        for tenant, namespace in tenants
        for reason in GONE
    ]
    yield _counter("luminet_evicted_blocks", "Blocks that left the cache, and why.", (*_TENANT, "reason"), evicted)


def _displaced(model: str, evictions: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    """Return the total evicted bytes. Pairs of namespaces are for operators only, and would be too many series."""
    sums: dict[tuple[str, ...], float] = {}
    for eviction in evictions:
        label = (model, eviction["cause"], eviction["tier"])
        sums[label] = sums.get(label, 0) + eviction["bytes"]
    description = "Bytes of blocks given up for somebody's need."
    yield _counter("luminet_displaced_bytes", description, ("model", "reason", "tier"), list(sums.items()))


def _gauge(name: str, description: str, labels: Sequence[str], samples: _Samples) -> Metric:
    family = GaugeMetricFamily(name, description, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _counter(name: str, description: str, labels: Sequence[str], samples: _Samples) -> Metric:
    family = CounterMetricFamily(name, description, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family
