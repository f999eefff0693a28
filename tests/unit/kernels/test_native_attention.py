"""Attention in C: nobody's bits depend on what is computed beside them, and every bend of its loops is right."""

import pytest
import torch
from torch import Tensor

from kernels.dispatch import using
from kernels.formats import KV_FORMATS, kv_format_named
from kernels.layout import PageLayout
from kernels.paged_decode import paged_decode, paged_decode_reference
from kernels.paged_prefill import paged_prefill, paged_prefill_reference
from kernels.scales import LayerScales
from kernels.tables import page_table
from tests.unit.kernels.dense import assert_near, queries, table_of
from tests.unit.kernels.making import Filled, fill, make_layout, make_scales

pytestmark = pytest.mark.usefixtures("in_c")

EXACT = 1e-5  # relative, of float32
CHUNK = 256  # tokens whose scores the library keeps at once


def filled_with(kv_format: str, lengths: list[int], kv_heads: int = 2, head_size: int = 64) -> Filled:
    layout = make_layout(kv_format, kv_heads=kv_heads, head_size=head_size)
    return fill(layout, lengths, seed=5, scales=make_scales(layout))


def assert_equal(found: tuple[Tensor, Tensor], wanted: tuple[Tensor, Tensor]) -> None:
    """Bit by bit."""
    assert torch.equal(found[0], wanted[0])
    assert torch.equal(found[1], wanted[1])


@pytest.mark.parametrize("kv_format", KV_FORMATS)
@pytest.mark.parametrize("window", [None, 300])
def test_a_rows_bits_do_not_depend_on_its_company(kv_format: str, window: int | None) -> None:
    filled = filled_with(kv_format, [600, 1, 17, 256, 257])
    q, scales = queries(filled, 5, 14, torch.bfloat16), filled.scales.layer(1)
    means, sums = paged_decode(q, filled.arena, table_of(filled), 1, scales, window=window)
    for row in range(5):
        mine = slice(row, row + 1)
        alone = paged_decode(q[mine], filled.arena, table_of(filled, rows=[row]), 1, scales, window=window)
        assert_equal((means[mine], sums[mine]), alone)


@pytest.mark.parametrize("kv_format", KV_FORMATS)
@pytest.mark.parametrize("window", [None, 1, 20, 300])
def test_decoding_gives_the_bits_of_prefilling(kv_format: str, window: int | None) -> None:
    """So a request that is computed again after it was preempted goes on as if it had not been."""
    filled = filled_with(kv_format, [540])
    q, scales = queries(filled, 540, 6), filled.scales.layer(0)
    means, sums = paged_prefill(q, filled.arena, table_of(filled, [540]), 0, scales, window=window)
    for length in (1, 16, 17, 255, 256, 257, 300, 513, 540):
        table = page_table(filled.arena, filled.layout, filled.offsets, [length])
        mine = slice(length - 1, length)
        found = paged_decode(q[mine], filled.arena, table, 0, scales, window=window)
        assert_equal(found, (means[mine], sums[mine]))


@pytest.mark.parametrize("size", [1, 7, 100, 256])
def test_a_tokens_bits_do_not_depend_on_where_its_prompt_was_cut(size: int) -> None:
    filled = filled_with("int8", [540])
    q, scales = queries(filled, 540, 6), filled.scales.layer(0)
    for window in (None, 100):
        whole = paged_prefill(q, filled.arena, table_of(filled, [540]), 0, scales, window=window)
        for begin in range(0, 540, size):
            end = min(540, begin + size)
            table = page_table(filled.arena, filled.layout, filled.offsets, [end], [end - begin])
            part = paged_prefill(q[begin:end], filled.arena, table, 0, scales, window=window)
            assert_equal(part, (whole[0][begin:end], whole[1][begin:end]))


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_size"),
    [(1, 1, 16), (3, 3, 48), (14, 2, 64), (40, 1, 64), (71, 1, 112), (33, 11, 208), (64, 8, 128), (5, 1, 256)],
)
def test_any_number_of_heads_and_any_head_size(heads: int, kv_heads: int, head_size: int) -> None:
    for kv_format in ("k8v4", "nvfp4", "int2"):
        filled = filled_with(kv_format, [40, 5], kv_heads, head_size)
        q, scales = queries(filled, 12, heads), filled.scales.layer(1)
        table = table_of(filled, [9, 3])
        wanted = paged_prefill_reference(q, filled.arena, table, 1, scales)
        assert_near(paged_prefill(q, filled.arena, table, 1, scales), wanted, EXACT)


@pytest.mark.parametrize("block_tokens", [16, 32, 512])
def test_any_number_of_tokens_in_a_block(block_tokens: int) -> None:
    layout = PageLayout(kv_format_named("int4"), 2, 2, 32, block_tokens)
    filled = fill(layout, [700, 33], seed=2, scales=make_scales(layout))
    q, scales = queries(filled, 2, 4), filled.scales.layer(1)
    for window in (None, 40, 600):
        wanted = paged_decode_reference(q, filled.arena, table_of(filled), 1, scales, window=window)
        assert_near(paged_decode(q, filled.arena, table_of(filled), 1, scales, window=window), wanted, EXACT)


@pytest.mark.parametrize("window", [1, 15, 16, 255, CHUNK, CHUNK + 1, 511, 512, 5000])
def test_windows_around_the_size_of_a_chunk(window: int) -> None:
    filled = filled_with("fp8", [513, 600, 3])
    q, scales = queries(filled, 3, 4), filled.scales.layer(0)
    wanted = paged_decode_reference(q, filled.arena, table_of(filled), 0, scales, window=window)
    assert_near(paged_decode(q, filled.arena, table_of(filled), 0, scales, window=window), wanted, EXACT)


@pytest.mark.parametrize("factor", [1e-30, 1e3, 1e30])
def test_scores_of_any_size_overflow_nothing(factor: float) -> None:
    filled = filled_with("fp32", [300])
    q, scales = queries(filled, 1, 4) * factor, filled.scales.layer(0)
    means, sums = paged_decode(q, filled.arena, table_of(filled), 0, scales)
    wanted = paged_decode_reference(q, filled.arena, table_of(filled), 0, scales)
    torch.testing.assert_close(means, wanted[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(sums, wanted[1], rtol=1e-5, atol=1e-5)


def test_arguments_that_no_float_or_32_bits_hold() -> None:
    filled = filled_with("bf16", [20])
    q, table, scales = queries(filled, 1, 4), table_of(filled), filled.scales.layer(0)
    wanted = paged_decode(q, filled.arena, table, 0, scales)
    assert_equal(paged_decode(q, filled.arena, table, 0, scales, window=2**40), wanted)
    means, _ = paged_decode(q, filled.arena, table, 0, scales, softmax_scale=1e300)
    assert bool(means.isnan().all()), "as float32 has it, the scale is infinite"


def test_a_query_that_is_not_finite_spoils_nobody_else() -> None:
    filled = filled_with("bf16", [30, 300])
    q, scales = queries(filled, 2, 4), filled.scales.layer(0)
    clean = paged_decode(q, filled.arena, table_of(filled), 0, scales)
    q[0, 1, 3] = float("nan")
    means, sums = paged_decode(q, filled.arena, table_of(filled), 0, scales)
    assert bool(means[0, 1].isnan().all())
    means[0, 1], sums[0, 1] = clean[0][0, 1], clean[1][0, 1]
    assert_equal((means, sums), clean)


def test_static_scales_may_lie_apart() -> None:
    filled = filled_with("fp8", [20])
    q, scales = queries(filled, 1, 4), filled.scales.layer(0)
    apart = LayerScales(*(torch.stack([side, side * 0], dim=1)[:, 0] for side in (scales.key, scales.value)))
    assert not apart.key.is_contiguous()
    wanted = paged_decode(q, filled.arena, table_of(filled), 0, scales)
    assert_equal(paged_decode(q, filled.arena, table_of(filled), 0, apart), wanted)


@pytest.mark.parametrize("kv_format", KV_FORMATS)
def test_torch_and_c_agree_at_real_sizes(kv_format: str) -> None:
    filled = filled_with(kv_format, [1025, 700, 32])
    q, table, scales = queries(filled, 3, 8), table_of(filled), filled.scales.layer(1)
    with using("torch"):
        wanted = paged_decode(q, filled.arena, table, 1, scales)
    assert_near(paged_decode(q, filled.arena, table, 1, scales), wanted, EXACT)
