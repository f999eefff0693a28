"""Decoding from pages: against attention without pages, in each implementation, every format, odd shapes."""

import pytest
import torch
from torch import Tensor

from kernels import paged_decode as module
from kernels.dispatch import Implementation, using
from kernels.errors import InvalidArgument
from kernels.formats import KV_FORMATS
from kernels.paged_decode import MOST_SPLITS, compile_cases, paged_decode, paged_decode_reference, split_count
from kernels.scales import LayerScales
from kernels.tables import page_table
from tests.kernels.matrix import IMPLEMENTATIONS, matrix
from tests.unit.kernels.dense import assert_near, dense_attention, queries, table_of
from tests.unit.kernels.making import Filled, fill, make_layout, make_scales, write_row

EXACT = 1e-5  # relative, of float32
BFLOAT16 = 4e-3  # relative, of bfloat16: half a unit in the last place is 2e-3 to 4e-3
# Query heads, KV heads, head size: groups of 1, 4, 8 and all.
SHAPES = [(2, 2, 32), (8, 2, 64), (8, 1, 80), (4, 1, 96), (16, 2, 128), (3, 1, 256)]


def filled_with(
    kv_format: str, lengths: list[int], kv_heads: int = 2, head_size: int = 32, layers: int = 2, seed: int = 3
) -> Filled:
    layout = make_layout(kv_format, layers=layers, kv_heads=kv_heads, head_size=head_size)
    return fill(layout, lengths, seed=seed, scales=make_scales(layout))


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
    filled = filled_with(kv_format, [1, 15, 16, 17, 50], kv_heads, head_size)
    q = queries(filled, 5, heads)
    wanted = dense_attention(filled, 1, q, [1] * 5)
    assert_near(paged_decode(q, filled.arena, table_of(filled), 1, filled.scales.layer(1)), wanted, EXACT)
    assert_near(paged_decode_reference(q, filled.arena, table_of(filled), 1, filled.scales.layer(1)), wanted, EXACT)


@pytest.mark.parametrize("kv_format", KV_FORMATS)
def test_long_rows_beside_short_ones(on_cpu: Implementation, kv_format: str) -> None:
    filled = filled_with(kv_format, [4097, 5, 2500, 1], kv_heads=1, head_size=64, layers=1)
    q = queries(filled, 4, 4)
    found = paged_decode(q, filled.arena, table_of(filled), 0, filled.scales.layer(0))
    assert_near(found, dense_attention(filled, 0, q, [1] * 4), EXACT)


@pytest.mark.parametrize("kv_format", KV_FORMATS)
def test_the_kernel_in_every_format(kv_format: str) -> None:
    filled = filled_with(kv_format, [1, 37], kv_heads=2)
    q = queries(filled, 2, 6)
    with using("triton"):
        found = paged_decode(q, filled.arena, table_of(filled), 1, filled.scales.layer(1), splits=2)
    assert_near(found, dense_attention(filled, 1, q, [1, 1]), EXACT)


@pytest.mark.parametrize(("heads", "kv_heads", "head_size"), [(1, 1, 80), (8, 1, 96), (20, 1, 64)])
def test_the_kernel_at_odd_shapes(heads: int, kv_heads: int, head_size: int) -> None:
    filled = filled_with("k8v4", [18], kv_heads, head_size)
    q = queries(filled, 1, heads)
    with using("triton"):
        found = paged_decode(q, filled.arena, table_of(filled), 0, filled.scales.layer(0))
    assert_near(found, dense_attention(filled, 0, q, [1]), EXACT)


@matrix(
    {"kv_format": ["bf16", "int8", "int4"], "each_implementation": IMPLEMENTATIONS["each_implementation"]},
    strength=1,  # every format meets every implementation above, with queries in float32
    corners=[("bf16", "triton"), ("int8", "native"), ("int4", "torch")],
)
def test_queries_in_bfloat16(each_implementation: Implementation, kv_format: str) -> None:
    filled = filled_with(kv_format, [20, 33], kv_heads=1)
    q = queries(filled, 2, 4, torch.bfloat16)
    found = paged_decode(q, filled.arena, table_of(filled), 1, filled.scales.layer(1))
    assert found[0].dtype == torch.bfloat16
    assert found[1].dtype == torch.float32
    assert_near(found, dense_attention(filled, 1, q, [1, 1]), BFLOAT16)


@pytest.mark.parametrize("window", [1, 7, 16, 17, 40, 1000])
def test_windows(on_cpu: Implementation, window: int) -> None:
    filled = filled_with("int8", [1, 15, 33, 50, 16])
    q = queries(filled, 5, 4)
    found = paged_decode(q, filled.arena, table_of(filled), 0, filled.scales.layer(0), window=window)
    wanted = dense_attention(filled, 0, q, [1] * 5, window=window)
    assert_near(found, wanted, EXACT)
    reference = paged_decode_reference(q, filled.arena, table_of(filled), 0, filled.scales.layer(0), window=window)
    assert_near(reference, wanted, EXACT)


def test_windows_in_the_kernel() -> None:
    filled = filled_with("int8", [50, 3], kv_heads=1)
    q = queries(filled, 2, 2)
    for window in (1, 20):
        with using("triton"):
            found = paged_decode(q, filled.arena, table_of(filled), 0, filled.scales.layer(0), window=window, splits=2)
        assert_near(found, dense_attention(filled, 0, q, [1, 1], window=window), EXACT)


def test_a_softmax_scale_of_the_callers_choice(each_implementation: Implementation) -> None:
    filled = filled_with("fp8", [21], kv_heads=1)
    q = queries(filled, 1, 2)
    found = paged_decode(q, filled.arena, table_of(filled), 1, filled.scales.layer(1), softmax_scale=0.5)
    assert_near(found, dense_attention(filled, 1, q, [1], softmax_scale=0.5), EXACT)


# What must not change the result


def test_any_number_of_splits_gives_the_same() -> None:
    filled = filled_with("int4", [50, 7], kv_heads=1)
    q = queries(filled, 2, 4)
    wanted = dense_attention(filled, 0, q, [1, 1])
    for splits in range(1, 6):  # the short row leaves some empty
        with using("triton"):
            found = paged_decode(q, filled.arena, table_of(filled), 0, filled.scales.layer(0), splits=splits)
        assert_near(found, wanted, EXACT)


@pytest.mark.parametrize("chunk", [1, 48, 200])
def test_any_size_of_chunks_gives_the_same(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    filled = filled_with("k8v4", [50, 7, 64, 90], kv_heads=2)
    q = queries(filled, 4, 4)
    monkeypatch.setattr(module, "CHUNK_VECTORS", chunk)
    for window in (None, 20):
        with using("torch"):
            found = paged_decode(q, filled.arena, table_of(filled), 0, filled.scales.layer(0), window=window)
        assert_near(found, dense_attention(filled, 0, q, [1] * 4, window=window), EXACT)


@pytest.mark.parametrize("kv_format", KV_FORMATS)
def test_a_row_does_not_depend_on_its_company(on_cpu: Implementation, kv_format: str) -> None:
    filled = filled_with(kv_format, [30, 1, 100, 17])
    q = queries(filled, 4, 4)
    scales = filled.scales.layer(1)
    together, sums = paged_decode(q, filled.arena, table_of(filled), 1, scales)
    for row in range(4):
        alone = paged_decode(q[row : row + 1], filled.arena, table_of(filled, rows=[row]), 1, scales)
        assert_near((together[row : row + 1], sums[row : row + 1]), alone, 1e-6)


@matrix(
    {"kv_format": KV_FORMATS, "byte": [0x00, 0x7F, 0x80, 0xFF], "on_cpu": IMPLEMENTATIONS["on_cpu"]},
    corners=[("bf16", 0xFF, "native"), ("fp8", 0x7F, "native"), ("fp8_e5m2", 0xFF, "torch")],  # NaN
)
def test_whatever_lies_in_unused_slots_changes_nothing(on_cpu: Implementation, kv_format: str, byte: int) -> None:
    filled = filled_with(kv_format, [18, 35, 3])
    q, table, scales = queries(filled, 3, 4), table_of(filled), filled.scales.layer(0)
    found = paged_decode(q, filled.arena, table, 0, scales)
    other = fill(filled.layout, filled.lengths, seed=3, scales=filled.scales, arena=torch.full_like(filled.arena, byte))
    again = paged_decode(q, other.arena, table, 0, scales)
    assert torch.equal(found[0], again[0])
    assert torch.equal(found[1], again[1])


def test_splits_may_be_merged_by_their_lse(each_implementation: Implementation) -> None:
    filled = filled_with("int8", [40], kv_heads=1)
    q, scales, offsets = queries(filled, 1, 2), filled.scales.layer(1), filled.offsets[0]
    whole = paged_decode(q, filled.arena, table_of(filled), 1, scales)
    first = paged_decode(q, filled.arena, page_table(filled.arena, filled.layout, [offsets[:1]], [16]), 1, scales)
    second = paged_decode(q, filled.arena, page_table(filled.arena, filled.layout, [offsets[1:]], [24]), 1, scales)
    lse = torch.logaddexp(first[1], second[1])
    shares = [(part[1] - lse).exp().unsqueeze(-1) for part in (first, second)]
    assert_near((first[0] * shares[0] + second[0] * shares[1], lse), whole, EXACT)


# The Hopper trap: V is never accumulated in FP8


def alike(kv_format: str, length: int, needle: int | None) -> tuple[Filled, Tensor]:
    """Keys that all score the same but for one, values that are all 1.0 but for that one, which is 96."""
    layout = make_layout(kv_format, layers=1, kv_heads=1, head_size=32)
    filled = fill(layout, [length], seed=1)
    keys, values = torch.ones(length, 1, 32), torch.ones(length, 1, 32)
    if needle is not None:
        values[needle] = 96.0
    write_row(filled.arena, layout, 0, filled.offsets[0], keys, values, filled.scales.layer(0))
    return Filled(filled.arena, layout, filled.offsets, [length], [[keys]], [[values]], filled.scales), torch.ones(
        1, 1, 32
    )


@matrix(
    {
        "kv_format": ["bf16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8"],
        "needle": [None, 3],
        "on_cpu": IMPLEMENTATIONS["on_cpu"],
    },
    corners=[("fp8", 3, "torch"), ("fp8", 3, "native")],  # the trap itself
)
def test_many_small_contributions_are_not_lost(on_cpu: Implementation, kv_format: str, needle: int | None) -> None:
    """Added up in 14 bits, as Hopper does with FP8 operands, they would stop counting after some thousands."""
    filled, q = alike(kv_format, 20_000, needle)
    means, _ = paged_decode(q, filled.arena, table_of(filled), 0, filled.scales.layer(0))
    wanted = 1.0 if needle is None else 1.0 + 95.0 / 20_000
    assert float((means - wanted).abs().max()) < 1e-4


def test_many_small_contributions_are_not_lost_in_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_tile", lambda *_: (128, {}))
    filled, q = alike("fp8", 4096, 3)
    with using("triton"):
        found = paged_decode(q.bfloat16(), filled.arena, table_of(filled), 0, filled.scales.layer(0), splits=1)
    assert float((found[0].float() - (1.0 + 95.0 / 4096)).abs().max()) < 0.005  # half a unit of bfloat16 at 1.0


def test_matrix_products_are_asked_for_in_bfloat16_or_float32() -> None:
    for kv_format in KV_FORMATS.values():
        for case in compile_cases(64, kv_format):
            assert str(case.constexprs.get("COMPUTE", "bf16")) in ("bf16", "fp32")


# How a GPU is filled


@pytest.mark.parametrize(
    ("rows", "kv_heads", "longest", "splits"),
    [
        (32, 8, 16_384, 1),
        (1, 8, 131_072, 30),
        (1, 1, 255, 1),
        (64, 8, 4096, 1),
        (1, 8, 1024, 4),
        (1, 1, 10**6, 58),
    ],
)
def test_splits_fill_132_multiprocessors(rows: int, kv_heads: int, longest: int, splits: int) -> None:
    assert split_count(rows, kv_heads, longest, 132) == splits


def test_splits_are_never_more_than_a_row_can_use() -> None:
    for rows in (1, 3, 17, 100):
        for longest in (1, 100, 257, 5000, 100_000):
            assert 1 <= split_count(rows, 2, longest, 132) <= max(1, min(MOST_SPLITS, longest // 256))


# Bad input


def refused(argument: str, filled: Filled, q: Tensor, **changes: object) -> None:
    given: dict[str, object] = {
        "arena": filled.arena,
        "table": table_of(filled),
        "layer": 0,
        "scales": filled.scales.layer(0),
    } | changes
    with pytest.raises(InvalidArgument) as caught:
        paged_decode(q, **given)  # type: ignore[arg-type]
    assert caught.value.argument == argument


def test_bad_input_is_refused_by_its_name() -> None:
    filled = filled_with("int8", [20, 3])
    q, scales = queries(filled, 2, 4), filled.scales.layer(0)
    refused("q", filled, q.half())
    refused("q", filled, q.long())
    refused("q", filled, q[:1])
    refused("q", filled, q[0])
    refused("q", filled, q[..., :16])
    refused("q", filled, q[:, :3].contiguous())
    refused("q", filled, q[:, :0].contiguous())
    refused("q", filled, queries(filled, 2, 8)[:, ::2])
    refused("q", filled, q.to("meta"))
    refused("arena", filled, q, arena=filled.arena.int())
    refused("arena", filled, q, arena=filled.arena[1:])
    for layer in (-1, 2, 1.0, True):
        refused("layer", filled, q, layer=layer)
    for window in (0, -1, 1.5, True):
        refused("window", filled, q, window=window)
    for softmax_scale in (float("nan"), float("inf"), "1"):
        refused("softmax_scale", filled, q, softmax_scale=softmax_scale)
    for splits in (0, MOST_SPLITS + 1):
        refused("splits", filled, q, splits=splits)
    refused("scales", filled, q, scales=LayerScales(scales.key[:1], scales.value))
    refused("scales", filled, q, scales=LayerScales(scales.key, scales.value.double()))
    refused("table", filled, queries(filled, 4, 4), table=table_of(filled, [2, 2]))


# On a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("kv_format", KV_FORMATS)
@pytest.mark.parametrize("head_size", [64, 80, 96, 128, 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_real_sizes(kv_format: str, head_size: int, dtype: torch.dtype) -> None:
    filled = filled_with(kv_format, [4097, 1, 1000, 16], kv_heads=2, head_size=head_size)
    q = queries(filled, 4, 8, dtype)
    wanted = paged_decode_reference(q.float(), filled.arena, table_of(filled), 1, filled.scales.layer(1))
    arena, scales = filled.arena.cuda(), filled.scales.to("cuda").layer(1)
    table = page_table(arena, filled.layout, filled.offsets, filled.lengths)
    for splits in (None, 1, 5):
        found = paged_decode(q.cuda(), arena, table, 1, scales, splits=splits)
        assert_near(found, wanted, EXACT * 10 if dtype == torch.float32 else BFLOAT16)


@pytest.mark.gpu
@pytest.mark.parametrize("kv_format", KV_FORMATS)
def test_v_is_never_accumulated_in_fp8(kv_format: str) -> None:
    filled, q = alike(kv_format, 131_072, 3)
    wanted = paged_decode_reference(q, filled.arena, table_of(filled), 0, filled.scales.layer(0))
    arena, scales = filled.arena.cuda(), filled.scales.to("cuda").layer(0)
    table = page_table(arena, filled.layout, filled.offsets, filled.lengths)
    found = paged_decode(q.bfloat16().cuda(), arena, table, 0, scales, splits=1)
    assert_near(found, wanted, BFLOAT16)
