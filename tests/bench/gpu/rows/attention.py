"""H1 and H2: attention over pages in each format, beside a copy and beside contiguous attention in the same run."""

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from kernels.formats import KV_FORMATS
from kernels.paged_decode import paged_decode
from kernels.paged_prefill import paged_prefill
from tests.bench import Bench
from tests.bench.gpu.clocks import Work, alternating
from tests.bench.gpu.figures import H2_SHARE, h1_target, shares, terabytes_a_second, teraflops
from tests.bench.gpu.registry import row
from tests.bench.gpu.setting import Setting, fitted, here, where
from tests.bench.kernel_inputs import Contiguous, Shape, paged, vectors

FORMATS = ("bf16", "fp8", "int8", "int4", "k8v4", "nvfp4")
COPY, SDPA = "copy", "contiguous bf16 (SDPA)"
COPY_BYTES_MOST = 2**30


@row(
    "H1",
    title="paged_decode: keys and values read",
    target="H200, 32 × 16k: bf16 ≥ 3.8, fp8 ≥ 3.4, int8 ≥ 3.2, int4 ≥ 2.0 TB/s",
    beside="a copy within the GPU, scaled_dot_product_attention",
)
def decoding(bench: Bench) -> None:
    setting = here()
    for wanted in setting.sizes.decoding:
        shape = _fitting(bench, setting, wanted)
        given = vectors(shape, setting.device, setting.dtype)
        for name in FORMATS:
            _decode_one(bench, setting, shape, given, name)
    bench.note(where())
    bench.note("bytes: keys, values and scales of one layer, each counted once; a copy counts what it reads and writes")


@row(
    "H2",
    title="paged_prefill: causal, all of the prompt at once",
    target="≥ 0.55 of SDPA",
    beside="scaled_dot_product_attention with is_causal, bf16, contiguous",
)
def prefilling(bench: Bench) -> None:
    setting = here()
    for shape in setting.sizes.prefilling:
        given = vectors(shape, setting.device, setting.dtype)
        for name in FORMATS:
            _prefill_one(bench, setting, shape, given, name)
    bench.note(where())
    bench.note("operations: 4 × head size for each query head and each pair of a query and a key that it sees")


def _fitting(bench: Bench, setting: Setting, wanted: Shape) -> Shape:
    if setting.is_dry:
        return wanted
    # In one piece, in pages, and as float32 while they are written; a copy's two buffers beside them.
    bytes_a_row = 3 * wanted.kv_bytes(KV_FORMATS["bf16"]) // wanted.rows
    free, _ = torch.cuda.mem_get_info()
    shape = fitted(wanted, bytes_a_row, free - 3 * COPY_BYTES_MOST)
    if shape != wanted:
        bench.note(f"{wanted.rows} rows do not fit into {free / 1e9:.0f} GB of free memory: measured with {shape.rows}")
    return shape


def _decode_one(bench: Bench, setting: Setting, shape: Shape, given: Contiguous, name: str) -> None:
    kv_format = KV_FORMATS[name]
    inputs = paged(shape, kv_format, given)
    packed = given.q.view(shape.rows, shape.kv_heads, -1, shape.head_size)  # a KV head's queries, as of one head
    copied, copy = _copy(setting, min(COPY_BYTES_MOST, shape.kv_bytes(KV_FORMATS["bf16"])))
    sides: dict[str, Work] = {
        name: lambda: paged_decode(inputs.q, inputs.arena, inputs.table, 0, inputs.scales),
        COPY: copy,
        SDPA: lambda: scaled_dot_product_attention(packed, given.keys, given.values),
    }
    taken = _taken(bench, setting, f"{shape}, {name}", sides)
    ours = terabytes_a_second(shape.kv_bytes(kv_format), taken[name])
    theirs = terabytes_a_second(copied, taken[COPY])
    sdpa = terabytes_a_second(shape.kv_bytes(KV_FORMATS["bf16"]), taken[SDPA])
    target = h1_target(setting.gpu, name, shape.rows, shape.context)
    sizes = {"bytes": shape.kv_bytes(kv_format), "copied and read, bytes": copied}
    bench.record(f"{shape}, {name}", unit="TB/s", values=ours, target=target, parameters=sizes)
    bench.record(f"{shape}, {name}: time", unit="ms", values=taken[name])
    bench.record(f"{shape}, {name} ÷ {COPY}", unit="×", values=shares(ours, theirs))
    bench.record(f"{shape}, {name}: {COPY}", unit="TB/s", values=theirs)
    bench.record(f"{shape}, {name}: {SDPA}", unit="TB/s", values=sdpa)


def _flash(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Row H2 names flash attention: torch may choose another implementation, which is not what is compared with."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return scaled_dot_product_attention(q, keys, values, is_causal=True)


def _prefill_one(bench: Bench, setting: Setting, shape: Shape, given: Contiguous, name: str) -> None:
    inputs = paged(shape, KV_FORMATS[name], given)
    group = shape.heads // shape.kv_heads
    keys, values = (side.repeat_interleave(group, dim=1) for side in (given.keys, given.values))
    sides: dict[str, Work] = {
        name: lambda: paged_prefill(inputs.q, inputs.arena, inputs.table, 0, inputs.scales),
        SDPA: lambda: _flash(given.q, keys, values),
    }
    taken = _taken(bench, setting, f"{shape}, {name}", sides)
    ours, theirs = (teraflops(shape.flops(), taken[side]) for side in (name, SDPA))
    bench.record(f"{shape}, {name}", unit="TFLOP/s", values=ours, parameters={"operations": shape.flops()})
    bench.record(f"{shape}, {name} ÷ {SDPA}", unit="×", values=shares(ours, theirs), target=H2_SHARE)
    bench.record(f"{shape}, {name}: {SDPA}", unit="TFLOP/s", values=theirs)


def _copy(setting: Setting, size: int) -> tuple[int, Work]:
    """Bytes that it reads and writes, and the copy."""
    source, target = (torch.zeros(size, dtype=torch.uint8, device=setting.device) for _ in "st")

    def copy() -> Tensor:
        return target.copy_(source)

    return 2 * size, copy


def _taken(bench: Bench, setting: Setting, name: str, sides: dict[str, Work]) -> dict[str, list[float]]:
    repetitions = bench.repetitions(setting.sizes.repetitions)
    bench.step(name, 0, repetitions)
    return alternating(setting.clock, sides, repetitions, lambda k: bench.step(name, k, repetitions))
