"""`/metrics`: the contract's names, bounded labels, and figures also when the engine does not answer."""

import json
import re
import time

from engine_agent.journal.journal import Closed, Journal, Opened
from engine_agent.server.engine_metrics import MOST_NAMESPACES
from engine_agent.server.metrics import Observer, cache_use
from tests.unit.server.asking import Asker, chat_body
from tests.unit.server.reading import counters, records
from tests.unit.server.scripted import STATS, ScriptedBackend

VLLM = (
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:kv_cache_usage_perc",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:num_preemptions_total",
    "vllm:time_to_first_token_seconds_count",
    "vllm:inter_token_latency_seconds_count",
)


def opened(*, namespace: str = "default", kind: str = "customer", cached: int = 0, reason: str = "cold") -> Opened:
    told = ("org-1", "acme", "ns-1", namespace, 7, "tiny", "fp8", 64, cached, reason, {"cold": 64 - cached})
    return Opened("r", 1, kind, 0.0, *told)  # type: ignore[arg-type]


async def test_the_contracts_names_are_there(asker: Asker) -> None:
    await asker.chat()
    figures = counters((await asker.get("/metrics")).body.decode())
    for name in VLLM:
        assert f'{name}{{model_name="tiny"}}' in figures
    assert figures['vllm:kv_cache_usage_perc{model_name="tiny"}'] == 0.15  # of 25 % used, 10 % are only cached
    assert figures['vllm:num_preemptions_total{model_name="tiny"}'] == 3
    assert figures['luminet_pool_used_bytes{model="tiny",tier="device"}'] == 250
    tenant = 'model="tiny",namespace="default",organisation="acme"'
    assert figures[f'luminet_resident_bytes{{kv_dtype="int4",{tenant},tier="device"}}'] == 50
    assert figures[f'luminet_evicted_blocks_total{{{tenant},reason="expired"}}'] == 4
    assert figures['luminet_displaced_bytes_total{model="tiny",reason="quota",tier="device"}'] == 96
    assert figures['luminet_engine_warnings_total{model="tiny",reason="preempted"}'] == 3
    assert figures['luminet_journal_bytes{model="tiny"}'] > 0


async def test_times_are_told_by_what_the_cache_did(asker: Asker, backend: ScriptedBackend) -> None:
    for cached in (0, 16, 64):
        backend.cached_tokens = cached
        await asker.complete(prompt="x" * 64)
    figures = counters((await asker.get("/metrics")).body.decode())
    for use in ("miss", "partial", "hit"):
        assert figures[f'luminet_time_to_first_token_seconds_count{{cache="{use}",model="tiny"}}'] == 1
        assert figures[f'luminet_inter_token_latency_seconds_count{{cache="{use}",model="tiny"}}'] == 4


async def test_a_streams_first_token_is_told_when_it_comes(asker: Asker, backend: ScriptedBackend) -> None:
    backend.pause_after = 3
    call = asker.call("/v1/chat/completions", chat_body(stream=True))
    await call.start()
    while b"l" not in await call.part():  # of H, e, l, lo
        pass
    figures = counters((await asker.get("/metrics")).body.decode())
    assert figures['vllm:time_to_first_token_seconds_count{model_name="tiny"}'] == 1
    assert figures['vllm:inter_token_latency_seconds_count{model_name="tiny"}'] == 2
    backend.resumed.set()
    await call.end()
    figures = counters((await asker.get("/metrics")).body.decode())
    assert figures['vllm:time_to_first_token_seconds_count{model_name="tiny"}'] == 1
    assert figures['vllm:inter_token_latency_seconds_count{model_name="tiny"}'] == 4


async def test_how_fast_a_client_sends_is_in_no_time_of_the_engines(asker: Asker, journal: Journal) -> None:
    pauses, body = 0.05, json.dumps(chat_body()).encode()
    began = time.perf_counter()
    answer = await asker.call("/v1/chat/completions", chunks=[body[:9], body[9:]], pauses=pauses).answered()
    most = time.perf_counter() - began - 2 * pauses
    assert answer.status == 200
    (closed,) = (record for record in records(journal) if isinstance(record, Closed))
    assert closed.duration_ms <= most * 1_000
    figures = counters((await asker.get("/metrics")).body.decode())
    assert figures['vllm:time_to_first_token_seconds_sum{model_name="tiny"}'] <= most


async def test_what_goes_wrong_is_counted_from_nought_so_that_a_rate_sees_the_first(asker: Asker) -> None:
    figures = counters((await asker.get("/metrics")).body.decode())
    assert figures['luminet_request_errors_total{model="tiny",reason="engine_failed"}'] == 0
    assert figures['luminet_engine_warnings_total{model="tiny",reason="preemption"}'] == 0


def test_a_hit_is_every_full_block() -> None:
    assert cache_use(opened()) == "miss"
    assert cache_use(opened(cached=32)) == "partial"
    assert cache_use(opened(cached=48, reason="none")) == "hit"


async def test_an_engine_that_does_not_answer_is_told_so(asker: Asker, backend: ScriptedBackend) -> None:
    backend.stats_told = None
    figures = counters((await asker.get("/metrics")).body.decode())
    assert figures['luminet_engine_up{model="tiny"}'] == 0
    assert 'vllm:prefix_cache_queries_total{model_name="tiny"}' in figures
    backend.answers = False
    health = await asker.get("/health")
    assert (health.status, health.error["code"]) == (503, "engine_unavailable")


async def test_who_takes_no_more_requests_is_not_healthy(asker: Asker, backend: ScriptedBackend) -> None:
    backend.stats_told = None  # nor is the engine asked for all it knows
    assert (await asker.get("/health")).document == {"status": "ok"}
    backend.is_draining = True
    health = await asker.get("/health")
    assert (health.status, health.error["code"]) == (503, "draining")


def test_namespaces_beyond_the_bound_are_counted_together() -> None:
    observer = Observer("tiny")
    for number in range(MOST_NAMESPACES + 50):
        observer.opened(opened(namespace=f"ns-{number}"))
    text = observer.exposition(STATS, journal_bytes=0).decode()
    named = set(re.findall(r'luminet_prompt_tokens_total\{.*namespace="([^"]+)"', text))
    assert len(named) == MOST_NAMESPACES + 1
    figures = counters(text)
    other = 'luminet_prompt_tokens_total{kv_dtype="fp8",model="tiny",namespace="other",organisation="other"}'
    assert figures[other] == 50 * 64


def test_what_is_on_nobodys_account_is_not_counted() -> None:
    observer = Observer("tiny")
    before = counted(observer)
    for kind in ("probe", "pin"):
        record = opened(kind=kind)
        observer.opened(record)
        observer.first_token(record, 0.1)
        observer.tokens(record, [0.1])
        observer.closed(record, Closed(1, "r", 1, 0.0, "stop", 1, 1.0, 1.0))
    assert counted(observer) == before


def counted(observer: Observer) -> list[str]:
    """What is exposed, without the process' own memory and time, which move by themselves."""
    lines = observer.exposition(None, journal_bytes=0).decode().splitlines()
    return [line for line in lines if not line.startswith("process_")]


def test_names_and_labels_are_as_prometheus_wants_them() -> None:
    text = Observer("tiny").exposition(STATS, journal_bytes=0).decode()
    for line in text.splitlines():
        assert re.match(r"# (HELP|TYPE) (vllm:|luminet_|process_)|(vllm:|luminet_)[a-z0-9_]+\{|process_", line), line
