"""Prefilling through pages: against attention without pages, in each implementation, every format, odd shapes."""

import pytest
import torch
from torch import Tensor

from kernels import paged_prefill as module
from kernels.dispatch import Implementation, using
from kernels.errors import InvalidArgument
from kernels.formats import KV_FORMATS
from kernels.paged_decode import paged_decode
from kernels.paged_prefill import paged_prefill, paged_prefill_reference
from kernels.tables import page_table
from tests.kernels.matrix import IMPLEMENTATIONS, matrix
from tests.unit.kernels.dense import assert_near, dense_attention, queries, table_of
from tests.unit.kernels.making import Filled, fill, make_layout, make_scales

EXACT = 1e-5  # relative, of float32
BFLOAT16 = 4e-3  # relative, of bfloat16: half a unit in the last place is 2e-3 to 4e-3
# Query heads, KV heads, head size: groups of 1, 4, 8 and all.
SHAPES = [(2, 2, 32), (8, 2, 64), (8, 1, 80), (4, 1, 96), (16, 2, 128), (3, 1, 256)]
LENGTHS = [1, 15, 16, 17, 50]
COUNTS = [1, 15, 3, 17, 20]  # all of a row, its end, and anything between


def filled_with(kv_format: str, lengths: list[int], kv_heads: int = 2, head_size: int = 32, layers: int = 2) -> Filled:
    layout = make_layout(kv_format, layers=layers, kv_heads=kv_heads, head_size=head_size)
    return fill(layout, lengths, seed=4, scales=make_scales(layout))


# Against attention without pages


@matrix(
    {"kv_format": KV_FORMATS, "heads, kv_heads, head_size": SHAPES, "on_cpu": IMPLEMENTATIONS["on_cpu"]},
    corners=[
        ("k8v4", (8, 1, 80), "native"),  # a head size that is no power of two, keys and values of different widths
        ("nvfp4", (3, 1, 256), "native"),  # the most groups of 16 in a vector, an odd number of query heads
        ("int4", (16, 2, 128), "torch"),
        ("int2", (4, 1, 96), "native"),
    ],
)
def test_every_format_at_odd_shapes(
    on_cpu: Implementation, kv_format: str, heads: int, kv_heads: int, head_size: int
) -> None:
    filled = filled_with(kv_format, LENGTHS, kv_heads, head_size)
    q, table, scales = queries(filled, sum(COUNTS), heads), table_of(filled, COUNTS), filled.scales.layer(1)
    wanted = paged_prefill_reference(q, filled.arena, table, 1, scales)
    assert_near(paged_prefill(q, filled.arena, table, 1, scales), wanted, EXACT)


@pytest.mark.parametrize("kv_format", KV_FORMATS)
def test_the_reference_is_attention(kv_format: str) -> None:
    filled = filled_with(kv_format, LENGTHS)
    q, table, scales = queries(filled, sum(COUNTS), 4), table_of(filled, COUNTS), filled.scales.layer(1)
    for window in (None, 9):
        found = paged_prefill_reference(q, filled.arena, table, 1, scales, window=window)
        assert_near(found, dense_attention(filled, 1, q, COUNTS, window=window), EXACT)


@pytest.mark.parametrize("kv_format", KV_FORMATS)
def test_the_end_of_a_long_row(on_cpu: Implementation, kv_format: str) -> None:
    filled = filled_with(kv_format, [4097, 40], kv_heads=1, head_size=64, layers=1)
    q, table, scales = queries(filled, 150, 4), table_of(filled, [130, 20]), filled.scales.layer(0)
    wanted = paged_prefill_reference(q, filled.arena, table, 0, scales)
    assert_near(paged_prefill(q, filled.arena, table, 0, scales), wanted, EXACT)


@pytest.mark.parametrize("kv_format", KV_FORMATS)
def test_the_kernel_in_every_format(kv_format: str) -> None:
    filled = filled_with(kv_format, [7, 35], kv_heads=1)
    q, table, scales = queries(filled, 14, 3), table_of(filled, [7, 7]), filled.scales.layer(1)
    with using("triton"):
        found = paged_prefill(q, filled.arena, table, 1, scales)
    assert_near(found, dense_attention(filled, 1, q, [7, 7]), EXACT)


@pytest.mark.parametrize(("heads", "kv_heads", "head_size"), [(2, 2, 80), (8, 1, 96), (20, 1, 64)])
def test_the_kernel_at_odd_shapes(heads: int, kv_heads: int, head_size: int) -> None:
    filled = filled_with("k8v4", [18], kv_heads, head_size)
    q, table, scales = queries(filled, 3, heads), table_of(filled, [3]), filled.scales.layer(0)
    with using("triton"):
        found = paged_prefill(q, filled.arena, table, 0, scales)
    assert_near(found, dense_attention(filled, 0, q, [3]), EXACT)


@matrix(
    {"kv_format": ["bf16", "int8", "int4"], "each_implementation": IMPLEMENTATIONS["each_implementation"]},
    strength=1,  # every format meets every implementation above, with queries in float32
    corners=[("bf16", "triton"), ("int8", "native"), ("int4", "torch")],
)
def test_queries_in_bfloat16(each_implementation: Implementation, kv_format: str) -> None:
    filled = filled_with(kv_format, [20, 33], kv_heads=1)
    q, table, scales = queries(filled, 9, 2, torch.bfloat16), table_of(filled, [4, 5]), filled.scales.layer(1)
    found = paged_prefill(q, filled.arena, table, 1, scales)
    assert found[0].dtype == torch.bfloat16
    assert found[1].dtype == torch.float32
    assert_near(found, dense_attention(filled, 1, q, [4, 5]), BFLOAT16)


@pytest.mark.parametrize("window", [1, 7, 16, 17, 40, 1000])
def test_windows(on_cpu: Implementation, window: int) -> None:
    filled = filled_with("int8", LENGTHS)
    q, table, scales = queries(filled, sum(COUNTS), 4), table_of(filled, COUNTS), filled.scales.layer(0)
    found = paged_prefill(q, filled.arena, table, 0, scales, window=window)
    assert_near(found, dense_attention(filled, 0, q, COUNTS, window=window), EXACT)


@pytest.mark.parametrize("window", [1, 11])
def test_windows_in_the_kernel(window: int) -> None:
    filled = filled_with("int8", [45, 3], kv_heads=1)
    q, table, scales = queries(filled, 22, 2), table_of(filled, [19, 3]), filled.scales.layer(0)
    with using("triton"):
        found = paged_prefill(q, filled.arena, table, 0, scales, window=window)
    assert_near(found, dense_attention(filled, 0, q, [19, 3], window=window), EXACT)


# What must not change the result


def in_chunks(filled: Filled, q: Tensor, size: int, window: int | None = None) -> tuple[Tensor, Tensor]:
    """One row, all of its tokens, so many at a time."""
    parts = []
    for begin in range(0, len(q), size):
        end = min(begin + size, len(q))
        table = page_table(filled.arena, filled.layout, filled.offsets, [end], [end - begin])
        scales = filled.scales.layer(0)
        parts.append(paged_prefill(q[begin:end], filled.arena, table, 0, scales, window=window))
    return torch.cat([means for means, _ in parts]), torch.cat([sums for _, sums in parts])


@matrix(
    {
        "kv_format": ["fp32", "bf16", "fp8", "int8", "k8v4", "int4", "nvfp4"],
        "size": [1, 3, 16, 17],
        "on_cpu": IMPLEMENTATIONS["on_cpu"],
    },
    corners=[("int8", 17, "native"), ("k8v4", 17, "torch"), ("int4", 1, "native")],  # a token more than a block; alone
)
def test_any_size_of_chunk_gives_the_same(on_cpu: Implementation, kv_format: str, size: int) -> None:
    filled = filled_with(kv_format, [70])
    q = queries(filled, 70, 4)
    for window in (None, 20):
        assert_near(in_chunks(filled, q, size, window), in_chunks(filled, q, 70, window), EXACT)


@matrix(
    {
        "kv_format": ["fp32", "fp8", "int8", "int4", "nvfp4"],
        "window": [None, 100],
        "on_cpu": IMPLEMENTATIONS["on_cpu"],
    },
    corners=[("fp32", 100, "native"), ("int8", None, "native")],
)
def test_a_tokens_bits_do_not_depend_on_the_chunk_it_came_in(
    on_cpu: Implementation, kv_format: str, window: int | None
) -> None:
    """A prefix hit computes what is left in other chunks than a miss did, and must write the bytes a miss writes."""
    filled = filled_with(kv_format, [230])
    q = queries(filled, 230, 4)
    whole = in_chunks(filled, q, 230, window)
    for size in (1, 7, 48, 64, 100):
        for one, other in zip(in_chunks(filled, q, size, window), whole, strict=True):
            assert torch.equal(one, other), size


def test_any_size_of_chunk_gives_the_same_in_the_kernel() -> None:
    filled = filled_with("int8", [21], kv_heads=1)
    q = queries(filled, 21, 2)
    with using("triton"):
        whole = in_chunks(filled, q, 21)
        assert_near(in_chunks(filled, q, 17), whole, EXACT)
        assert_near(in_chunks(filled, q, 6), whole, EXACT)


@pytest.mark.parametrize(("chunk", "tile"), [(1, 64), (48, 5), (10_000, 1), (64, 16)])
def test_any_size_of_tile_gives_the_same(monkeypatch: pytest.MonkeyPatch, chunk: int, tile: int) -> None:
    filled = filled_with("k8v4", LENGTHS)
    q, table, scales = queries(filled, sum(COUNTS), 4), table_of(filled, COUNTS), filled.scales.layer(0)
    monkeypatch.setattr(module, "CHUNK_VECTORS", chunk)
    monkeypatch.setattr(module, "TILE_QUERIES", tile)
    for window in (None, 9):
        with using("torch"):
            found = paged_prefill(q, filled.arena, table, 0, scales, window=window)
        assert_near(found, dense_attention(filled, 0, q, COUNTS, window=window), EXACT)


@matrix(
    {"kv_format": ["bf16", "int8", "int4"], "each_implementation": IMPLEMENTATIONS["each_implementation"]},
    strength=1,  # both are compared with dense attention above, in every format and implementation
    corners=[("int8", "triton"), ("int4", "native"), ("bf16", "torch")],
)
def test_decoding_is_the_last_row_of_prefilling(each_implementation: Implementation, kv_format: str) -> None:
    filled = filled_with(kv_format, [19], kv_heads=1)
    q, scales = queries(filled, 19, 2), filled.scales.layer(1)
    means, sums = paged_prefill(q, filled.arena, table_of(filled, [19]), 1, scales)
    assert_near(paged_decode(q[-1:], filled.arena, table_of(filled), 1, scales), (means[-1:], sums[-1:]), EXACT)


def test_a_row_does_not_depend_on_its_company(each_implementation: Implementation) -> None:
    filled = filled_with("fp8", [30, 1, 20], kv_heads=1)
    counts, scales = [10, 1, 4], filled.scales.layer(1)
    q = queries(filled, 15, 2)
    together = paged_prefill(q, filled.arena, table_of(filled, counts), 1, scales)
    at = 0
    for row, count in enumerate(counts):
        mine = slice(at, at + count)
        alone = paged_prefill(q[mine], filled.arena, table_of(filled, [count], [row]), 1, scales)
        assert_near((together[0][mine], together[1][mine]), alone, 1e-6)
        at += count


@pytest.mark.parametrize("kv_format", KV_FORMATS)
def test_whatever_lies_in_unused_slots_changes_nothing(on_cpu: Implementation, kv_format: str) -> None:
    filled = filled_with(kv_format, [18, 35])
    q, table, scales = queries(filled, 25, 4), table_of(filled, [5, 20]), filled.scales.layer(0)
    found = paged_prefill(q, filled.arena, table, 0, scales)
    for byte in (0x00, 0x7F, 0x80):
        arena = torch.full_like(filled.arena, byte)
        other = fill(filled.layout, filled.lengths, seed=4, scales=filled.scales, arena=arena)
        again = paged_prefill(q, other.arena, table, 0, scales)
        assert torch.equal(found[0], again[0])
        assert torch.equal(found[1], again[1])


# Bad input


def test_bad_input_is_refused_by_its_name() -> None:
    filled = filled_with("int8", [20, 3])
    table, scales, q = table_of(filled, [4, 2]), filled.scales.layer(0), queries(filled, 6, 4)

    def refused(argument: str, q: Tensor, layer: int = 0, window: int | None = None) -> None:
        with pytest.raises(InvalidArgument) as caught:
            paged_prefill(q, filled.arena, table, layer, scales, window=window)
        assert caught.value.argument == argument

    for wrong in (q.half(), q[:5], q[..., :16], q[:, :3].contiguous(), queries(filled, 6, 8)[:, ::2], q.to("meta")):
        refused("q", wrong)
    refused("layer", q, layer=2)
    refused("window", q, window=0)


# On a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("kv_format", KV_FORMATS)
@pytest.mark.parametrize("head_size", [64, 80, 96, 128, 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [None, 100])
def test_real_sizes(kv_format: str, head_size: int, dtype: torch.dtype, window: int | None) -> None:
    filled = filled_with(kv_format, [2500, 1, 1000, 16], kv_heads=2, head_size=head_size)
    counts = [700, 1, 1000, 3]
    q = queries(filled, sum(counts), 8, dtype)
    table, scales = table_of(filled, counts), filled.scales.layer(1)
    wanted = paged_prefill_reference(q.float(), filled.arena, table, 1, scales, window=window)
    arena = filled.arena.cuda()
    on_gpu = page_table(arena, filled.layout, filled.offsets, filled.lengths, counts)
    found = paged_prefill(q.cuda(), arena, on_gpu, 1, filled.scales.to("cuda").layer(1), window=window)
    assert_near(found, wanted, EXACT * 10 if dtype == torch.float32 else BFLOAT16)
