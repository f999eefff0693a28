"""E4 and K1: how many tokens a pool holds in each format, and how fast the kernels' CPU path is.

torch is loaded in processes of their own, which also fix how many threads it has.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from tests.bench import Bench, Target, row
from tests.bench.figures import Parameters
from tests.bench.pool_tokens import HEAD_SIZE, KV_HEADS, LAYERS, POOLS_GIB, tokens_that_fit
from tests.bench.workers import Worker, worker_running

# E4

TARGETS = {"fp8": Target(">=", 1.94, of="min"), "int4": Target(">=", 3.7, of="min")}
BESIDE_THEM = ("int8", "k8v4", "nvfp4")
MODEL: Parameters = {"layers": LAYERS, "KV heads": KV_HEADS, "head size": HEAD_SIZE, "pools, GiB": "6, 60, 120"}


@row("E4", title="Tokens that fit in one pool, head size 128", target="bf16 : fp8 : int4 = 1 : ≥ 1.94 : ≥ 3.7")
def pool_tokens(bench: Bench) -> None:
    fitting = {
        name: [tokens_that_fit(name, gib * 2**30) for gib in POOLS_GIB] for name in ("bf16", *TARGETS, *BESIDE_THEM)
    }
    bench.record("bf16", unit="tokens", values=fitting["bf16"], parameters=MODEL)
    for name in (*TARGETS, *BESIDE_THEM):
        ratios = [ours / theirs for ours, theirs in zip(fitting[name], fitting["bf16"], strict=True)]
        bench.record(f"{name} ÷ bf16", unit="×", values=ratios, target=TARGETS.get(name), parameters=MODEL)
    bench.note(
        "pages are taken from the block manager's arena until there are none left; nothing of that size is allocated"
    )


# K1

WORKER = "tests.bench.kernel_worker"
FORMATS = ("bf16", "fp8", "int8", "k8v4", "int4", "nvfp4")
WITH_TWO_THREADS = ("bf16", "int8", "int4")  # of attention: enough to see what a second one brings
SAMPLE_US = 30_000.0  # of work in a sample, so that a scheduler's pause is not all of it
CALLS_MOST = 50
SDPA = "contiguous float32"


@dataclass(frozen=True, slots=True)
class Speed:
    """One op at one shape: heads, KV heads, head size, rows, context, new tokens of each row."""

    op: str
    heads: int
    kv_heads: int
    rows: int
    context: int
    new: int = 1
    head_size: int = 64

    def __str__(self) -> str:
        rows, new = (f"{self.rows} × " if self.rows > 1 else ""), (f"{self.new:,} of " if self.new > 1 else "")
        return f"{self.op} {self.heads}/{self.kv_heads}, {rows}{new}{self.context:,}"

    @property
    def shape(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("heads", "kv_heads", "head_size", "rows", "context", "new")}


SPEEDS = (
    Speed("paged_decode", 8, 2, rows=1, context=512),
    Speed("paged_decode", 8, 2, rows=1, context=2048),
    Speed("paged_decode", 8, 2, rows=4, context=2048),
    Speed("paged_decode", 14, 2, rows=8, context=1024),
    Speed("paged_prefill", 8, 2, rows=1, context=512, new=512),
    Speed("paged_prefill", 8, 2, rows=1, context=2048, new=512),
    Speed("kv_write", 8, 2, rows=1, context=512, new=512),
    Speed("kv_write", 8, 2, rows=1, context=512, new=8),
)


@row(
    "K1",
    title="Kernels on a CPU, each format from its pages",
    beside="torch on contiguous float32, in the same process",
)
def cpu_speed(bench: Bench) -> None:
    attention = [speed for speed in SPEEDS if speed.op != "kv_write"]
    for threads, speeds, formats in ((1, SPEEDS, FORMATS), (2, attention, WITH_TWO_THREADS)):
        with worker_running((sys.executable, "-m", WORKER), {"OMP_NUM_THREADS": str(threads)}) as worker:
            for speed in speeds:
                for kv_format in formats:
                    _compare(bench, worker, speed, kv_format, threads)
    bench.note(
        "attention is beside scaled_dot_product_attention, kv_write beside index_copy_: neither converts or gathers"
    )
    bench.note(
        "with two threads on two cores, whatever else the machine does stops both: read those rows with their spread"
    )


def _compare(bench: Bench, worker: Worker, speed: Speed, kv_format: str, threads: int) -> None:
    ours, theirs = (_sampled(worker, speed, kv_format, side) for side in ("ours", "theirs"))
    bench.compare(
        f"{speed}, {kv_format}, {threads} thread{'s' if threads > 1 else ''}",
        unit="µs",
        ours=ours,
        theirs=theirs,
        theirs_name=SDPA,
        parameters={"head size": speed.head_size},
    )


def _sampled(worker: Worker, speed: Speed, kv_format: str, side: str) -> Callable[[], float]:
    """The first sample is one call, which says how many the others take; it is the warm-up, and dropped."""
    calls = 1

    def sample() -> float:
        nonlocal calls
        question = {"op": speed.op, "format": kv_format, "shape": speed.shape, "side": side, "calls": calls}
        found = float(worker.ask(**question)["µs"])
        calls = calls_for(found)
        return found

    return sample


def calls_for(one_us: float) -> int:
    """So many that they take about SAMPLE_US, an odd number: their median is one of them."""
    return min(CALLS_MOST, round(SAMPLE_US / one_us)) | 1
