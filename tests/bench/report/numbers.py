"""The figures this project is to reach, as data: what is asked for, and which figures of a row answer it.

A row of the bench without a number of its own is in `BESIDES`. What a figure is called is said by the row that takes
it; a name that no run has any more fails the build (tests/contract/test_performance.py).
"""

from dataclasses import dataclass

GPU_MISSING = "needs an NVIDIA H200; no GPU has run it yet"


@dataclass(frozen=True, slots=True)
class Shown:
    """A figure in the table of all rows, with a word of its own; `what` of it, as filling.py has it."""

    figure: str
    label: str = ""
    what: str = ""


@dataclass(frozen=True, slots=True)
class Number:
    """One row. `is_any`: one met target is enough."""

    key: str
    what: str
    reach: str
    after: str = ""
    shown: tuple[Shown, ...] = ()
    is_any: bool = False
    gpu: str = ""  # why it, or a part of it, has no figure without a GPU


NUMBERS = (
    Number(
        "C1",
        "cache bookkeeping for a new prompt of 4,096 tokens, ours ÷ vLLM's",
        "≤ 0.5 ×",
        "≤ 0.1 ×",
        (Shown("new prompt"),),
    ),
    Number("C2", "the same for a full hit", "≤ 0.5 ×", "≤ 0.1 ×", (Shown("full hit"),)),
    Number(
        "C3",
        "cost of a request as the pool grows 10⁴ → 10⁶ blocks, 1 → 10⁴ namespaces",
        "≤ 1.5 ×",
        "flat",
        (
            Shown("a request, half of them new, half full hits: 1,000,000 blocks, 1 namespace", "pool"),
            Shown("a request, half of them new, half full hits: 1,000,000 blocks, 10,000 namespaces", "and namespaces"),
        ),
    ),
    Number(
        "C4",
        "token hit rate on the public trace: no limit · 5 min sliding · 5 min absolute",
        "37.4 · 29.3 · 25.7 % ± 0.5",
        "",
        (
            Shown("token hit rate, no TTL"),
            Shown("token hit rate, sliding 300 s"),
            Shown("token hit rate, absolute 300 s"),
        ),
    ),
    Number(
        "C5",
        "quiet tenant beside a 1 ×, 4 ×, 16 × flooder, share of what it gets alone in its fair half",
        "≥ 95 %",
        "100 % with a reservation",
        (Shown("×1, weighted fair"), Shown("×4, weighted fair"), Shown("×16, weighted fair")),
    ),
    Number("E1", "memory waste of paged allocation on the trace's lengths", "< 4 %", "< 3 %", (Shown("waste, paged"),)),
    Number(
        "E2",
        "first token of a full hit ÷ cold, 4,096 tokens; hit ÷ vLLM's hit",
        "≤ 1/40 · ≤ 1 ×",
        "≤ 1/80",
        (Shown("hit ÷ cold, ours", what="inverse"), Shown("hit, 4,096 tokens", "÷ vLLM's")),
    ),
    Number(
        "E3",
        "cold first token · decoding at 8 at once, ours ÷ vLLM's",
        "≤ 1.3 × · ≥ 0.8 ×",
        "≤ 1 × · ≥ 1 ×",
        (Shown("cold, 4,096 tokens"), Shown("decoding, 8 at once")),
    ),
    Number(
        "E4",
        "tokens that fit in one pool, head size 128: `fp8` · `int4` ÷ `bf16`",
        "≥ 1.94 · ≥ 3.7",
        "",
        (Shown("fp8 ÷ bf16"), Shown("int4 ÷ bf16")),
    ),
    Number(
        "E5",
        "bookkeeping at 0 % hits, share of the time to first token",
        "≤ 1 %",
        "",
        (
            Shown("share of the time to first token, 4,096 tokens", "4,096 tokens"),
            Shown("share of the time to first token, 512 tokens", "512"),
        ),
    ),
    Number(
        "Q1",
        "loss of perplexity of `int8`, `fp8_e4m3`, `fp8`, `k8v4`, `int4`, `nvfp4` on the demo model; 2 bits must fail",
        "≤ 0.05, 0.1, 0.2, 0.3, 1, 1.5 %",
        "",
        tuple(
            Shown(f"ΔPPL by byte of {name}, neutral, plain")
            for name in ("int8", "fp8_e4m3", "fp8", "k8v4", "int4", "nvfp4")
        ),
    ),
    Number(
        "Q2",
        "greedy tokens equal to `transformers`, random Llama, Mistral, Qwen2, Qwen3, fp32",
        "100 % of ≥ 50 prompts × 64 tokens",
        "",
        (Shown("prompts compared", "prompts"),),
    ),
    Number(
        "G1",
        "gateway at 32 clients, requests/s ÷ LiteLLM's proxy; latency it adds at 1 client, p50 · p99",
        "≥ 8 ×; ≤ 2 · 8 ms",
        "≥ 20 ×; p50 ≤ 0.7 ms",
        (Shown("requests/s"), Shown("added latency, 1 client", "p50"), Shown("added latency, 1 client, p99", "p99")),
    ),
    Number(
        "G2",
        "latency it adds to growing chats of 50,000 to 100,000 tokens, p50 · p99",
        "≤ 5 · 20 ms",
        "",
        (
            Shown("added latency, many short messages", "many messages, p50"),
            Shown("added latency, few long messages", "few long, p50"),
        ),
    ),
    Number(
        "G3",
        "cache-aware routing beside round robin: time for a request · time to first token",
        "≤ 0.5 × or ≥ 5 ×",
        "",
        (
            Shown("time for a request, all in all"),
            Shown("time to first token p50, round robin ÷ ours"),
        ),
        is_any=True,
    ),
    Number(
        "P1",
        "publish until all agents have acknowledged with the hash",
        "100 agents, p99 ≤ 1 s; then 1,000 ≤ 2 s",
        "",
        (
            Shown("publish until all 100 have acknowledged", "100"),
            Shown("publish until all 1,000 have acknowledged", "1,000"),
        ),
    ),
    Number(
        "P2",
        "stale agent shown · bad policy taken back · tenant purged with every receipt",
        "≤ 10 s · 60 s · 1 s",
        "",
        (
            Shown("agent killed until it is shown as stale"),
            Shown("bad policy published until it is taken back from every agent"),
            Shown("purge until every receipt is there"),
        ),
    ),
    Number(
        "A1",
        "usage rows taken in a second on 2 cores, exactly once",
        "≥ 20,000",
        "≥ 100,000",
        (Shown("through the door"), Shown("through the door: tokens lost or doubled", "lost or doubled")),
    ),
    Number(
        "A2",
        "24-hour query, 1,000 namespaces × 1,440 min × 4 agents stored: one namespace · the fleet",
        "p95 ≤ 20 · 100 ms",
        "",
        (Shown("24 hours of one namespace"), Shown("24 hours of the fleet")),
    ),
    Number(
        "A3",
        "error of the rolling 24 h against a recount of every request",
        "0 tokens",
        "",
        (
            Shown(
                "rows of two days, late, doubled and split: tokens apart, each namespace, organisation and the fleet",
                "told",
            ),
            Shown("live traffic", "live"),
        ),
    ),
    Number(
        "A4",
        "headers left until an open page shows it: one page · 500 pages",
        "p95 ≤ 2 s",
        "≤ 1 s",
        (
            Shown("headers left until a page shows it, one page"),
            Shown("headers left until a page shows it, 500 pages"),
            Shown("web process, 500 sockets, a request twice a second", "a core's share"),
        ),
    ),
    Number(
        "W1",
        "web process: start · memory; pages: time · bytes · accessibility violations",
        "≤ 2 s · 150 MB; p95 ≤ 150 ms · 150 KB · 0",
        "",
        (
            Shown("start until /healthz"),
            Shown("memory after warm-up"),
            Shown("pages over the wire, p95 of each", "slowest page"),
            Shown("first load, overview, over the wire"),
            Shown("accessibility violations per page", "axe"),
        ),
    ),
    Number(
        "W2",
        "`make up` with everything installed until the first chat completion: new data · second start",
        "≤ 20 s",
        "≤ 10 s",
        (
            Shown("first start (new data): first chat completion"),
            Shown("second start: first chat completion"),
        ),
    ),
    Number(
        "S1",
        "timing probe between organisations: interval of the ROC AUC holds 0.5 · its width",
        "yes · ≤ 0.1",
        "",
        (
            Shown("ROC AUC, namespaces apart"),
            Shown("ROC AUC, namespaces apart", "from", "size low, 95 %"),
            Shown("ROC AUC, namespaces apart", "to", "size high, 95 %"),
            Shown("width of its interval, namespaces apart", "width"),
        ),
    ),
    Number(
        "S2",
        "random input, API · gateway: requests and server errors",
        "≥ 5,000 · 20,000; 0 errors",
        "",
        (
            Shown("random requests", "requests"),
            Shown("server errors", "errors"),
            Shown("gateway: random requests", "requests at the gateway"),
            Shown("gateway: server errors", "errors"),
        ),
    ),
    Number(
        "S3",
        "kill -9 of each process in turn under load: tokens lost or doubled",
        "0 tokens",
        "",
        (
            Shown("agent's engine: tokens lost or doubled", "engine"),
            Shown("gateway: tokens lost or doubled", "gateway"),
            Shown("redis: tokens lost or doubled", "Redis"),
            Shown("PostgreSQL: tokens lost or doubled", "PostgreSQL"),
        ),
    ),
    Number(
        "S4",
        "`/healthz` of a second client while one connection attacks the web's port",
        "≤ 50 ms",
        "",
        (
            Shown("/healthz, idle", "idle"),
            Shown("/healthz, drips behind 40 MiB of a head", "drips"),
            Shown("/healthz, heads of 48 MiB", "heads"),
            Shown("/healthz, trailers of 48 MiB, then drips", "trailers"),
            Shown("/healthz, bodies in chunks of one byte", "small chunks"),
        ),
    ),
    Number(
        "H1",
        "H200: `paged_decode`, 32 × 16k: bf16 · fp8 · int8 · int4",
        "≥ 3.8 · 3.4 · 3.2 · 2.0 TB/s",
        "≥ 90 % of a copy",
        gpu=GPU_MISSING,
    ),
    Number("H2", "H200: `paged_prefill` beside SDPA, bf16", "≥ 55 %", "≥ 90 %", gpu=GPU_MISSING),
    Number(
        "H3",
        "with and without prefix cache, template of 6,000 tokens: time to first token P50 · P99, cost, saved",
        "measured and shown",
        "better than 86 · 81 · 83 %",
        (
            Shown("saved, time to first token, P50", "P50"),
            Shown("saved, time to first token, P99", "P99"),
            Shown("cost saved", "cost"),
        ),
        gpu="on the CPU; the H200's half waits for one",
    ),
)

BESIDES = (
    Number(
        "E6",
        "the engine alone with the demo model: start · memory · hit of 2,000 tokens",
        "≤ 6 s · 700 MB · 50 ms",
        "",
        (
            Shown("start to serving"),
            Shown("memory, pool filled"),
            Shown("hit, 2,000 tokens"),
        ),
    ),
    Number(
        "G4",
        "a gateway with 10,000 keys and namespaces and 10⁶ known blocks: memory; 2,000 idle streams: broken",
        "≤ 200 MB · 0",
        "",
        (
            Shown("memory with all of it"),
            Shown("idle streams broken", "broken"),
        ),
    ),
    Number("K1", "kernels on a CPU, each format from its pages, beside torch on contiguous float32", "–"),
    Number(
        "P3",
        "steady state at 1,000 agents: control plane's share of a core · queries/s",
        "≤ 60 % · 50/s",
        "",
        (
            Shown("all of it, share of a core"),
            Shown("queries"),
        ),
    ),
    Number(
        "T1",
        "10,000 namespaces in 1,000 organisations: list · effective policy · snapshot",
        "p95 ≤ 50 · 10 ms; ≤ 1 s",
        "",
        (
            Shown("list, organisations"),
            Shown("effective policy of one"),
            Shown("snapshot of one engine"),
        ),
    ),
    Number(
        "V1",
        "vLLM's scheduling under policies ÷ without: new prompt · full hit · a step of 32 answers",
        "≤ 1.05 ×",
        "",
        (
            Shown("a new prompt of 4,096 tokens"),
            Shown("a full hit of 4,096 tokens"),
            Shown("a step of 32 answers"),
        ),
    ),
    Number(
        "V2",
        "the public trace served by vLLM under policies ÷ without, requests/s",
        "≥ 0.95 ×",
        "",
        (Shown("requests served"),),
    ),
)

BY_KEY = {one.key: one for one in (*NUMBERS, *BESIDES)}
